"""Who read global memory: a log, because a number for each grain and each warp of a grid would be too much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from impls.cuda.emulator.checks.clocks import Clocks, Ints
from impls.cuda.emulator.checks.reports import TooMuch
from impls.cuda.emulator.checks.shadow import SEVERAL, TIME_BIT, Flights, Grains, Touched, lane_of, late_ones, time_of, warp_of

LARGEST = 1 << 30
"""Bytes of the log, at most."""
LINE = 56
"""Bytes of the log for one warp's read of a pattern that was there before."""
PATTERN = 600
"""Bytes of a pattern, about."""

AT_ONCE = 32
"""Reads that are made into lines together."""
SHORTEST = 1024
"""Lines that there is room for when the log was compacted."""
_WARP = SEVERAL | ((SEVERAL - 1) & ~31)


class GridReads:
    """Reads of global memory: the log of all, and the last of each grain where something is written.

    A number for each grain and warp is too much for a grid, and most of what is read is never written.
    """

    def __init__(self, grains: int) -> None:
        self._last = Grains(grains)
        self._applied = False
        """Whether a last read is there."""
        self._log = ReadLog(grains)
        self._flights = Flights(grains)

    def forget(self) -> None:
        """All reads until now are known to everybody."""
        if self._applied:
            self._last.flat[:] = 0
            self._applied = False
        self._log.clear()

    def new_launch(self) -> None:
        """The numbers of warps mean others from now on, so that no reader is mistaken for the one of the same number."""
        self._last.flat[self._last.flat != 0] |= SEVERAL

    def record(self, touched: Touched, now: int, clocks: Clocks) -> None:
        self._log.add(touched, now, clocks)

    def launch(self, touched: Touched, tokens: Ints) -> None:
        self._flights.launch(touched, tokens)

    def land(self, touched: Touched, rows: NDArray[np.intp], now: int, clocks: Clocks) -> None:
        self._flights.land(touched, rows)
        self._log.add(touched.part(rows), now, clocks)

    def unknown(self, touched: Touched, known: Ints, clocks: Clocks) -> tuple[tuple[int, ...], Ints] | None:
        if (found := self._flights.meeting(touched)) is not None:
            return found
        for part, stamp in self._log.to_apply(touched, clocks):
            self._apply(part, stamp)
            self._applied = True
        if not self._applied:
            return None
        found_late = late_ones(self._last.fetch(touched), known)
        if found_late is None:
            return None
        at, last = found_late
        warps, several = touched.warps[at[0]], last & SEVERAL != 0
        unknown = ~several & ~clocks.knows(warps, warp_of(last), time_of(last), lane_of(last) == (at[1] & 31))
        if unknown.any():
            place = int(np.argmax(unknown))
            return tuple(int(axis[place]) for axis in at), last[place : place + 1]
        grains = touched.all_grains()[at]
        for warp in np.unique(warps[several]).tolist():
            wanted = grains[several & (warps == warp)]
            found_read = self._log.find(warp, wanted, clocks)
            if found_read is not None:
                place = int(np.flatnonzero((grains == found_read[0]) & (warps == warp))[0])
                return tuple(int(axis[place]) for axis in at), found_read[1]
        return None

    def _apply(self, touched: Touched, stamp: Ints) -> None:
        """Reads of one pattern, in the order of their times, are the last of their grains."""
        last = self._last.fetch(touched)
        mine = np.broadcast_to(stamp if last.ndim == 2 else stamp[:, :, None], last.shape)
        others = (last != 0) & ((last ^ mine) & _WARP != 0)
        mine = np.maximum(mine, last & ~SEVERAL) | np.where(others, SEVERAL, mine & SEVERAL)
        self._last.view(touched.grains)[touched.rows] = mine
        lost = (self._last.fetch(touched) ^ mine) & _WARP != 0
        if lost.any():  # two warps read one grain
            self._last.flat[touched.all_grains().reshape(lost.shape)[lost]] |= SEVERAL
        self._last.clear_padding()


