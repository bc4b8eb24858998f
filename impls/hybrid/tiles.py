"""Tiles of the attention over a converted cache: plain arithmetic, no torch, no triton.

A tile of K or V is as large in shared memory as it is multiplied, which limits it: a stage holds BLOCK_N x (D + DV) elements.
Of E4M3 they take half of that, and the tiles that are multiplied as much again. Scores are always [rows, keys]: transposed
ones, which `triton` has for few rows, would bring V through registers, where no copy runs ahead of its use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from impls.arch import KIB, Arch
from impls.contract import Problem
from impls.triton import planner
from impls.triton.planner import MAX_HEAD_DIM, Schedule, Tile, padded, power_of_two


@dataclass(frozen=True)
class RowsTile:
    """What a program of `convert_kernels.convert_rows` does."""

    lanes: int
    unroll: int
    """Stores of 16 bytes of each thread, whose loads are all made first."""


@dataclass(frozen=True)
class ColumnsTile:
    """What a program of `convert_kernels.convert_columns` does."""

    lanes: int
    across: int
    """Threads side by side along the head dims, 8 of them each: so long are the lines that are written."""


@dataclass(frozen=True)
class PeaksTile:
    """What a program of `convert_kernels.find_peaks` does."""

    num_warps: int
    count: int
    """Scales."""


@dataclass(frozen=True)
class ConversionTiles:
    rows: RowsTile
    columns: ColumnsTile
    peaks: PeaksTile


CONVERSION = ConversionTiles(
    RowsTile(lanes=128, unroll=8),
    ColumnsTile(lanes=128, across=8),
    PeaksTile(num_warps=4, count=16384),
)

# {widest padded head dim: tile}. Not measured: chosen so that two stages in flight on each SM cover the memory's latency.
_SIXTEEN_ROWS = {
    64: Tile(16, 128, 2, 3, blocks_per_sm=3),
    128: Tile(16, 64, 2, 3, blocks_per_sm=3),
    256: Tile(16, 32, 2, 3, blocks_per_sm=3),
    512: Tile(16, 32, 4, 3, blocks_per_sm=1),
}
_BY_WARP_GROUP = {
    64: Tile(128, 128, 8, 3, blocks_per_sm=1),
    128: Tile(128, 128, 8, 2, blocks_per_sm=1),
    256: Tile(128, 64, 8, 2, blocks_per_sm=1),
    512: Tile(64, 32, 8, 2, blocks_per_sm=1),
}
_SIXTY_FOUR_ROWS = {
    64: Tile(64, 64, 4, 3, blocks_per_sm=2),
    128: Tile(64, 64, 4, 3, blocks_per_sm=2),
    256: Tile(64, 64, 8, 2, blocks_per_sm=1),
    512: _BY_WARP_GROUP[512],
}
_IN_TWO_PARTS = Tile(128, 32, 8, 2, blocks_per_sm=1, parts=2)
_BY_WARP = {
    64: Tile(64, 64, 4, 2, blocks_per_sm=2),
    128: Tile(64, 64, 4, 2, blocks_per_sm=1),
    256: Tile(64, 32, 8, 2, blocks_per_sm=1),
    512: Tile(32, 16, 8, 2, blocks_per_sm=1),
}


def tile_for(problem: Problem, rows: int, arch: Arch) -> Tile:
    """The tile for `rows` packed query rows."""
    width = max(padded(problem.head_dim), padded(problem.v_head_dim))
    small = 0 < arch.shared_per_block < 128 * KIB
    if rows <= 16:
        tile = _SIXTEEN_ROWS[width]
        return replace(tile, block_n=tile.block_n // 2, num_stages=2) if small else tile
    if arch.compute_capability[0] in (8, 12):
        tile = _BY_WARP[width]
        return replace(tile, block_m=power_of_two(rows)) if rows < tile.block_m else tile
    if rows <= 64:
        return _SIXTY_FOUR_ROWS[width]
    if problem.head_dim == problem.v_head_dim == MAX_HEAD_DIM:
        return _IN_TWO_PARTS
    return _BY_WARP_GROUP[width]


def schedule(problem: Problem, arch: Arch) -> Schedule:
    return planner.schedule(problem, arch, tile_for)


def longest_chain(problem: Problem) -> int:
    """Keys that one float32 sum runs over at most, whatever the architecture."""
    return planner.longest_chain(problem, tile_for)
