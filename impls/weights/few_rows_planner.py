"""How `w4a16-cuda` cuts its work: plain arithmetic, no torch, no compiler.

Blocks share nothing, so their number is that of groups of 16 lines; the sum over K is split among a block's warps. All blocks
should reside at once, evenly over the SMs, and keep as many bytes on their way as DRAM wants: more than 40 KB an SM of an H200,
of which a warp with two stages has 2.3 KB.
"""

from __future__ import annotations

from dataclasses import dataclass

from impls.planning import SMS
from impls.weights.contract import Projection
from impls.weights.planner import TILE

ROWS = 8
"""Rows of x, the columns of mma.sync."""
LINES = 16
"""Of weights in a block, the rows of mma.sync."""
WARPS_PER_SM = 28
"""At most: threads then have 72 registers, which two stages need."""
MOST_WARPS = 14
"""Of a block: where it is alone on its SM, x that is loaded element by element takes twice the registers."""


@dataclass(frozen=True)
class Cut:
    warps: int
    """They share the sum over K."""
    stages: int
    """Tiles of 128 elements of K that a warp has on their way."""
    blocks_per_sm: int
    """That are to reside: so many registers may a thread have."""


def why_not(problem: Projection) -> str | None:
    """None if the kernel can do `problem`, else one sentence."""
    if problem.rows > ROWS:
        return f"w4a16-cuda takes up to {ROWS} rows of x, not {problem.rows}."
    return None


def cut_for(problem: Projection) -> Cut:
    """A block for each group of lines; all reside at once, with as many warps as registers allow.

    Where K ends within a tile, x is loaded element by element, whose addresses take the registers of a stage.
    """
    blocks_per_sm = -(-problem.outputs // (LINES * SMS))
    warps = max(1, min(MOST_WARPS, WARPS_PER_SM // blocks_per_sm))
    return Cut(warps=warps, stages=1 if problem.inputs % TILE else 2, blocks_per_sm=min(blocks_per_sm, WARPS_PER_SM))