class Line(NamedTuple):
    """What the log has of each warp's read, one column each."""

    warp: Ints
    time: Ints
    first: Ints
    """The lowest row of the shadow that it touches, seen as rows of an access's grains."""
    pattern: Ints
    low: Ints
    """Its first grain."""
    high: Ints
    """Behind its last."""
    applied: Ints
    """Whether the last reads of grains have it."""


class ReadLog:
    """Reads of global memory, a line for each warp's instruction. Most often warps read in one pattern, which is kept once."""

    def __init__(self, grains: int) -> None:
        self._grains = grains
        self.clear()

    def clear(self) -> None:
        """Nothing was read."""
        self.used = False
        """Whether something has been read."""
        self._low, self._high = self._grains, 0
        """All that was read is there."""
        self._new: list[tuple[Touched, int]] = []
        """Not among the lines yet, and when: many at a time are cheaper."""
        self._lines = np.empty((len(Line._fields), 0), np.int64)
        self._count = 0
        self._patterns: list[tuple[int, NDArray[np.intp]]] = []
        """Grains of a lane's access, and rows [lanes] relative to the first; -1 where a lane is inactive."""
        self._numbers: dict[tuple[int, bytes], int] = {}

    def __len__(self) -> int:
        return self._count + len(self._new)

    def add(self, touched: Touched, time: int, clocks: Clocks) -> None:
        """A read by `touched.warps`."""
        self.used = True
        self._new.append((touched, time))
        if len(self._new) == AT_ONCE:
            self._write_lines(clocks)

    def to_apply(self, touched: Touched, clocks: Clocks) -> Iterator[tuple[Touched, Ints]]:
        """Reads, with their stamps [n, lanes], where `touched` may be, that this did not say before; one pattern at a time."""
        if not self.used:
            return
        self._write_lines(clocks)
        low, high = int(touched.rows.min()) * touched.grains, (int(touched.rows.max()) + 1) * touched.grains
        if high > self._grains:  # inactive lanes
            high = (int(touched.rows[touched.rows < self._grains // touched.grains].max(initial=-1)) + 1) * touched.grains
        if low >= self._high or high <= self._low:
            return
        lines = self._view()
        chosen = np.flatnonzero((lines.high > low) & (lines.low < high) & (lines.applied == 0))
        lines.applied[chosen] = 1
        for some, part in self._by_pattern(chosen):
            lanes = np.arange(part.rows.shape[1]) & 31
            foreign = np.where(lines.time[some] <= clocks.start, SEVERAL, 0)  # a warp of an earlier launch
            yield part, ((lines.warp[some] << 5) + (lines.time[some] << TIME_BIT) + foreign)[:, None] + lanes

    def find(self, warp: int, wanted: NDArray[np.intp], clocks: Clocks) -> tuple[int, Ints] | None:
        """The first read that `warp` does not know of one of the wanted grains: the grain, and the read's stamp."""
        lines = self._view()
        near = np.flatnonzero((lines.high > wanted.min()) & (lines.low <= wanted.max()))
        # Its own reads are known whatever lane they were by: the log has no time at which the lanes came together.
        me, any_lane = np.full(len(near), warp), np.ones(len(near), bool)
        near = near[~clocks.knows(me, lines.warp[near], lines.time[near], any_lane)]
        found: tuple[int, int, int] | None = None
        for some, part in self._by_pattern(near):
            grains = part.all_grains()
            hit = np.isin(grains, wanted)
            if hit.any():
                row, lane, grain = np.argwhere(hit)[0].tolist()
                stamp = (int(lines.time[some[row]]) << TIME_BIT) + (int(lines.warp[some[row]]) << 5) + (lane & 31)
                here = int(some[row]), int(grains[row, lane, grain]), stamp
                found = here if found is None else min(found, here)
        return None if found is None else (found[1], np.array(found[2:]))

    def _view(self) -> Line:
        return Line(*self._lines[:, : self._count])

    def _by_pattern(self, chosen: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], Touched]]:
        """Lines of one pattern, and what they touched."""
        lines = self._view()
        for number in np.unique(lines.pattern[chosen]).tolist():
            some = chosen[lines.pattern[chosen] == number]
            grains, pattern = self._patterns[number]
            rows = np.where(pattern < 0, self._grains // grains, lines.first[some][:, None] + pattern)
            yield some, Touched(lines.warp[some], grains, rows)

    def _write_lines(self, clocks: Clocks) -> None:
        coming = sum(len(touched.warps) for touched, _ in self._new)
        if self._count + coming > self._lines.shape[1]:
            self._compact(clocks)
            kept = self._lines[:, : self._count]
            self._lines = np.empty((len(kept), 2 * self._count + coming + SHORTEST), np.int64)
            self._lines[:, : self._count] = kept
        alike: dict[tuple[int, int], list[tuple[Touched, int]]] = {}
        for each in self._new:
            alike.setdefault((each[0].grains, each[0].rows.shape[1]), []).append(each)
        self._new = []
        start = self._count
        for (grains, _), reads in alike.items():
            lines = self._lines_of(grains, reads)
            self._lines[:, self._count : self._count + lines.shape[1]] = lines
            self._count += lines.shape[1]
            self._low = min(self._low, int(lines[Line._fields.index("low")].min(initial=self._low)))
            self._high = max(self._high, int(lines[Line._fields.index("high")].max(initial=self._high)))
        if len(alike) > 1:
            new = self._lines[:, start : self._count]
            new[:] = new[:, np.argsort(new[Line._fields.index("time")], kind="stable")]

    def _lines_of(self, grains: int, reads: list[tuple[Touched, int]]) -> Ints:
        rows = np.concatenate([touched.rows for touched, _ in reads])
        first = rows.min(axis=1)
        pattern = rows - first[:, None]
        inactive = rows >= self._grains // grains
        everyone = not inactive.any()
        if not everyone:
            pattern[inactive] = -1
        counts = np.array([len(touched.warps) for touched, _ in reads])
        starts = np.cumsum(counts) - counts
        leader = np.repeat(starts, counts)
        numbers = np.repeat([self._number(grains, pattern[start]) for start in starts.tolist()], counts)
        other = pattern != pattern[leader]
        for row in np.flatnonzero(other.any(axis=1)).tolist() if other.any() else ():
            numbers[row] = self._number(grains, pattern[row])
        line = Line(
            warp=np.concatenate([touched.warps for touched, _ in reads]),
            time=np.repeat([time for _, time in reads], counts),
            first=first,
            pattern=numbers,
            low=first * grains,
            high=(first + pattern.max(axis=1) + 1) * grains,
            applied=np.zeros(len(rows), np.int64),
        )
        return np.stack(line) if everyone else np.stack(line)[:, ~inactive.all(axis=1)]

    def _number(self, grains: int, pattern: NDArray[np.intp]) -> int:
        key = grains, pattern.tobytes()
        number = self._numbers.setdefault(key, len(self._patterns))
        if number == len(self._patterns):
            self._patterns.append((grains, pattern.copy()))
        return number

    def _compact(self, clocks: Clocks) -> None:
        """Forget what everybody knows, and of a warp's equal reads all but the last. Raises TooMuch."""
        lines = self._view()
        new = lines.time > clocks.start  # numbers of warps are those of this launch
        order = np.lexsort((lines.time, lines.first, lines.pattern, lines.warp, new))
        reads = np.stack([lines.warp, lines.pattern, lines.first, new])[:, order]
        last = np.append((reads[:, 1:] != reads[:, :-1]).any(axis=0), np.ones(min(len(order), 1), bool))
        kept = np.sort(order[last])
        kept = kept[~clocks.all_know(lines.time[kept])]
        self._lines, self._count = self._lines[:, kept], len(kept)
        used, numbers = np.unique(self._view().pattern, return_inverse=True)
        self._view().pattern[:] = numbers.reshape(-1)
        self._patterns = [self._patterns[number] for number in used.tolist()]
        self._numbers = {(grains, pattern.tobytes()): number for number, (grains, pattern) in enumerate(self._patterns)}
        if LINE * self._count + PATTERN * len(self._patterns) > LARGEST:
            raise TooMuch(f"The checks of order would remember more than {LARGEST:,} bytes of what was read in global memory.")
