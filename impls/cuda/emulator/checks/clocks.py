"""Vector clocks of all warps: up to which moment does each warp know what each other warp did?

Time is the number of the checker's calls, one for all warps, so that an access is described by when it was and whose it
was. Warp v knows an access of warp u at time t if `known[v, u] >= t`. A dense matrix for all warps of a large launch is
too much: a row holds the warps of the own block; what is known of other blocks, which few warps learn, is kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Known: TypeAlias = Mapping[int, Ints]
"""What a warp knows, by block: one row each. Its rows are never written again, so that many may share them."""
Releases: TypeAlias = Mapping[tuple[int, int], Known]
"""What was released, by (releasing block, reach): a warp learns only what was released to its block.

A reach is how many blocks a scope spans: blocks a and b include each other if `a // reach == b // reach`.
"""
NOTHING: Releases = {}
_Shared = TypeVar("_Shared", Known, Releases)


@dataclass(frozen=True)
class Message:
    """What one warp tells another when they synchronise."""

    known: Known
    fences: Releases
    """What was known at the fence.sc's that are known."""
    seen: Releases
    """What was known at the fence.sc's before strong writes that were read, by a read that is known."""


class Clocks:
    """What each warp of one launch knows. In the words of the PTX memory model: what precedes it in base causality order.

    A row, `2 * (w + 1)` numbers for blocks of w warps:

        | 0 ... w-1              | w                | w+1 ... 2w+1                                     |
        | own block's warps      | earlier launches | the same, of what a proxy fence made visible      |

    A warp's column for itself is the last time its lanes were brought together: until then one lane does not know what
    another lane of its warp did.

    A block number of `blocks` or more is a node: an asynchronous engine, whose only "warp" is number 0. Warps hear of it
    as they do of a foreign block.
    """

    def __init__(self, blocks: int, warps_per_block: int, start: int, earlier: int) -> None:
        """`start`: the time of the launch; `earlier`: up to which time it knows what earlier launches did."""
        self.blocks, self.width = blocks, warps_per_block
        self.start = start
        self.rows = np.full((blocks * warps_per_block, 2 * (warps_per_block + 1)), start, np.int64)
        self.rows[:, [self.width, -1]] = earlier
        self.block_known = np.full(len(self.rows), start, np.int64)
        """Everything the own block did until then is known: the smallest entry of the row."""
        self.earlier_known = np.full(len(self.rows), earlier, np.int64)
        self._foreign: dict[int, Known] = {}
        self._fences: dict[int, Releases] = {}
        self._seen: dict[int, Releases] = {}
        self._nodes = 0
        self._told: dict[int, int] = {}

    def node(self) -> int:
        """A new node's block number."""
        self._nodes += 1
        return self.blocks + self._nodes - 1

    def event(self, now: int) -> Ints:
        """A node's row: it has done something at `now`."""
        row = np.full(self.rows.shape[1], self.start, np.int64)
        row[[0, self.width + 1]] = now
        row[[self.width, -1]] = 0
        return row

    def bring_together(self, warps: NDArray[np.intp], now: int) -> None:
        """Lanes of each of these warps know what the others did."""
        self.rows[warps, warps % self.width] = now
        self.block_known[warps] = self.rows[warps, : self.width].min(axis=1)

    def join(self, groups: NDArray[np.intp], now: int) -> None:
        """A barrier of each row of `groups` [groups, warps], the warps of a row being of one block."""
        local = groups % self.width
        joined = self.rows[groups].max(axis=1)
        joined[np.arange(len(groups))[:, None], local] = now
        self.rows[groups] = joined[:, None]
        self.block_known[groups] = joined[:, None, : self.width].min(axis=2)
        self.earlier_known[groups] = joined[:, None, self.width]
        for group in groups.tolist() if self._foreign or self._fences or self._seen else ():
            _share(self._foreign, group, merged)
            _share(self._fences, group, combined)
            _share(self._seen, group, combined)

    def message(self, warp: int, now: int) -> Message:
        """All that `warp` knows, and all that it did until `now`."""
        self._told[warp] = now
        row = self.rows[warp].copy()
        row[warp % self.width] = now
        known = {**self._foreign.get(warp, {}), warp // self.width: row}
        return Message(known, self._fences.get(warp, NOTHING), self._seen.get(warp, NOTHING))

    def told(self, warp: int) -> int:
        """No other warp knows anything that `warp` did after that time."""
        return max(self._told.get(warp, 0), int(self.rows[warp, warp % self.width]))

    def learn(self, warp: int, message: Message) -> None:
        """`warp` knows what the message tells."""
        self._learn(warp, message.known)
        if message.fences:
            self._fences[warp] = combined(self._fences.get(warp, NOTHING), message.fences)
        if message.seen:
            self.see(warp, message.seen)

    def _learn(self, warp: int, known: Known) -> None:
        block = warp // self.width
        row = self.rows[warp]
        foreign = dict(known)
        own = foreign.pop(block, None)
        if own is not None:
            np.maximum(row, own, out=row)
        if foreign:
            self._foreign[warp] = merged(self._foreign.get(warp, {}), foreign)
            for other in foreign.values():
                row[[self.width, -1]] = np.maximum(row[[self.width, -1]], other[[self.width, -1]])
        self.block_known[warp] = row[: self.width].min()
        self.earlier_known[warp] = row[self.width]

    def see(self, warp: int, fences: Releases) -> None:
        """`warp` has read a strong write of somebody who knew these fences."""
        self._seen[warp] = combined(self._seen.get(warp, NOTHING), fences)

    def fences(self, warp: int) -> Releases:
        """The fence.sc's that `warp` knows, its own among them."""
        return self._fences.get(warp, NOTHING)

    def fence_sc(self, warp: int, reach: int, now: int) -> None:
        """Those fences come first whose writes were seen, for the order of all fence.sc's cannot contradict that."""
        block = warp // self.width
        for (other, theirs), known in self._seen.get(warp, NOTHING).items():
            narrower = min(reach, theirs)
            if other // narrower == block // narrower:
                self._learn(warp, known)
                self._fences[warp] = combined(self.fences(warp), {(other, theirs): known})
        self._fences[warp] = combined(self.fences(warp), {(block, reach): self.message(warp, now).known})

    def wait_for_earlier(self, warps: NDArray[np.intp]) -> None:
        """Everything of earlier launches is known, and complete, so that it needs no proxy fence."""
        self.rows[warps, self.width] = self.rows[warps, -1] = self.start
        self.earlier_known[warps] = self.start

    def proxy_fence(self, warps: NDArray[np.intp], now: int) -> None:
        """What these warps know, or did themselves, is visible to the asynchronous proxy."""
        half = self.width + 1
        self.rows[warps, half:] = np.maximum(self.rows[warps, half:], self.rows[warps, :half])
        self.rows[warps, half + warps % self.width] = now
        for warp in warps.tolist():
            if known := self._foreign.get(warp):
                self._foreign[warp] = {
                    block: np.concatenate([row[:half], np.maximum(row[half:], row[:half])]) for block, row in known.items()
                }

    def knows(
        self, warps: NDArray[np.intp], others: NDArray[np.intp], times: Ints, same_lane: NDArray[np.bool_], fenced: bool = False
    ) -> NDArray[np.bool_]:
        """Whether warps[i] knows an access by warp others[i] at times[i]; all of one length.

        `same_lane`: by the same lane, if it is the same warp. `fenced`: known, and made visible to the asynchronous proxy.
        """
        column = self.width + 1 if fenced else 0
        others_block = others // self.width
        here = (warps // self.width == others_block) & (times > self.start)
        heard = self.rows[warps, column + others % self.width]
        known = times <= self.rows[warps, column + self.width]
        known |= here & (times <= heard)
        if not fenced:
            known |= here & (warps == others) & same_lane
        elsewhere = np.flatnonzero(~known & ~here & (times > self.start))
        if elsewhere.size and self._foreign:
            pairs, inverse = np.unique(np.stack([warps[elsewhere], others[elsewhere]]), axis=1, return_inverse=True)
            reach = [self._heard(int(warp), int(other), column) for warp, other in pairs.T]
            known[elsewhere] = times[elsewhere] <= np.array(reach)[inverse.reshape(-1)]
        return known

    def all_know(self, times: Ints) -> NDArray[np.bool_]:
        """Whether every warp knows the accesses of those times, whoever made them."""
        known = times <= self.earlier_known.min()
        if self.blocks == 1:
            known |= (times > self.start) & (times <= self.block_known.min())
        return known

    def _heard(self, warp: int, other: int, column: int) -> int:
        row = self._foreign.get(warp, {}).get(other // self.width)
        return -1 if row is None else int(row[column + other % self.width])


def _share(of_warps: dict[int, _Shared], group: Sequence[int], unite: Callable[[_Shared, _Shared], _Shared]) -> None:
    """All warps of the group have what any of them has."""
    distinct = {id(of_warps[warp]): of_warps[warp] for warp in group if warp in of_warps}
    if distinct:
        everything = reduce(unite, distinct.values())
        of_warps.update(dict.fromkeys(group, everything))


def merged(first: Known, second: Known) -> Known:
    """What either knows."""
    both = dict(first)
    for block, row in second.items():
        mine = both.get(block)
        if mine is None:
            both[block] = row
        elif mine is not row:
            both[block] = np.maximum(mine, row)
    return both


def combined(first: Releases, second: Releases) -> Releases:
    """What either releases."""
    both = dict(first)
    for place, known in second.items():
        mine = both.get(place)
        if mine is None:
            both[place] = known
        elif mine is not known:
            both[place] = merged(mine, known)
    return both
