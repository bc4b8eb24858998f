"""Races in shared and global memory, by the happens-before order of the PTX memory model, between warps.

The machine tells what it does, one call for one instruction of many warps; the first race raises `RaceFound`. The warps
of a call are different ones, and each call is one moment.

What is not seen: lanes of one warp are taken as one thread towards other warps (what one lane releases, its warp
releases). Within a warp, a lane that reads or writes what another lane wrote needs `warp_sync` or a barrier between; a
lane that writes what another lane of its warp read is noticed only in shared memory, and only by the last reading lane.
A `bar.warp.sync` counts for all lanes whatever its mask. There are no clusters: each block is its own, so that cluster
scope is that of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from impls.cuda.emulator.checks.clocks import NOTHING, Clocks, Ints, Message, Releases, combined, merged
from impls.cuda.emulator.checks.grid_reads import GridReads
from impls.cuda.emulator.checks.reports import Access, Missing, Race, RaceFound, TooMuch
from impls.cuda.emulator.checks.shadow import (
    FLIGHT,
    SEVERAL,
    TIME_BIT,
    WHO,
    WIDEST,
    BlockReads,
    Grains,
    Region,
    Touched,
    in_flight,
    lane_of,
    late,
    moment,
    stamps,
    time_of,
    warp_of,
)
from impls.cuda.emulator.rules import Rule

RULES: dict[str, Rule] = {
    "release and acquire patterns": Rule("documented only", "PTX ISA 9.1, 8.8 and 8.9.4"),
    "order of fence.sc": Rule("documented only", "PTX ISA 9.1, 8.9.3 and 8.10.2"),
    "causality order": Rule("documented only", "PTX ISA 9.1, 8.9.5"),
    "morally strong": Rule("documented only", "PTX ISA 9.1, 8.7"),
    "asynchronous proxy": Rule("documented only", "PTX ISA 9.1, 9.7.13.4 fence.proxy.async"),
    "completion of asynchronous copies": Rule("documented only", "PTX ISA 9.1, 9.7.9.25"),
}

Scope = Literal["cta", "cluster", "gpu", "sys"]
Order = Literal["relaxed", "acquire", "release", "acq_rel"]
Warps: TypeAlias = NDArray[np.intp]

Repeats: TypeAlias = Callable[[], NDArray[np.bool_]]
"""[n, lanes]: whether the lane finds in memory what it is to write, if the warps write one after another."""

_EVERYWHERE = 1 << 30
"""Reach of the scopes that leave no block out, whatever launch it is of."""
_ACQUIRES = ("acquire", "acq_rel")
_RELEASES = ("release", "acq_rel")


@dataclass(frozen=True)
class _Call:
    """What one moment was."""

    does: str
    where: int
    reach: int | None = None
    """Blocks that a strong access's scope spans; None if it is weak."""
    writes: bool = True
    issuer: int | None = None
    """The warp that started the copy, if it belongs to an asynchronous engine."""


_SYNCHRONISES = _Call("synchronises", 0)


@dataclass
class _Flight:
    """The copies of one instruction, one by each warp."""

    where: int
    first: int
    """The token of the first warp's; the others' follow."""
    into: tuple[_Space, Touched]
    out_of: tuple[_Space, Touched]
    reading: NDArray[np.bool_]
    """Of which warps' copies the source may still be read."""


_Strong: TypeAlias = dict[tuple[int, bool, int, int], list[int]]
"""Stamps by (warp, whether it writes, reach, release sequence): the last, and earlier ones that others may know alone."""


