"""Asynchronous copies to shared memory, each delayed to the last moment that is legal: what nobody waits for has not come.

cp.async          of a thread: there when it has waited for the copy's group, or for all of them
cp.async.bulk     of nobody: counts its bytes at an mbarrier, when nothing else can go on
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.machine.fronts import LANES, Front

if TYPE_CHECKING:
    from impls.cuda.emulator.machine.state import State


OPEN, DONE = 1 << 62, -1
"""In place of a group's number: of a copy that no group holds yet, and of what is there or was never to come."""


@dataclass(eq=False)
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
    group: Array = field(init=False)
    """int64 [warps, 32]: the number of the group that holds it, of those of its thread."""
    checked: Array = field(init=False)
    """bool [warps]: the checks know that it is there."""

    def __post_init__(self) -> None:
        self.group = np.where(self.active, OPEN, DONE)
        self.checked = np.asarray(~self.active.any(axis=1))


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


@dataclass
class Copies:
    """Those of the warps that reside."""

    state: State
    under_way: list[Copy] = field(default_factory=list)
    groups: Array = field(init=False)
    """int64 [warps, 32]: how many groups each thread has made."""
    bulk: deque[BulkCopy] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.groups = np.zeros((self.state.warps, LANES), np.int64)

    def issue(self, copy: Copy) -> None:
        """From now on the destination holds nothing that may be read."""
        self.state.shared.define(copy.to[copy.active] // copy.size, copy.size, defined=False)
        self.under_way.append(copy)

    def commit(self, front: Front, mask: Array | None) -> None:
        """What these threads issued since the last time is a group."""
        active = self._all_lanes(front, mask)
        for copy in self.under_way:
            new = (copy.group == OPEN) & active[copy.warps]
            np.copyto(copy.group, self.groups[copy.warps], where=new)
        self.groups += active

    def wait(self, front: Front, mask: Array | None, left: int) -> None:
        """All groups of these threads are there but the newest `left`."""
        self._arrive(np.where(self._all_lanes(front, mask), self.groups - left, 0))

    def wait_all(self, front: Front, mask: Array | None) -> None:
        """All copies of these threads are there."""
        self._arrive(np.where(self._all_lanes(front, mask), OPEN + 1, 0))

    def _all_lanes(self, front: Front, mask: Array | None) -> Array:
        """The lanes of a front as bool [all warps that reside, 32]."""
        active = np.zeros(self.groups.shape, bool)
        active[front.rows] = True if mask is None else mask
        return active

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

    def _arrive(self, end: Array) -> None:
        """What is of a group of a smaller number than its thread's in `end` is there."""
        state = self.state
        for copy in self.under_way:
            due = (copy.group != DONE) & (copy.group < end[copy.warps])
            if not due.any():
                continue
            copy.group[due] = DONE
            to, source, read = copy.to[due], copy.source[due], copy.read[due]
            words = state.memory.view(copy.size).take(source // copy.size)
            if (read < copy.size).any():
                contents = words.view(np.uint8).reshape(-1, copy.size)
                contents[np.arange(copy.size) >= read[:, None]] = 0
                words = contents.view(words.dtype)[:, 0]
            at = to // copy.size
            state.shared.view(copy.size)[at] = words
            state.shared.define(at, copy.size)
            # the checks take a warp's lanes as one; of those that have not waited yet the bytes are not defined
            rows = due.any(axis=1) & ~copy.checked
            copy.checked |= rows
            if rows.any():
                state.watch.copy_ends(copy.tokens[rows])
        self.under_way = [copy for copy in self.under_way if (copy.group != DONE).any()]
