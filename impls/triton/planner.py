"""Tiles and splits of a problem on an architecture: plain arithmetic, no torch, no triton.

Two shapes of tile, told apart by the packed query rows of a key-value head (q_len * GROUP):

    up to 16 rows    Scores are held as [keys, rows]: keys and head dims fill the 16 rows of mma.sync's first operand, and 8
                     query rows its 8 columns. One or two warps are a block, so that little or nothing is exchanged between
                     warps, and registers are capped to let as many blocks reside on an SM as hide each other's waits. With
                     up to 8 of them, codes of wide heads are decoded where they are multiplied: see `words`.
    more             Scores are held as [rows, keys], as large a tile as registers and shared memory allow. A program holds in
                     registers its sums, BLOCK_M x DV float32, and in shared memory its queries, BLOCK_M x D, half of a decoded
                     key or value tile, BLOCK_N x max(D, DV) / 2, of 2 bytes each, and the packed tiles in flight.

Two programs share the head dims of the output where 512 of them do not fit into one's registers; each computes all scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from impls.arch import ARCHES, CPU, KIB, Arch
from impls.contract import Problem
from impls.planning import LARGEST_SCALE, SMS, has_e4m3

MAX_HEAD_DIM = 512
MOST_ROWS_KEYS_FIRST = 16
MERGE_CHUNK, MERGE_SLICE = 64, 64

SHORTEST_PRODUCT = 32
"""Values that a row of q and k, or of p and v, multiplies at least. For operands that tl.join makes of bytes, Triton 3.6.0 and
3.7.1 deal out mma.sync's rows in runs of 8 values to 4 threads, also where a row has 16: two threads then repeat what the other
two hold, and the products are wrong (seen on an H200 with 3.6.0). 3.9.0 takes shorter runs; triton-lang/triton#11691."""

MIN_SPLIT_TOKENS = 256
"""A split shorter than this costs more in merging than its parallelism gains."""


@dataclass(frozen=True)
class Schedule:
    """How the `attend` kernel is cut and launched, and whether `merge` follows."""

    block_m: int
    """Packed query rows of a program."""
    block_n: int
    """Keys of a step of its loop."""
    num_warps: int
    num_stages: int
    """Depth of the pipeline that loads packed keys and values."""
    max_registers: int | None
    """Registers of a thread, where the compiler is to use fewer than it would."""
    keys_first: bool
    """Scores are held as [keys, rows]."""
    by_word: bool
    """Keys and values are decoded in the registers of operands, where their addresses allow it: see `words`."""
    parts: int
    """Programs that share the head dims of a row tile's output; each computes all of the scores."""
    has_e4m3: bool
    """The GPU converts E4M3 to float16 by an instruction."""
    splits: int
    """Programs that share the keys of one row tile."""
    merged_early: bool
    """`merge` is launched before `attend` has ended (programmatic dependent launch)."""
    tokens_per_split: int
    """Keys that one float32 sum runs over, at most."""
    programs: int
    """Row tiles of all key-value heads and sequences."""
    workspace_bytes: int
    """Partial results, float32: out and lse of every split."""
    out_dtype: str
    """What the result is written as: q's dtype, or float32 where it is merged with others."""


def why_not(problem: Problem, name: str = "triton") -> str | None:
    """None if the kernels of the implementation called `name` can do `problem`, else one sentence."""
    p = problem
    widest = max(p.head_dim, p.v_head_dim)
    if widest > MAX_HEAD_DIM:
        return f"{name} takes head dims up to {MAX_HEAD_DIM}, not {widest}."
    if p.softmax_scale > LARGEST_SCALE:
        return f"{name} takes softmax scales up to {LARGEST_SCALE:g}, not {p.softmax_scale:g}."
    return None


def padded(dim: int) -> int:
    """A head dim as the kernel's tiles hold it: the next power of two, of whose halves each fills a product."""
    return max(power_of_two(dim), 2 * SHORTEST_PRODUCT)