class _Space:
    """One memory's shadow."""

    def __init__(self, name: str, grain: int, stride: int, shared: bool, reads: BlockReads | GridReads, grains: int) -> None:
        self.name, self.grain, self.shared, self.reads = name, grain, shared, reads
        self.stride = stride
        """Grains of a block's part; 0 in global memory, which has one part."""
        self.padding = grains
        self.writes = Grains(grains)
        self.latest = np.zeros(max(grains // stride, 1) if stride else 1, np.int64)
        """Of each part, when it was written last, but for copies under way."""
        self.flying = 0
        """Warps' copies into it that are under way."""
        self.updated: Grains | None = None
        """Nonzero where a grain has strong accesses; made when the first is."""
        self.strong: dict[int, _Strong] = {}
        """Strong accesses by grain: they are few, and many warps share one."""
        self.sequences: dict[int, int] = {}
        """By grain the release sequence that its value is of: the time of the store that began it."""


_Messages: TypeAlias = dict[tuple[int, int], Message]
"""What was released to a place, by (releasing block, reach)."""


@dataclass
class _Value:
    """What the value of a location brings to who reads it."""

    released: _Messages = field(default_factory=dict)
    fences: Releases = field(default_factory=dict)
    """The fence.sc's that the writers knew."""


class HappensBefore:
    """Knows of each access whether it is ordered after all earlier ones that it conflicts with."""

    def __init__(self, blocks: int, warps_per_block: int, grain: Mapping[Literal["shared", "global"], int]) -> None:
        """`grain`: bytes that are told apart, a divisor of every access's size: 4, or less if the kernel has narrower ones."""
        self._grain = grain
        self._spaces: dict[str, _Space] = {}
        self._shared: dict[str, int] = {}
        """Bytes that each block has of the spaces which end with it."""
        self._calls = [_SYNCHRONISES]
        """What each moment from `_first_call` on was."""
        self._first_call = 0
        self._distinct: dict[_Call, _Call] = {}
        self._weak: dict[tuple[int, bool], _Call] = {}
        """Weak accesses, the most frequent calls, by instruction and whether they write."""
        self._launches: list[tuple[int, int]] = []
        self._begin(blocks, warps_per_block, earlier=0)

    # Spaces and launches

    def add_shared(self, name: str, size: int) -> None:
        """A space of which every block has its own `size` bytes, from when it resides; it ends with the launch."""
        self._shared[name] = size

    def reside(self, first: int, blocks: int) -> None:
        """These blocks execute next. Those before have ended, and with them their shared memory and their copies."""
        self._end_copies()
        self._first_block = first
        for place in [place for place in self._values if place[0] in self._shared]:
            del self._values[place]
        for name, size in self._shared.items():
            stride = -(-size // self._grain["shared"] // WIDEST) * WIDEST
            reads = BlockReads(blocks, stride, self._clocks.width)
            self._spaces[name] = _Space(name, self._grain["shared"], stride, True, reads, blocks * stride)

    def add_global(self, name: str, size: int) -> None:
        """A space that all blocks and later launches share."""
        grains = -(-size // self._grain["global"] // WIDEST) * WIDEST
        self._spaces[name] = _Space(name, self._grain["global"], 0, False, GridReads(grains), grains)

    def launch_boundary(self, blocks: int, warps_per_block: int, overlaps: bool = False) -> None:
        """The next launch begins, and all copies of this one have ended.

        If it `overlaps` its predecessor, its warps know what that one did only after their `griddepcontrol_wait`.
        """
        self._end_copies()
        self._moment(_SYNCHRONISES)
        self._spaces = {name: space for name, space in self._spaces.items() if not space.shared}
        self._shared = {}
        for space in self._spaces.values():
            assert isinstance(space.reads, GridReads)
            if overlaps:
                space.reads.new_launch()
            else:
                space.reads.forget()
        earlier = self._launches[-1][0] if overlaps else self._now
        if not overlaps:  # everybody knows all there was, so that nobody asks what it was
            self._first_call, self._calls, self._distinct = self._now, [_SYNCHRONISES], {}
            self._weak = {}
            self._launches.clear()
        self._begin(blocks, warps_per_block, earlier)

    def _end_copies(self) -> None:
        self.async_complete(np.array(list(self._flights), np.int64))

    def _begin(self, blocks: int, width: int, earlier: int) -> None:
        self._launches.append((self._now, width))
        self._first_block = 0
        self._clocks = Clocks(blocks, width, self._now, earlier)
        self._reach: dict[Scope, int] = {"cta": 1, "cluster": 1, "gpu": _EVERYWHERE, "sys": _EVERYWHERE}
        self._fences: dict[int, dict[int, Message]] = {}
        """What each warp's strong writes release since its fences, by the fence's reach."""
        self._releasing: dict[int, dict[Hashable, _Messages]] = {}
        """What they release since a release at the same location."""
        self._observed: dict[int, dict[Hashable, _Messages]] = {}
        """What each warp's relaxed reads of a location saw released: a fence, or an acquire there, acquires it."""
        self._values: dict[tuple[str, int], _Value] = {}
        self._arriving: dict[Hashable, _Messages] = {}
        self._completed: dict[Hashable, _Messages] = {}
        self._nodes: dict[Hashable, int] = {}
        self._flights: dict[int, _Flight] = {}
        """By token."""
        self._tokens = 0
        if earlier == self._now:
            for space in self._spaces.values():
                space.updated, space.strong, space.sequences = None, {}, {}

    def griddepcontrol_wait(self, warps: Warps) -> None:
        """The launches that this one overlaps have ended, and these warps see what they did."""
        self._clocks.wait_for_earlier(warps)

    @property
    def _now(self) -> int:
        return self._first_call + len(self._calls) - 1

    def _call(self, time: int) -> _Call:
        return self._calls[time - self._first_call]

    def _moment(self, call: _Call) -> int:
        return self._append(self._distinct.setdefault(call, call))

    def _weak_access(self, where: int, writes: bool) -> tuple[_Call, int]:
        call = self._weak.get((where, writes))
        if call is None:
            call = self._weak[where, writes] = _Call("writes" if writes else "reads", where, writes=writes)
        return call, self._append(call)

    def _append(self, call: _Call) -> int:
        self._calls.append(call)
        now = self._now
        if now >= FLIGHT:
            raise TooMuch(f"The checks of order can tell {FLIGHT:,} moments apart, and there are more.")
        return now

    # Accesses

    def read(
        self,
        warps: Warps,
        region: Region,
        where: int,
        scope: Scope | None = None,
        order: Order = "relaxed",
    ) -> None:
        """Warps [n] read a region, which has a row for each. A `scope` makes it a strong read."""
        memory, touched = self._touch(warps, region)
        if scope:
            self._strong(memory, touched, _Call("reads", where, self._reach[scope], writes=False), order, observes=True)
            return
        call, now = self._weak_access(where, writes=False)
        self._after_writes(memory, touched, call)
        self._after_strong(memory, touched, call)
        memory.reads.record(touched, now, self._clocks)

    def write(
        self,
        warps: Warps,
        region: Region,
        where: int,
        scope: Scope | None = None,
        order: Order = "relaxed",
        repeats: Repeats | None = None,
    ) -> None:
        """As `read`. `repeats` is asked when nothing orders two writes by one instruction, which is no fault if they write the
        same: compilers let several warps store what they all hold."""
        memory, touched = self._touch(warps, region)
        if scope:
            self._strong(memory, touched, _Call("writes", where, self._reach[scope]), order, begins=True)
            return
        call, now = self._weak_access(where, writes=True)
        self._after_writes(memory, touched, call, repeats=repeats)
        self._after_reads(memory, touched, call)
        self._after_strong(memory, touched, call)
        stamp = stamps(warps, now, touched.rows.shape[1])
        if region.apart:
            self._written(memory, touched, stamp, now)
        else:
            self._store(memory, touched, stamp, call, repeats)

    def atomic(
        self,
        warps: Warps,
        region: Region,
        where: int,
        scope: Scope = "gpu",
        order: Order = "relaxed",
        returns: bool = True,
    ) -> None:
        """As `read`; a read and a write in one, strong, and so in no race with others that are.

        The warps' updates happen in the order of the rows. `returns`: the value that was there (atom, not red).
        """
        memory, touched = self._touch(warps, region)
        self._strong(memory, touched, _Call("updates atomically", where, self._reach[scope]), order, observes=returns)

    def _touch(self, warps: Warps, region: Region) -> tuple[_Space, Touched]:
        space = self._spaces[region.space]
        grains, rest = divmod(region.size, space.grain)
        if rest or region.size & (region.size - 1):
            raise ValueError(
                f"An access of {region.size} bytes is no power of two of {space.name}'s {space.grain}-byte grains."
            )
        if region.rows is None:
            rows = region.offsets.astype(np.intp, copy=False) >> (region.size.bit_length() - 1)
            if space.stride:
                rows += (self._slots(warps) * (space.stride // grains))[:, None]
            region.rows = rows if region.active is None else np.where(region.active, rows, space.padding // grains)
        return space, Touched(warps, grains, region.rows)

    def _slots(self, warps: Warps) -> Warps:
        """Whose part of shared memory is theirs."""
        return warps // self._clocks.width - self._first_block

    def _parts(self, space: _Space, warps: Warps) -> Warps | int:
        return self._slots(warps) if space.shared else 0

    def _written(self, space: _Space, touched: Touched, stamp: Ints, now: int) -> None:
        space.writes.store(touched, stamp)
        space.latest[self._parts(space, touched.warps)] = now

    def _known(self, space: _Space, warps: Warps) -> Ints:
        """Time [n] until which warps know all that anybody did in the space."""
        return (self._clocks.block_known if space.shared else self._clocks.earlier_known)[warps]

    def _after_writes(
        self, space: _Space, touched: Touched, call: _Call, proxy: bool = False, repeats: Repeats | None = None
    ) -> None:
        """All warps know the writes of what they touch; `proxy`: and so does the asynchronous proxy."""
        known = self._clocks.earlier_known[touched.warps] if proxy else self._known(space, touched.warps)
        if not space.flying and (space.latest[self._parts(space, touched.warps)] <= known).all():
            return
        stamp = space.writes.fetch(touched)
        newest = int(stamp.max())
        if newest < moment(int(known.min())):
            return
        begun, flying = moment(self._clocks.start), FLIGHT << TIME_BIT
        if not proxy:  # what the same lane wrote in this launch it knows
            mine = stamps(touched.warps, 0, touched.rows.shape[1])
            mine = mine if stamp.ndim == 2 else mine[:, :, None]
            foreign = (stamp ^ mine) & WHO
            if newest < flying and int(stamp.min()) >= begun and not foreign.any():
                return
        mask = late(stamp, known)
        if mask is None:
            return
        if not proxy:
            mask &= ((foreign != 0) | (stamp < begun) | (stamp >= flying)).reshape(mask.shape)
            if not mask.any():
                return
        at = np.nonzero(mask)
        stamp = stamp.reshape(mask.shape)[at]
        warps, others, times = touched.warps[at[0]], warp_of(stamp), time_of(stamp)
        same_lane = lane_of(stamp) == (at[1] & 31)
        unknown = ~self._clocks.knows(warps, others, times, same_lane) | (times == FLIGHT)
        missing: Missing = "order"
        if proxy and not unknown.any():
            generic = others < self._clocks.blocks * self._clocks.width
            unknown = generic & ~self._clocks.knows(warps, others, times, same_lane, fenced=True)
            missing = "proxy fence"
        if repeats is not None and unknown.any():
            again = np.array([time != FLIGHT and self._call(time).where == call.where for time in times.tolist()])
            if again.any():
                unknown &= ~(again & repeats()[at[:2]])
        if unknown.any():
            place = int(np.argmax(unknown))
            self._fail(space, touched, tuple(int(axis[place]) for axis in at), int(stamp[place]), call, missing)

    def _store(self, space: _Space, touched: Touched, stamp: Ints, call: _Call, repeats: Repeats | None = None) -> None:
        """A weak write, or the begin of a copy, by all warps; two of them may not write one grain."""
        self._written(space, touched, stamp, self._now)
        if len(touched.warps) == 1:
            return
        stored = space.writes.fetch_first(touched)  # who meets in one grain meets in all, for they are aligned
        if (stored == stamp).all():
            return
        overwritten = (warp_of(stored ^ stamp) != 0) & self._active(space, touched)
        if not overwritten.any():
            return
        grains = touched.all_grains()
        _, first, of = np.unique(grains, return_index=True, return_inverse=True)
        earlier = first[of].reshape(grains.shape)
        again = earlier // grains[0].size < np.arange(len(grains))[:, None, None]
        again &= self._active(space, touched)[:, :, None]
        if repeats is not None:
            again &= ~repeats()[:, :, None]
        if again.any():
            at = tuple(int(i) for i in np.argwhere(again)[0])
            row, rest = divmod(int(earlier[at]), grains[0].size)
            self._fail(
                space, touched, at, int(np.broadcast_to(stamp, grains.shape[:2])[row, rest // grains.shape[2]]), call, "order"
            )

    def _after_reads(self, space: _Space, touched: Touched, call: _Call) -> None:
        found = space.reads.unknown(touched, self._known(space, touched.warps), self._clocks)
        if found is not None:
            at, readers = found
            self._fail(space, touched, at, int(readers[0]), call, "order", read=True)

    def _fail(
        self,
        space: _Space,
        touched: Touched,
        at: tuple[int, ...],
        first: int,
        call: _Call,
        missing: Missing,
        read: bool = False,
    ) -> NoReturn:
        grain = touched.grain(at)
        warp = int(touched.warps[at[0]])
        offset = grain - int(self._slots(touched.warps)[at[0]]) * space.stride
        second = self._access(call, warp, at[1] & 31, self._now)
        if first >> TIME_BIT == FLIGHT:
            missing = "completion"
        raise RaceFound(
            Race(missing, space.name, offset * space.grain, space.grain, self._describe(first, grain, read), second)
        )

    def _describe(self, stamp: int, grain: int, read: bool) -> Access:
        time, warp, lane = stamp >> TIME_BIT, (stamp & (SEVERAL - 1)) >> 5, stamp & 31
        if time == FLIGHT:
            flight = self._flights[warp]
            row = warp - flight.first
            touched = (flight.out_of if read else flight.into)[1]
            lane = int(np.argwhere(touched.all_grains()[row] == grain)[0, 0]) & 31
            return self._access(_Call("copies asynchronously", flight.where), int(touched.warps[row]), lane, self._now)
        return self._access(self._call(time), warp, lane, time)

    def _access(self, call: _Call, warp: int, lane: int | None, time: int) -> Access:
        width = next(width for start, width in reversed(self._launches) if start <= time)
        warp = warp if call.issuer is None else call.issuer
        return Access(call.does, warp // width, warp % width, lane, call.where)

    # Strong accesses, and what synchronises through them

    def _after_strong(self, space: _Space, touched: Touched, call: _Call) -> None:
        if space.updated is None:
            return
        marked = space.updated.fetch(touched).reshape(*touched.rows.shape, -1) != 0
        if not marked.any():
            return
        for at in map(tuple, np.argwhere(marked).tolist()):
            grain, warp = touched.grain(at), int(touched.warps[at[0]])
            strong = space.strong.get(grain, {})
            for (other, writes, theirs, sequence), all_stamps in strong.items():
                stamp = all_stamps[-1]
                if not (writes or call.writes):
                    continue
                mutual = None if call.reach is None else min(call.reach, theirs)
                same_launch = stamp >> TIME_BIT > self._clocks.start
                if mutual == _EVERYWHERE or (mutual is not None and same_launch and self._within(other, warp, mutual)):
                    continue
                if self._knows(warp, stamp) or (writes and self._knows_observer(warp, strong, sequence, stamp)):
                    continue
                self._fail(space, touched, at, stamp, call, "order" if mutual is None else "scope")
            if call.writes and call.reach is None:  # ordered after all of them: who knows this write knows them
                space.strong.pop(grain, None)
                space.sequences.pop(grain, None)
                space.updated.flat[grain] = 0
                self._values.pop((space.name, grain), None)

    def _knows(self, warp: int, stamp: int) -> bool:
        """`warp` knows the access."""
        stamp_ = np.array([stamp])
        return bool(self._clocks.knows(np.array([warp]), warp_of(stamp_), time_of(stamp_), np.ones(1, bool))[0])

    def _knows_observer(self, warp: int, strong: _Strong, sequence: int, stamp: int) -> bool:
        """`warp` knows a strong access that has read what this one wrote: causality order holds, without any release."""
        return any(
            self._knows(warp, later)
            for (*_, theirs), all_stamps in strong.items()
            if theirs == sequence
            for later in all_stamps
            if later >> TIME_BIT > stamp >> TIME_BIT
        )

    def _within(self, warp: int, other: int, reach: int) -> bool:
        width = self._clocks.width
        return warp // width // reach == other // width // reach

    def _active(self, space: _Space, touched: Touched) -> NDArray[np.bool_]:
        return touched.rows < space.padding // touched.grains

    def _strong(
        self, space: _Space, touched: Touched, call: _Call, order: Order, observes: bool = False, begins: bool = False
    ) -> None:
        """Strong accesses, one warp after another: an atomic sees what that of an earlier row released.

        `observes`: it can be part of an acquire pattern. `begins`: it overwrites, so that what was released before is gone.
        """
        if space.updated is None:
            space.updated = Grains(space.padding)
        for row in np.flatnonzero(self._active(space, touched).any(axis=1)).tolist():
            one = touched.part(np.array([row]))
            warp, places = int(one.warps[0]), self._places(space, one)
            self._moment(call)
            if observes:
                self._observe(warp, places, call, order in _ACQUIRES)
            self._after_writes(space, one, call)
            if call.writes:
                self._after_reads(space, one, call)
            self._after_strong(space, one, call)
            self._record_strong(space, one, call, begins)
            if call.writes:
                self._publish(warp, places, call, order in _RELEASES, begins)

    def _record_strong(self, space: _Space, touched: Touched, call: _Call, begins: bool) -> None:
        assert space.updated is not None and call.reach is not None
        space.updated.store(touched, np.ones(touched.rows.shape, np.int64))
        stamp = stamps(touched.warps, self._now, touched.rows.shape[1])[0]
        warp, told = int(touched.warps[0]), self._clocks.told(int(touched.warps[0]))
        active = self._active(space, touched)[0]
        for grains, mine in zip(touched.all_grains()[0, active].tolist(), stamp[active].tolist(), strict=True):
            for grain in grains:
                if begins:
                    space.sequences[grain] = self._now
                key = warp, call.writes, call.reach, space.sequences.get(grain, 0)
                all_stamps = space.strong.setdefault(grain, {}).setdefault(key, [])
                if all_stamps and all_stamps[-1] >> TIME_BIT > told:  # nobody can know the one without the other
                    all_stamps.pop()
                all_stamps.append(mine)

    def _places(self, space: _Space, touched: Touched) -> list[tuple[str, int]]:
        """The locations that one warp accesses, each by its first grain: what warps synchronise through."""
        rows = touched.rows[0, self._active(space, touched)[0]]
        return [(space.name, row * touched.grains) for row in dict.fromkeys(rows.tolist())]

    def _observe(self, warp: int, places: Sequence[tuple[str, int]], call: _Call, acquires: bool) -> None:
        assert call.reach is not None
        for place in places:
            if (value := self._values.get(place)) is not None:
                for (block, released), message in value.released.items():
                    seen = self._observed.setdefault(warp, {}).setdefault(place, {})
                    _add(seen, block, min(call.reach, released), message)
                if value.fences:
                    self._clocks.see(warp, value.fences)
            if acquires and warp in self._observed:
                self._acquire(warp, self._observed[warp].get(place, {}), call.reach)

    def _acquire(self, warp: int, releases: _Messages, reach: int) -> None:
        """`warp` learns what was released to it."""
        for (block, released), message in releases.items():
            if self._within(block * self._clocks.width, warp, min(reach, released)):
                self._clocks.learn(warp, message)

    def _publish(self, warp: int, places: Sequence[tuple[str, int]], call: _Call, releases: bool, begins: bool) -> None:
        assert call.reach is not None
        block = warp // self._clocks.width
        messages: _Messages = {}
        for fenced, message in self._fences.get(warp, {}).items():
            _add(messages, block, min(call.reach, fenced), message)
        if releases:
            released = self._clocks.message(warp, self._now)
            for place in places:
                _add(self._releasing.setdefault(warp, {}).setdefault(place, {}), block, call.reach, released)
        earlier = self._releasing.get(warp, {})
        fences = self._clocks.fences(warp)
        for place in places:
            if begins:
                self._values.pop(place, None)
            if not (messages or fences or place in earlier):
                continue
            value = self._values.setdefault(place, _Value())
            for (_, reach), message in [*messages.items(), *earlier.get(place, {}).items()]:
                _add(value.released, block, min(reach, call.reach), message)
            value.fences = combined(value.fences, fences)

    def fence(self, warps: Warps, scope: Scope, sc: bool = False) -> None:
        """fence.acq_rel or, with `sc`, fence.sc, which membar is: later strong writes release, earlier strong reads acquire.

        All fence.sc's that include each other have one order: that of what was read behind them and before them.
        """
        now, reach = self._moment(_SYNCHRONISES), self._reach[scope]
        for warp in warps.tolist():
            for releases in self._observed.get(warp, {}).values():
                self._acquire(warp, releases, reach)
            if sc:
                self._clocks.fence_sc(warp, reach, now)
            self._fences.setdefault(warp, {})[reach] = self._clocks.message(warp, now)

    # Barriers

    def barrier(self, groups: Warps) -> None:
        """bar.sync of each row of `groups` [groups, warps]; the warps of a row are of one block.

        A barrier at which some only arrive (bar.arrive), and one of a cluster, are a `release` by each that arrives, then
        `complete_phase`, then `acquire` by each that waits.
        """
        self._clocks.join(groups, self._moment(_SYNCHRONISES))

    def warp_sync(self, warps: Warps) -> None:
        """bar.warp.sync in each of these warps."""
        self._clocks.bring_together(warps, self._moment(_SYNCHRONISES))

    def release(self, warps: Warps, keys: Sequence[Hashable], scope: Scope = "cta") -> None:
        """Each warp arrives at its barrier (mbarrier.arrive), a key that tells apart barriers of all blocks."""
        now, reach = self._moment(_SYNCHRONISES), self._reach[scope]
        for warp, key in zip(warps.tolist(), keys, strict=True):
            block = warp // self._clocks.width
            _add(self._arriving.setdefault(key, {}), block, reach, self._clocks.message(warp, now))

    def complete_phase(self, key: Hashable) -> None:
        """The barrier's current phase is complete: what was released to it can be acquired."""
        for (block, reach), message in self._arriving.pop(key, {}).items():
            _add(self._completed.setdefault(key, {}), block, reach, message)

    def acquire(self, warps: Warps, keys: Sequence[Hashable], scope: Scope = "cta") -> None:
        """Each warp has found its barrier's phase complete."""
        for warp, key in zip(warps.tolist(), keys, strict=True):
            self._acquire(warp, self._completed.get(key, {}), self._reach[scope])

    def proxy_fence(self, warps: Warps) -> None:
        """fence.proxy.async: what these warps did or know is visible to the asynchronous proxy."""
        self._clocks.proxy_fence(warps, self._moment(_SYNCHRONISES))

    # Asynchronous copies

    def async_issue(self, warps: Warps, into: Region, out_of: Region, where: int, bulk: bool = False) -> Ints:
        """A copy begins (cp.async; `bulk`: by the asynchronous proxy): it may read and write at any time until its end.

        Returns tokens [n] to complete it with, one for each warp. Both regions have one row for each.
        """
        call = _Call("copies asynchronously", where)
        self._moment(call)
        source = self._touch(warps, out_of)
        target = self._touch(warps, into)
        self._after_writes(*source, call, proxy=bulk)
        self._after_strong(*source, _Call(call.does, where, writes=False))
        self._after_writes(*target, call, proxy=bulk)
        self._after_reads(*target, call)
        self._after_strong(*target, call)
        tokens = self._tokens + np.arange(len(warps))
        flight = _Flight(where, self._tokens, target, source, np.ones(len(warps), bool))
        self._tokens += len(warps)
        self._flights.update(dict.fromkeys(tokens.tolist(), flight))
        self._store(*target, in_flight(tokens), call)
        target[0].flying += len(warps)
        source[0].reads.launch(source[1], tokens)
        return tokens

    def async_complete(self, tokens: Ints, key: Hashable | None = None) -> None:
        """These copies have ended.

        Without a `key`, because their warps waited for them (cp.async.wait_group): they count as theirs, now. With one, they
        have been counted on that barrier (complete_tx, cp.async.mbarrier.arrive): who acquires the phase knows them, and
        nobody else. `complete_phase` comes after.
        """
        self.async_read_complete(tokens)
        for flight, rows in self._by_instruction(tokens):
            space, target = flight.into
            space.flying -= len(rows)
            landed = target.part(rows)
            if key is None:
                now = self._moment(_Call("copies asynchronously", flight.where))
                self._written(space, landed, stamps(landed.warps, now, landed.rows.shape[1]), now)
            else:
                for row in rows:
                    self._count(flight, target.part(row[None]), key)
        for token in tokens.tolist():
            del self._flights[token]

    def _count(self, flight: _Flight, landed: Touched, key: Hashable) -> None:
        """One warp's copy is counted on a barrier: it is the act of an engine of which those hear who acquire the phase."""
        issuer = int(landed.warps[0])
        now = self._moment(_Call("copies asynchronously", flight.where, issuer=issuer))
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = self._clocks.node()
        message = Message({node: self._clocks.event(now)}, NOTHING, NOTHING)
        _add(self._arriving.setdefault(key, {}), issuer // self._clocks.width, _EVERYWHERE, message)
        owner = np.array([node * self._clocks.width])
        self._written(flight.into[0], landed, stamps(owner, now, landed.rows.shape[1]), now)

    def async_read_complete(self, tokens: Ints) -> None:
        """These copies have read their source (cp.async.bulk.wait_group.read), which their warps may write again."""
        for flight, rows in self._by_instruction(tokens):
            reading = rows[flight.reading[rows]]
            if reading.size:
                flight.reading[reading] = False
                now = self._moment(_Call("reads for an asynchronous copy", flight.where, writes=False))
                flight.out_of[0].reads.land(flight.out_of[1], reading, now, self._clocks)

    def _by_instruction(self, tokens: Ints) -> list[tuple[_Flight, Warps]]:
        """[(instruction, its rows that these tokens name)]."""
        found = []
        while tokens.size:
            flight = self._flights[int(tokens[0])]
            rows = tokens - flight.first
            there = (rows >= 0) & (rows < len(flight.reading))
            found.append((flight, rows[there]))
            tokens = tokens[~there]
        return found


def _add(releases: _Messages, block: int, reach: int, message: Message) -> None:
    before = releases.get((block, reach))
    if before is not None and before is not message:
        message = Message(
            merged(before.known, message.known), combined(before.fences, message.fences), combined(before.seen, message.seen)
        )
    releases[block, reach] = message
