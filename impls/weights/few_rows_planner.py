"""How `w4a16-cuda` cuts its work: plain arithmetic, no torch, no compiler.

Blocks share nothing, so their number is that of groups of lines; the sum over K is split among a block's warps. All blocks
should reside at once and keep as many bytes on their way as DRAM wants: some 25 KB an SM of an H200, of which a warp of two
groups and two stages has 4.5 KB.
"""

from __future__ import annotations

from dataclasses import dataclass

from impls.planning import SMS
from impls.weights.contract import Projection

ROWS = 8
"""Rows of x, the columns of mma.sync."""
MOST_WARPS = 16


@dataclass(frozen=True)
class Cut:
    groups: int
    """Of 16 lines, in a block."""
    warps: int
    """They share the sum over K."""
    stages: int
    """Tiles of 128 elements of K that a warp has on their way."""
    warps_per_sm: int = 16
    """That an SM is to hold, by registers: 16 have 128 each."""

    @property
    def lines(self) -> int:
        return 16 * self.groups

    @property
    def blocks_per_sm(self) -> int:
        return max(1, self.warps_per_sm // self.warps)


def why_not(problem: Projection) -> str | None:
    """None if the kernel can do `problem`, else one sentence."""
    if problem.rows > ROWS:
        return f"w4a16-cuda takes up to {ROWS} rows of x, not {problem.rows}."
    return None


def cut_for(problem: Projection) -> Cut:
    """Two groups of lines a block where that gives half of the SMs one; as many warps as reside at once, 2 to 16."""
    groups = 2 if problem.outputs > 16 * SMS else 1
    blocks = -(-problem.outputs // (16 * groups))
    warps = MOST_WARPS
    while warps > 2 and blocks * warps > 16 * SMS:
        warps //= 2
    return Cut(groups, warps, stages=2)
