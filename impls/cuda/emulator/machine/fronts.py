"""Fronts: lanes that stand at one instruction and execute it together.

A warp is in one front with all its lanes, or in several with some lanes each: then it has diverged. Fronts at one place merge,
which is how its lanes come together again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.hardware import LANES as LANES

Rows = slice | Array
"""Warps, as an index of the first axis of registers: a slice wherever they are evenly spaced, since a slice copies nothing."""

NEVER = -1


@dataclass(eq=False)
class Front:
    """Lanes at one instruction."""

    pc: int
    warps: Array
    """Numbers of the warps among those that reside, ascending."""
    mask: Array | None = None
    """bool [warps, 32]; None is all lanes of each."""
    turn: int = 0
    """How often it has waited for others in vain: the more often, the later it is picked."""
    seen: int = NEVER
    """How much had happened when it last waited in vain: it does not go on before more has."""
    polled: int = NEVER
    """How much had happened when it last was at the end of a loop that asks memory for something."""
    rounds: int = 0
    """How often in a row it has gone through a loop that reads memory."""
    waits_for_lanes: bool = False
    """At an instruction that wants lanes which are elsewhere."""

    def __post_init__(self) -> None:
        self.rows = rows_of(self.warps)

    @property
    def count(self) -> int:
        """Warps."""
        return int(self.warps.size)

    def active(self) -> Array:
        """bool [warps, 32]."""
        return np.ones((self.count, LANES), bool) if self.mask is None else self.mask

    def some(self, chosen: Array, pc: int) -> Front:
        """Those of its warps that `chosen`, bool [warps], says, at `pc`."""
        mask = None if self.mask is None else self.mask[chosen]
        return Front(pc, self.warps[chosen], mask, self.turn, self.seen, self.polled, self.rounds)

    def lanes(self, active: Array, pc: int) -> Front:
        """Those of its lanes that `active`, bool [warps, 32], says, at `pc`."""
        chosen = active.any(axis=1)
        mask = active[chosen]
        return Front(pc, self.warps[chosen], None if mask.all() else mask, self.turn, self.seen, self.polled, self.rounds)

    def at(self, pc: int) -> Front:
        """The same lanes at `pc`."""
        return Front(pc, self.warps, self.mask, self.turn, self.seen, self.polled, self.rounds)


def rows_of(warps: Array) -> Rows:
    """The same warps as a slice, if they are evenly spaced."""
    if warps.size == 0:
        return slice(0, 0)
    first, last = int(warps[0]), int(warps[-1])
    if warps.size == 1:
        return slice(first, first + 1)
    step = int(warps[1]) - first
    if first + step * (warps.size - 1) == last and (warps[1:] - warps[:-1] == step).all():
        return slice(first, last + 1, step)
    return warps


def merged(fronts: Sequence[Front]) -> Front:
    """One front of all these, which stand at one instruction."""
    if len(fronts) == 1:
        return fronts[0]
    warps = np.unique(np.concatenate([front.warps for front in fronts]))
    mask = np.zeros((warps.size, LANES), bool)
    for front in fronts:
        mask[np.searchsorted(warps, front.warps)] |= front.active()
    return Front(
        fronts[0].pc,
        warps,
        None if mask.all() else mask,
        max(front.turn for front in fronts),
        max(front.seen for front in fronts),
        max(front.polled for front in fronts),
        max(front.rounds for front in fronts),
    )
