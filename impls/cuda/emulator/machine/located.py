"""Where the lanes of warps access a memory in one instruction, and what follows from that alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.checks.shadow import Region

LARGEST_WORD = 16
"""Bytes that memory gives or takes at once."""
MOST_KEPT = 512
"""At a time of each `State`; each takes 90 KiB at most, with what it is found by."""


@dataclass(eq=False)
class Located:
    """One access. Those of shared and local memory are kept, since loops repeat them: see `access.located`."""

    space: str
    positions: Array
    """int64 [warps, lanes]: bytes of the space's array; lanes that take no part are where the first of the others is."""
    size: int
    """Bytes a lane."""
    active: Array | None
    """bool [warps, lanes]: None is all."""
    kept: bool = False
    region: Region | None = None
    """What it is for the checks of order, once they have asked."""
    cost: Array | None = None
    """What it adds to the counters, once they have asked."""
    words: Array = field(init=False)
    """int64 [warps, lanes]: `positions` in words of that size, or of the largest there are."""
    _apart: bool | None = None

    def __post_init__(self) -> None:
        self.words = self.positions >> (min(self.size, LARGEST_WORD).bit_length() - 1)

    def part(self, row: int, active: Array) -> Located:
        """What one warp accesses; `active`: of all of them."""
        at = slice(row, row + 1)
        return Located(self.space, self.positions[at], self.size, active[at])

    @property
    def apart(self) -> bool:
        """Whether no two lanes meet. That takes long to find out, and of what is not kept it is left open: False."""
        if self._apart is None:
            self._apart = False
            if self.kept:
                ordered = np.sort(self.positions if self.active is None else self.positions[self.active], axis=None)
                self._apart = bool((ordered[1:] != ordered[:-1]).all())
        return self._apart
