"""Shadow memory: who last wrote and who read each grain of a space.

An access is one 64-bit stamp, so that one comparison tells whether it is older than a moment:

    | 62 ... 33 | 32      | 31 ... 5 | 4 ... 0 |
    | time      | several | warp     | lane    |

`several` is set on a read when warps other than the stamp's have read the grain too. A copy that is in flight has the time
`FLIGHT`, later than any, and its token instead of a warp; each warp of an instruction has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from impls.cuda.emulator.checks.clocks import Clocks, Ints

TIME_BIT = 33
SEVERAL = 1 << 32
FLIGHT = (1 << 30) - 1
WIDEST = 32
"""Bytes of the widest access by one lane; a space is padded to a multiple, so that it can be seen as rows of any width."""

_WHO = SEVERAL - 1
_LANDED = -1
_WARP = SEVERAL | (_WHO & ~31)
_LANES = np.arange(32)


def stamps(warps: NDArray[np.intp], now: int, lanes: int) -> Ints:
    """Stamps [warps, lanes] of an access at `now`."""
    columns = _LANES[:lanes] if lanes <= 32 else np.arange(lanes) & 31
    return ((warps << 5) + (now << TIME_BIT))[:, None] + columns


def moment(time: Ints) -> Ints:
    """A stamp is smaller if and only if it is of that time or earlier."""
    return (time + 1) << TIME_BIT


def time_of(stamp: Ints) -> Ints:
    return stamp >> TIME_BIT


def warp_of(stamp: Ints) -> Ints:
    return (stamp & _WHO) >> 5


def lane_of(stamp: Ints) -> Ints:
    return stamp & 31


def in_flight(tokens: Ints) -> Ints:
    """Stamps [n, 1] of copies that have not landed."""
    return ((FLIGHT << TIME_BIT) + (tokens << 5))[:, None]


@dataclass(frozen=True)
class Region:
    """What n warps access in one instruction."""

    space: str
    offsets: NDArray[np.integer]
    """Bytes, [n, lanes]; in shared memory from the start of the own block's."""
    size: int
    """Bytes a lane, and what every offset is a multiple of."""
    active: NDArray[np.bool_] | None = None
    """[n, lanes]; None: all."""


@dataclass(frozen=True)
class Touched:
    """A region in a shadow's terms."""

    warps: NDArray[np.intp]
    grains: int
    """Of one lane's access."""
    rows: NDArray[np.intp]
    """[n, lanes] of the shadow seen as rows of that many grains; an inactive lane has the padding's."""

    def grain(self, at: tuple[int, ...]) -> int:
        """The shadow's grain at an index into [n, lanes, grains]."""
        return int(self.rows[at[:2]]) * self.grains + at[2]

    def part(self, chosen: NDArray[np.intp]) -> Touched:
        """What the chosen of its warps touched."""
        return Touched(self.warps[chosen], self.grains, self.rows[chosen])

    def all_grains(self) -> NDArray[np.intp]:
        """[n, lanes, grains]."""
        return self.rows[:, :, None] * self.grains + np.arange(self.grains)


class Grains:
    """One number a grain, seen as rows of 1, 2, 4... grains: one fetch or store a lane, however wide its access."""

    def __init__(self, count: int) -> None:
        self.flat = np.zeros(count + WIDEST, np.int64)
        self._count = count
        self._views: dict[int, Ints] = {1: self.flat}

    def view(self, grains: int) -> Ints:
        if grains not in self._views:
            self._views[grains] = self.flat.reshape(-1, grains)
        return self._views[grains]

    def fetch(self, touched: Touched) -> Ints:
        """[n, lanes, grains], or [n, lanes] if each touches a single grain."""
        return self.view(touched.grains).take(touched.rows, axis=0)

    def store(self, touched: Touched, values: Ints) -> None:
        """`values` [n, lanes] into all grains that a lane touched."""
        self.view(touched.grains)[touched.rows] = values if touched.grains == 1 else values[:, :, None]
        self.clear_padding()

    def clear_padding(self) -> None:
        """Forget what inactive lanes left."""
        self.flat[self._count :] = 0


