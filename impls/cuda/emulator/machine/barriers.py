"""The sixteen barriers of a block, and the mbarrier objects in its shared memory.

PTX ISA 9.1, 9.7.13.1 (bar, barrier) and 9.7.13.15 (mbarrier).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.machine.fronts import LANES

if TYPE_CHECKING:
    from impls.cuda.emulator.machine.binding import Destination


BARRIERS = 16
NOWHERE = -1


class Meeting(EmulationError):
    """Warps do not agree on what they wait for."""


@dataclass(frozen=True)
class Reduction:
    """What a bar.red wants to know."""

    destination: Destination
    operator: str
    """popc, and, or."""


class Barriers:
    """Who waits where. All counts are in warps."""

    def __init__(self, blocks: int, warps: int) -> None:
        self._everyone = warps // blocks
        self.arrived = np.zeros((BARRIERS, blocks), np.int64)
        self.expected = np.zeros((BARRIERS, blocks), np.int64)
        """0 is every warp that is alive."""
        self.members = np.zeros((BARRIERS, warps), bool)
        """Who arrived, waiting or not."""
        self.phase = np.zeros((BARRIERS, blocks), np.int64)
        """How often it has been complete."""
        self.resume = np.full((BARRIERS, warps), NOWHERE)
        """Where those go on that wait."""
        self.predicate = np.zeros((BARRIERS, warps, 32), bool)
        """What bar.red was given."""
        self.reduction = np.full((BARRIERS, warps), None, object)
        """The `Reduction` of those that wait at a bar.red."""

    def arrive(
        self, number: int, blocks: Array, warps: Array, expected: int, resume: int | None, reduction: Reduction | None = None
    ) -> None:
        """`warps` of `blocks`, one each, arrive at barrier `number`, and wait to go on at `resume`; None: go on at once."""
        if self.members[number, warps].any():
            raise Meeting(f"a warp arrives at barrier {number} again, before the others have")
        begun = blocks[self.arrived[number, blocks] > 0]
        if begun.size:
            counts = np.where(self.expected[number, begun] > 0, self.expected[number, begun], self._everyone)
            others = counts[counts != (expected or self._everyone)]
            if others.size:
                wanted, theirs = (count * LANES for count in (expected or self._everyone, int(others[0])))
                raise Meeting(f"barrier {number} of {wanted} threads, which others that have arrived take for one of {theirs}")
        np.add.at(self.arrived[number], blocks, 1)
        self.expected[number, blocks] = expected
        self.members[number, warps] = True
        if resume is not None:
            self.resume[number, warps] = resume
            self.reduction[number, warps] = reduction

    def complete(self, number: int, alive: Array, block_of: Array) -> Array:
        """The warps that met, ascending: those that arrived, of the blocks where all that were expected are there; the barrier
        is ready for the next time. `alive`: warps of each block that have not ended."""
        arrived = self.arrived[number]
        expected = np.where(self.expected[number] > 0, self.expected[number], alive)
        full = (arrived > 0) & (arrived >= expected)
        met = self.members[number] & full[block_of]
        arrived[full] = 0
        self.phase[number] += full
        self.members[number] ^= met
        return np.flatnonzero(met)

    def room(self, number: int, blocks: Array, expected: int) -> Array:
        """bool [warps]: which of those of `blocks`, one each and ascending, still belong to this phase of barrier `number`."""
        if not expected:
            return np.ones(blocks.size, bool)
        earlier = np.arange(blocks.size) - np.searchsorted(blocks, blocks)
        return np.asarray(self.arrived[number, blocks] + earlier < expected)

    def waiting(self) -> list[tuple[int, Array]]:
        """[(barrier, warps that wait there)]."""
        found = ((number, np.flatnonzero(self.resume[number] != NOWHERE)) for number in range(BARRIERS))
        return [(number, warps) for number, warps in found if warps.size]


@dataclass
class Mbarrier:
    """One object. A phase is over when nobody is pending and all bytes that were announced have come."""

    expected: int
    pending: int = field(init=False)
    bytes: int = 0
    """Announced less what has come: may be below zero for a time."""
    phase: int = 0
    """Phases that are over."""

    def __post_init__(self) -> None:
        self.pending = self.expected

    def arrive(self, count: int = 1, announced: int = 0) -> int:
        """`count` arrivals, which announce so many bytes. Returns the phase that they are of."""
        phase = self.phase
        if count < 1:
            raise EmulationError("nobody arrives: the count of an arrival is 1 at least")
        if count > self.pending:
            raise EmulationError(f"{count} arrive at an mbarrier where {self.pending} of {self.expected} are still to come")
        self.bytes += announced
        self.pending -= count
        self._advance()
        return phase

    def announce(self, count: int) -> None:
        """expect_tx."""
        self.bytes += count

    def came(self, count: int) -> None:
        """complete_tx."""
        self.bytes -= count
        self._advance()

    def over(self, parity: int) -> bool:
        """Whether the phase of this parity is the one before the current phase."""
        return self.phase & 1 != parity

    def _advance(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.expected
