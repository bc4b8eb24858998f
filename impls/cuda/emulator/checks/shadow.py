"""Shadow memory: who last wrote and who read each grain of a space.

An access is one 64-bit stamp, so that one comparison tells whether it is older than a moment:

    | 62 ... 33 | 32      | 31 ... 5 | 4 ... 0 |
    | time      | several | warp     | lane    |

`several` is set on a read when warps other than the stamp's have read the grain too. A copy that is in flight has the time
`FLIGHT`, later than any, and its token instead of a warp; each warp of an instruction has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from impls.cuda.emulator.checks.clocks import Clocks, Ints

TIME_BIT = 33
SEVERAL = 1 << 32
FLIGHT = (1 << 30) - 1
WIDEST = 32
"""Bytes of the widest access by one lane; a space is padded to a multiple, so that it can be seen as rows of any width."""

WHO = SEVERAL - 1
_LANDED = -1
_WARP = SEVERAL | (WHO & ~31)
_LANES = np.arange(32)


Time = TypeVar("Time", int, Ints)


def stamps(warps: NDArray[np.intp], now: int, lanes: int) -> Ints:
    """Stamps [warps, lanes] of an access at `now`."""
    columns = _LANES[:lanes] if lanes <= 32 else np.arange(lanes) & 31
    return ((warps << 5) + (now << TIME_BIT))[:, None] + columns


def moment(time: Time) -> Time:
    """A stamp is smaller if and only if it is of that time or earlier."""
    return (time + 1) << TIME_BIT


def time_of(stamp: Ints) -> Ints:
    return stamp >> TIME_BIT


def warp_of(stamp: Ints) -> Ints:
    return (stamp & WHO) >> 5


def lane_of(stamp: Ints) -> Ints:
    return stamp & 31


def in_flight(tokens: Ints) -> Ints:
    """Stamps [n, 1] of copies that have not landed."""
    return ((FLIGHT << TIME_BIT) + (tokens << 5))[:, None]


@dataclass(slots=True, eq=False)
class Region:
    """What n warps access in one instruction."""

    space: str
    offsets: NDArray[np.integer]
    """Bytes, [n, lanes]; in shared memory from the start of the own block's."""
    size: int
    """Bytes a lane, and what every offset is a multiple of."""
    active: NDArray[np.bool_] | None = None
    """[n, lanes]; None: all."""
    apart: bool = False
    """It is known that no two of the active lanes meet, of whatever warps."""
    rows: NDArray[np.intp] | None = None
    """As `Touched` has them, once that is known. A region can be used again by warps of the same places among those that
    reside."""


