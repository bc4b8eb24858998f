"""Asynchronous copies to shared memory, each delayed to the last moment that is legal: what nobody waits for has not come.

cp.async          of a thread: there when it has waited for the copy's group, or for all of them
cp.async.bulk     of nobody: counts its bytes at an mbarrier, when nothing else can go on
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from impls.cuda.emulator.machine.state import State

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Copy:
    """One cp.async instruction of some warps."""

    warps: Array
    to: Array
    """int64 [warps, 32] positions in shared memory."""
    source: Array
    """int64 [warps, 32] positions in global memory."""
    size: int
    read: Array
    """int64 [warps, 32]: bytes that are read; the rest are zeros."""
    active: Array
    tokens: Array
    """Of each warp's part, for the checks."""


@dataclass(frozen=True)
class BulkCopy:
    """One cp.async.bulk instruction of one thread."""

    block: int
    to: int
    """Position in the array of shared memory."""
    source: int
    """Position in global memory."""
    size: int
    barrier: int
    """Byte of its block's shared memory."""
    tokens: Array


Group = list[tuple[Copy, int]]
"""Copies, and which row of each."""


@dataclass
class Copies:
    """Those of the warps that reside."""

    state: State
    open: list[Group] = field(default_factory=list)
    """Of each warp, what no group holds yet."""
    groups: list[deque[Group]] = field(default_factory=list)
    """Of each warp, oldest first."""
    bulk: deque[BulkCopy] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.open = [[] for _ in range(self.state.warps)]
        self.groups = [deque() for _ in range(self.state.warps)]

    def issue(self, copy: Copy) -> None:
        """From now on the destination holds nothing that may be read."""
        self.state.shared.define(copy.to[copy.active], copy.size, defined=False)
        for row, warp in enumerate(copy.warps.tolist()):
            if copy.active[row].any():
                self.open[warp].append((copy, row))

    def commit(self, warps: Array) -> None:
        """What these warps issued since the last time is a group."""
        for warp in warps.tolist():
            self.groups[warp].append(self.open[warp])
            self.open[warp] = []

    def wait(self, warps: Array, left: int) -> None:
        """All groups of these warps are there but the newest `left`."""
        done: Group = []
        for warp in warps.tolist():
            groups = self.groups[warp]
            while len(groups) > left:
                done += groups.popleft()
        self._finish(done)

    def wait_all(self, warps: Array) -> None:
        """All copies of these warps are there."""
        self.commit(warps)
        self.wait(warps, 0)

    def finish_bulk(self) -> bool:
        """The oldest bulk copy comes. False if there is none."""
        if not self.bulk:
            return False
        copy = self.bulk.popleft()
        state = self.state
        state.shared.bytes[copy.to : copy.to + copy.size] = state.memory.arena[copy.source : copy.source + copy.size]
        state.shared.defined[copy.to : copy.to + copy.size] = True
        barrier = state.mbarriers[copy.block, copy.barrier]
        phase = barrier.phase
        state.watch.bulk_ends(copy.tokens, (copy.block, copy.barrier, phase))
        barrier.came(copy.size)
        state.phase_passed(copy.block, copy.barrier, phase)
        state.progress += 1
        return True

    def _finish(self, done: Group) -> None:
        rows: dict[Copy, list[int]] = {}
        for copy, row in done:
            rows.setdefault(copy, []).append(row)
        for copy, which in rows.items():
            self._arrive(copy, slice(None) if len(which) == len(copy.warps) else np.array(which))

    def _arrive(self, copy: Copy, rows: Array | slice) -> None:
        state, active = self.state, copy.active[rows]
        to, source, read = copy.to[rows][active], copy.source[rows][active], copy.read[rows][active]
        words = state.memory.view(copy.size).take(source // copy.size)
        if (read < copy.size).any():
            contents = words.view(np.uint8).reshape(-1, copy.size)
            contents[np.arange(copy.size) >= read[:, None]] = 0
            words = contents.view(words.dtype)[:, 0]
        state.shared.view(copy.size)[to // copy.size] = words
        state.shared.define(to, copy.size)
        state.watch.copy_ends(copy.tokens[rows])