class Reads(Protocol):
    """Who read each grain of a space."""

    def record(self, touched: Touched, stamp: Ints, clocks: Clocks) -> None:
        """A read by `touched.warps`, one stamp a lane [n, lanes]."""

    def launch(self, touched: Touched, tokens: Ints) -> None:
        """Copies begin, one by each warp, that may read at any time until they land."""

    def land(self, touched: Touched, rows: NDArray[np.intp], now: int, clocks: Clocks) -> None:
        """Those in these rows of what was launched have read."""

    def unknown(self, touched: Touched, known: Ints, clocks: Clocks) -> tuple[tuple[int, ...], Ints] | None:
        """The first place of [n, lanes, grains] with reads that the warp which touches it does not know, and their stamps.

        `known` [n]: everything until then is known to the warp, so that most grains need no closer look.
        """


def late(stamp: Ints, known: Ints) -> NDArray[np.bool_] | None:
    """Which stamps [n, lanes(, grains)] are later than what each of n warps knows all about; None if none is."""
    limit = moment(known)
    mask = stamp >= limit.reshape(limit.shape + (1,) * (stamp.ndim - 1))
    return mask.reshape(*mask.shape[:2], -1) if mask.any() else None


class BlockReads:
    """Reads of shared memory: for each grain the time of the last read by each of the block's warps."""

    def __init__(self, blocks: int, stride: int, warps_per_block: int) -> None:
        self._last = Grains(blocks * stride)
        self._per_warp = len(self._last.flat)
        self._times = np.zeros(warps_per_block * self._per_warp, np.int32)
        self._flights: list[tuple[Touched, Ints]] = []
        """Copies that may still read, and their tokens."""

    def record(self, touched: Touched, stamp: Ints, clocks: Clocks) -> None:
        self._last.store(touched, stamp)
        local = touched.warps % clocks.width
        rows = touched.rows + (local * (self._per_warp // touched.grains))[:, None]
        times = self._times if touched.grains == 1 else self._times.reshape(-1, touched.grains)
        times[rows] = stamp[0, 0] >> TIME_BIT

    def launch(self, touched: Touched, tokens: Ints) -> None:
        self._flights.append((touched, tokens.copy()))

    def land(self, touched: Touched, rows: NDArray[np.intp], now: int, clocks: Clocks) -> None:
        part = touched.part(rows)
        self.record(part, stamps(part.warps, now, part.rows.shape[1]), clocks)
        for flying, tokens in self._flights:
            if flying is touched:
                tokens[rows] = _LANDED
        self._flights = [(flying, tokens) for flying, tokens in self._flights if (tokens != _LANDED).any()]

    def unknown(self, touched: Touched, known: Ints, clocks: Clocks) -> tuple[tuple[int, ...], Ints] | None:
        for flying, tokens in self._flights:
            for row in np.flatnonzero(tokens != _LANDED):
                meet = np.isin(touched.all_grains(), flying.all_grains()[row])
                meet &= touched.all_grains() < self._per_warp - WIDEST
                if meet.any():
                    return tuple(np.argwhere(meet)[0].tolist()), in_flight(tokens[row : row + 1])[0]
        last = self._last.fetch(touched)
        mask = late(last, known)
        if mask is None:
            return None
        at = np.nonzero(mask)
        last = last.reshape(mask.shape)[at]
        warps = touched.warps[at[0]]
        times = self._times.reshape(clocks.width, -1)[:, touched.all_grains()[at]]
        unknown = clocks.rows[warps, : clocks.width] < times.T
        # Of its own warp's reads only the last is known by lane: another lane's is unknown until the lanes come together.
        own = np.arange(len(warps)), warps % clocks.width
        unknown[own] &= (warp_of(last) == warps) & (lane_of(last) != (at[1] & 31))
        if not unknown.any():
            return None
        place = int(np.argmax(unknown.any(axis=1)))
        readers = np.flatnonzero(unknown[place])
        first = warps[place] // clocks.width * clocks.width
        found = (times[readers, place].astype(np.int64) << TIME_BIT) + ((first + readers) << 5)
        found[warp_of(found) == warp_of(last[place])] = last[place]
        return tuple(int(axis[place]) for axis in at), found


class LoggedRead:
    """One instruction's read of global memory, small, because there are many: most often all warps read in one pattern."""

    def __init__(self, touched: Touched, time: int) -> None:
        self._warps, self._grains = touched.warps, touched.grains
        self.times = np.full(len(touched.warps), time)
        """Of each warp: `FLIGHT` until its copy lands."""
        self._first = touched.rows[:, :1].copy()
        pattern = touched.rows - self._first
        same = (pattern == pattern[0]).all()
        self._pattern = (pattern[:1] if same else pattern).astype(np.int32)
        self.low = int(touched.rows.min()) * touched.grains
        self.high = (int(touched.rows.max()) + 1) * touched.grains

    def touched(self) -> Touched:
        return Touched(self._warps, self._grains, self._first + self._pattern)

    def stamps(self) -> Ints:
        """[n, lanes]"""
        columns = np.arange(self._pattern.shape[1]) & 31
        return ((self._warps << 5) + (self.times << TIME_BIT))[:, None] + columns


class GridReads:
    """Reads of global memory: the last of each grain, and the log of all to look up when several warps read a grain.

    A number for each grain and warp is too much for a grid, and most of what is read is never written.
    """

    def __init__(self, grains: int) -> None:
        self._last = Grains(grains)
        self._log: list[LoggedRead] = []
        self._flights: dict[int, LoggedRead] = {}
        """By the identity of what was launched: its copies may still read."""

    def forget(self) -> None:
        """All reads until now are known to everybody."""
        if self._log:
            self._last.flat[:] = 0
        self._log.clear()

    def new_launch(self) -> None:
        """The numbers of warps mean others from now on, so that no reader is mistaken for the one of the same number."""
        self._last.flat[self._last.flat != 0] |= SEVERAL

    def record(self, touched: Touched, stamp: Ints, clocks: Clocks) -> None:
        last = self._last.fetch(touched)
        mine = stamp if last.ndim == 2 else stamp[:, :, None]
        mine = np.where((last != 0) & ((last ^ mine) & _WARP != 0), mine | SEVERAL, mine)
        self._last.view(touched.grains)[touched.rows] = mine
        lost = (self._last.fetch(touched) ^ mine) & _WARP != 0
        if lost.any():  # two warps of this very instruction read one grain
            self._last.flat[touched.all_grains().reshape(lost.shape)[lost]] |= SEVERAL
        self._last.clear_padding()
        self._log.append(LoggedRead(touched, int(stamp[0, 0]) >> TIME_BIT))

    def launch(self, touched: Touched, tokens: Ints) -> None:
        self._last.store(touched, in_flight(tokens) | SEVERAL)
        entry = LoggedRead(touched, FLIGHT)
        self._log.append(entry)
        self._flights[id(touched)] = entry

    def land(self, touched: Touched, rows: NDArray[np.intp], now: int, clocks: Clocks) -> None:
        entry = self._flights[id(touched)]
        entry.times[rows] = now
        if (entry.times != FLIGHT).all():
            del self._flights[id(touched)]

    def unknown(self, touched: Touched, known: Ints, clocks: Clocks) -> tuple[tuple[int, ...], Ints] | None:
        last = self._last.fetch(touched)
        mask = late(last, known)
        if mask is None:
            return None
        at = np.nonzero(mask)
        last = last.reshape(mask.shape)[at]
        warps, several = touched.warps[at[0]], last & SEVERAL != 0
        unknown = ~several & ~clocks.knows(warps, warp_of(last), time_of(last), lane_of(last) == (at[1] & 31))
        if unknown.any():
            place = int(np.argmax(unknown))
            return tuple(int(axis[place]) for axis in at), last[place : place + 1]
        grains = touched.all_grains()[at]
        for warp in np.unique(warps[several]).tolist():
            wanted = grains[several & (warps == warp)]
            found = self._look_up(warp, wanted, clocks)
            if found is not None:
                place = int(np.flatnonzero((grains == found[0]) & (warps == warp))[0])
                return tuple(int(axis[place]) for axis in at), found[1]
        return None

    def _look_up(self, warp: int, wanted: NDArray[np.intp], clocks: Clocks) -> tuple[int, Ints] | None:
        """One of the wanted grains with a read that `warp` does not know, and that read's stamp."""
        low, high = int(wanted.min()), int(wanted.max())
        for entry in self._log:
            if entry.high <= low or entry.low > high:
                continue
            grains = entry.touched().all_grains()
            hit = np.isin(grains, wanted)
            if not hit.any():
                continue
            stamp = np.broadcast_to(entry.stamps()[:, :, None], grains.shape)[hit]
            me = np.full(len(stamp), warp)
            # Its own reads are known whatever lane they were by: the log has no time at which the lanes came together.
            known = clocks.knows(me, warp_of(stamp), time_of(stamp), np.ones(len(stamp), bool))
            known &= time_of(stamp) != FLIGHT
            if not known.all():
                place = int(np.argmin(known))
                return int(grains[hit][place]), stamp[place : place + 1]
        return None