@dataclass(slots=True, eq=False)
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

    def extent(self, padding: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Of each warp the first grain before the padding, and the one behind the last; (padding, 0) if there is none."""
        first, last = self.rows.min(axis=1), self.rows.max(axis=1)
        outside = padding // self.grains
        if last.max(initial=0) >= outside:
            last = np.where(self.rows < outside, self.rows, -1).max(axis=1)
        return first * self.grains, (last + 1) * self.grains

    def all_grains(self) -> NDArray[np.intp]:
        """[n, lanes, grains]."""
        return self.rows[:, :, None] * self.grains + np.arange(self.grains)


class Grains:
    """One number a grain, seen as rows of 1, 2, 4... grains: one fetch or store a lane, however wide its access."""

    def __init__(self, count: int) -> None:
        self.flat = np.zeros(count + WIDEST, np.int64)
        self.count = count
        self._views: dict[int, Ints] = {1: self.flat}

    def view(self, grains: int) -> Ints:
        if grains not in self._views:
            self._views[grains] = self.flat.reshape(-1, grains)
        return self._views[grains]

    def fetch(self, touched: Touched) -> Ints:
        """[n, lanes, grains], or [n, lanes] if each touches a single grain."""
        return self.view(touched.grains).take(touched.rows, axis=0)

    def fetch_first(self, touched: Touched) -> Ints:
        """[n, lanes], the first grain of each lane."""
        return self.flat.take(touched.rows if touched.grains == 1 else touched.rows * touched.grains)

    def store(self, touched: Touched, values: Ints) -> None:
        """`values` [n, lanes] into all grains that a lane touched."""
        for first in range(touched.grains):  # half the time of one assignment to rows of all grains
            self.flat[first :: touched.grains][touched.rows] = values
        self.clear_padding()

    def clear_padding(self) -> None:
        """Forget what inactive lanes left."""
        self.flat[self.count :] = 0


class Reads(Protocol):
    """Who read each grain of a space."""

    def record(self, touched: Touched, now: int, clocks: Clocks) -> None:
        """A read by `touched.warps`."""

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
    if stamp.max() < limit.min():
        return None
    mask = stamp >= limit.reshape(limit.shape + (1,) * (stamp.ndim - 1))
    return mask.reshape(*mask.shape[:2], -1) if mask.any() else None


def late_ones(stamp: Ints, known: Ints) -> tuple[tuple[NDArray[np.intp], ...], Ints] | None:
    """(where they are in [n, lanes, grains], those stamps) that `late` finds; None if there are none."""
    mask = late(stamp, known)
    if mask is None:
        return None
    at = np.nonzero(mask)
    return at, stamp.reshape(mask.shape)[at]


AT_ONCE = 64
"""Reads of shared memory that are put off until somebody writes."""


class _Flying(NamedTuple):
    """The copies of one instruction."""

    touched: Touched
    tokens: Ints
    """One for each warp's, or `_LANDED`."""
    low: NDArray[np.intp]
    """The first grain of each warp's."""
    high: NDArray[np.intp]
    """Behind the last."""


class Flights:
    """Copies that may still read."""

    def __init__(self, padding: int) -> None:
        """`padding`: what inactive lanes touch is there."""
        self._padding = padding
        self._copies: list[_Flying] = []

    def launch(self, touched: Touched, tokens: Ints) -> None:
        """Copies, one by each warp, are under way."""
        self._copies.append(_Flying(touched, tokens.copy(), *touched.extent(self._padding)))

    def land(self, touched: Touched, rows: NDArray[np.intp]) -> None:
        """Those in these rows have read."""
        for flying in self._copies:
            if flying.touched is touched:
                flying.tokens[rows] = _LANDED
        self._copies = [flying for flying in self._copies if (flying.tokens != _LANDED).any()]

    def meeting(self, touched: Touched) -> tuple[tuple[int, ...], Ints] | None:
        """The first place of [n, lanes, grains] that a copy may still read, and that copy's stamp."""
        if not self._copies:
            return None
        low, high = touched.extent(self._padding)
        first, end = low.min(), high.max()
        for flying in self._copies:
            near = (flying.tokens != _LANDED) & (flying.low < end) & (flying.high > first)
            rows = [row for row in np.flatnonzero(near).tolist() if ((flying.low[row] < high) & (low < flying.high[row])).any()]
            if not rows:
                continue
            grains = touched.all_grains()
            for row in rows:
                meet = np.isin(grains, flying.touched.part(np.array([row])).all_grains()) & (grains < self._padding)
                if meet.any():
                    return tuple(np.argwhere(meet)[0].tolist()), in_flight(flying.tokens[row : row + 1])[0]
        return None


class BlockReads:
    """Reads of shared memory: for each grain the time of the last read by each of the block's warps."""

    def __init__(self, blocks: int, stride: int, warps_per_block: int) -> None:
        self._last = Grains(blocks * stride)
        self._per_warp = len(self._last.flat)
        self._times = np.zeros(warps_per_block * self._per_warp, np.int32)
        self._flights = Flights(self._last.count)
        self._new: dict[int, tuple[Touched, int]] = {}
        """What was read, and when, that is not in the arrays yet, in this order; of reads of the same rows the last."""

    def record(self, touched: Touched, now: int, clocks: Clocks) -> None:
        self._new.pop(id(touched.rows), None)
        self._new[id(touched.rows)] = touched, now
        if len(self._new) == AT_ONCE:
            self._settle(clocks)

    def _settle(self, clocks: Clocks) -> None:
        """Remember the new reads that somebody in the reader's block does not know: before most writes all have met."""
        everybody = clocks.block_known.reshape(-1, clocks.width)
        for touched, now in self._new.values():
            if (everybody[touched.warps // clocks.width] < now).any():
                self._keep(touched, now, clocks)
        self._new = {}

    def _keep(self, touched: Touched, now: int, clocks: Clocks) -> None:
        self._last.store(touched, stamps(touched.warps, now, touched.rows.shape[1]))
        local = touched.warps % clocks.width
        rows = touched.rows + (local * (self._per_warp // touched.grains))[:, None]
        times = self._times if touched.grains == 1 else self._times.reshape(-1, touched.grains)
        times[rows] = now

    def launch(self, touched: Touched, tokens: Ints) -> None:
        self._flights.launch(touched, tokens)

    def land(self, touched: Touched, rows: NDArray[np.intp], now: int, clocks: Clocks) -> None:
        part = touched.part(rows)
        self.record(part, now, clocks)
        self._flights.land(touched, rows)

    def unknown(self, touched: Touched, known: Ints, clocks: Clocks) -> tuple[tuple[int, ...], Ints] | None:
        if (flying := self._flights.meeting(touched)) is not None:
            return flying
        if self._new:
            self._settle(clocks)
        found_late = late_ones(self._last.fetch(touched), known)
        if found_late is None:
            return None
        at, last = found_late
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