@dataclass(frozen=True)
class Tile:
    """The fields of `Schedule` that do not depend on how long the cache is."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    blocks_per_sm: int
    """Blocks that reside on an SM of an H200: at most 4 * floor(512 / registers of a thread) warps."""
    max_registers: int | None = None
    keys_first: bool = False
    by_word: bool = False
    parts: int = 1


# Measured on an H200 against their neighbours; {widest padded head dim: tile}. Where 168 registers are enough, an SM holds
# 12 warps and not 8.
_FEW_ROWS = {
    64: Tile(8, 64, 1, 3, blocks_per_sm=12, max_registers=168, keys_first=True),
    128: Tile(8, 32, 1, 3, blocks_per_sm=12, max_registers=168, keys_first=True),
    256: Tile(8, 32, 1, 3, blocks_per_sm=8, keys_first=True, by_word=True),
    512: Tile(8, 32, 2, 3, blocks_per_sm=4, keys_first=True, by_word=True),
}
_SIXTEEN_ROWS = {  # twice the sums: wide heads need more warps to hold them
    64: Tile(16, 64, 1, 3, blocks_per_sm=8, keys_first=True),
    128: Tile(16, 32, 1, 3, blocks_per_sm=8, keys_first=True),
    256: Tile(16, 32, 2, 2, blocks_per_sm=6, max_registers=168, keys_first=True),
    512: Tile(16, 32, 4, 2, blocks_per_sm=2, keys_first=True),
}
# Where a warp group multiplies (sm_90 to sm_110), an operand stays in shared memory and leaves registers for more sums.
_BY_WARP_GROUP = {
    64: Tile(128, 64, 4, 3, blocks_per_sm=2),
    128: Tile(128, 128, 8, 3, blocks_per_sm=1),
    256: Tile(128, 64, 8, 3, blocks_per_sm=1),
    512: Tile(64, 32, 8, 2, blocks_per_sm=1),
}
_SIXTY_FOUR_ROWS = {
    64: Tile(64, 64, 4, 3, blocks_per_sm=2),
    128: Tile(64, 64, 4, 3, blocks_per_sm=2),
    256: Tile(64, 64, 4, 3, blocks_per_sm=2),
    512: _BY_WARP_GROUP[512],
}
_IN_TWO_PARTS = Tile(128, 64, 8, 2, blocks_per_sm=1, parts=2)
_BY_WARP = {
    64: Tile(64, 64, 4, 3, blocks_per_sm=2),
    128: Tile(128, 32, 8, 3, blocks_per_sm=1),
    256: Tile(64, 32, 8, 2, blocks_per_sm=1),
    512: Tile(32, 32, 8, 2, blocks_per_sm=1),
}


def tile_for(problem: Problem, rows: int, arch: Arch) -> Tile:
    """The tile for `rows` packed query rows."""
    p = problem
    width = max(padded(p.head_dim), padded(p.v_head_dim))
    if rows <= MOST_ROWS_KEYS_FIRST:
        return _FEW_ROWS[width] if rows <= 8 else _SIXTEEN_ROWS[width]
    if arch.compute_capability[0] in (8, 12):
        tile = _BY_WARP[width]
        if rows < tile.block_m:
            block_m = power_of_two(rows)
            tile = replace(tile, block_m=block_m, num_warps=4 if block_m * width <= 64 * 128 else 8)
        return replace(tile, num_stages=2) if arch.shared_per_block < 128 * KIB else tile
    if rows <= 64:
        return _SIXTY_FOUR_ROWS[width]
    if p.head_dim == p.v_head_dim == MAX_HEAD_DIM and p.v_block_axis == -1:
        return _IN_TWO_PARTS
    return _BY_WARP_GROUP[width]


def schedule(
    problem: Problem, arch: Arch, tile_of: Callable[[Problem, int, Arch], Tile] = tile_for, *, out_dtype: str | None = None
) -> Schedule:
    """The schedule of `problem` on `arch`; on the CPU, where nothing limits a tile, the one of a data-centre GPU.

    `tile_of` gives the tile for a number of packed query rows. `out_dtype` is q's where left out.
    """
    p = problem
    rows = p.q_len * p.group
    tile = tile_of(p, rows, arch)
    programs = p.batch * p.kv_heads * -(-rows // tile.block_m)
    key_tiles = _key_tiles(p, tile.block_m, tile.block_n)
    splits = max(1, min(tile.blocks_per_sm * SMS // (programs * tile.parts), key_tiles * tile.block_n // MIN_SPLIT_TOKENS))
    tiles_each = -(-key_tiles // splits)
    splits = -(-key_tiles // tiles_each)  # rounding up has left the last ones empty
    results = p.batch * p.q_heads * p.q_len
    return Schedule(
        block_m=tile.block_m,
        block_n=tile.block_n,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        max_registers=tile.max_registers,
        keys_first=tile.keys_first,
        by_word=tile.by_word and p.v_block_axis == -1 and _decodes_by_word(p, arch),
        parts=tile.parts,
        has_e4m3=has_e4m3(arch),
        splits=splits,
        merged_early=splits > 1 and arch.is_gpu and arch.compute_capability >= (9, 0),
        tokens_per_split=tiles_each * tile.block_n,
        programs=programs,
        workspace_bytes=4 * splits * results * (p.v_head_dim + 1) if splits > 1 else 0,
        out_dtype=out_dtype or p.dtype,
    )


def _decodes_by_word(problem: Problem, arch: Arch) -> bool:
    """Whether rows are long enough for `words`, and the GPU converts E4M3."""
    long_enough = padded(problem.head_dim) // 8 >= SHORTEST_PRODUCT and padded(problem.v_head_dim) // 8 >= 16
    return long_enough and (not arch.is_gpu or has_e4m3(arch))


def longest_chain(problem: Problem, tile_of: Callable[[Problem, int, Arch], Tile] = tile_for) -> int:
    """Keys that one float32 sum runs over at most, whatever the architecture."""
    return max(schedule(problem, arch, tile_of).tokens_per_split for arch in (CPU, *ARCHES.values()))


def power_of_two(number: int) -> int:
    """The least one that is not below `number`."""
    return 1 << (number - 1).bit_length()


def _key_tiles(problem: Problem, block_m: int, block_n: int) -> int:
    """The most key tiles that one row tile walks, at least 1."""
    p = problem
    if p.window is None or p.window >= p.kv_len:
        return max(-(-p.kv_len // block_n), 1)
    queries = min(p.q_len, -(-block_m // p.group) + 1) if p.causal else 1
    keys = min(p.kv_len, p.window + queries - 1)
    return -(-keys // block_n) + 1  # a window begins anywhere in its first tile
