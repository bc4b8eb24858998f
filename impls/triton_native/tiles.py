"""Tiles of the native kernel: plain arithmetic, no torch, no triton.

A product of NVFP4 by NVFP4 contracts 64 values at least. tcgen05.mma multiplies 128 rows at a time, also where fewer are
there: with fewer rows Triton 3.9 multiplies in 16 bits and 3.6 fails. mma.sync multiplies 16.
"""

from __future__ import annotations

from dataclasses import replace

from impls.arch import KIB, Arch
from impls.contract import Problem
from impls.triton import planner
from impls.triton.planner import Schedule, Tile

SHORTEST_PRODUCT = 64
TCGEN05_ROWS = 128
STAGES, BLOCKS_PER_SM = 3, 2
TCGEN05_HEAD_DIM = 256
"""Widest heads of tcgen05.mma: the sums of 128 rows of 512 would fill the 512 columns of tensor memory, scores left out."""


def uses_tcgen05(arch: Arch) -> bool:
    return arch.executes("nvfp4_tcgen05")


def why_not(problem: Problem, arch: Arch) -> str | None:
    """None if the kernel can do `problem` on `arch`, else one sentence."""
    reason = planner.why_not(problem, "triton-native")
    if reason:
        return reason
    widest = max(problem.head_dim, problem.v_head_dim)
    if uses_tcgen05(arch) and widest > TCGEN05_HEAD_DIM:
        return (
            f"triton-native takes head dims up to {TCGEN05_HEAD_DIM} on {arch.name}, whose tensor memory holds no more, "
            f"not {widest}."
        )
    return None


def padded(dim: int) -> int:
    """A head dim as the product holds it."""
    return max(planner.padded(dim), SHORTEST_PRODUCT)


def schedule(problem: Problem, arch: Arch, *, out_dtype: str | None = None) -> Schedule:
    """The schedule of `problem` on `arch`, as `planner.schedule`; on the CPU that of mma.sync, whose tiles are smaller.

    The kernel does not say when `merge` may be launched, so that it is launched when all has ended.
    """
    return replace(planner.schedule(problem, arch, _tile, out_dtype=out_dtype), merged_early=False)


def longest_chain(problem: Problem) -> int:
    """Keys that one float32 sum runs over at most, whatever the architecture."""
    return planner.longest_chain(problem, _tile)


def _tile(problem: Problem, rows: int, arch: Arch) -> Tile:
    """The tile for `rows` packed query rows; not measured, because no GPU that runs it was at hand."""
    width = max(planner.padded(problem.head_dim), planner.padded(problem.v_head_dim))
    block_n = 64 if width <= 128 else 32
    if uses_tcgen05(arch):
        return Tile(TCGEN05_ROWS, block_n, 8, STAGES, BLOCKS_PER_SM)
    tallest = 64 if width <= 128 else 32 if width == 256 else 16
    block_m = min(max(16, 1 << (rows - 1).bit_length()), tallest)
    num_warps = 8 if width == 512 or block_m * width > 64 * 64 else 4
    stages = 2 if 0 < arch.shared_per_block < 128 * KIB else STAGES
    return Tile(block_m, block_n, num_warps, stages, BLOCKS_PER_SM)
