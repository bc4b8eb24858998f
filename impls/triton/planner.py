"""Tiles and splits of a problem on an architecture: plain arithmetic, no torch, no triton.

Tiles are as large as registers and shared memory allow. A program holds in registers its sums, BLOCK_M x DV float32, and in
shared memory its queries, BLOCK_M x D, and the decoded key and value tiles, BLOCK_N x (D + DV), all of 2 bytes; on top come
the packed tiles in flight, a quarter of that for each stage. `MERGE_CHUNK` partial results are merged at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from impls.arch import ARCHES, CPU, KIB, Arch
from impls.contract import Problem

MAX_HEAD_DIM = 512
MERGE_CHUNK = 8
LARGEST_SCALE = 2.0**126  # times log2(e) it is still a float32

SHORTEST_PRODUCT = 32
"""Values that a row of q and k, or of p and v, multiplies at least. For operands that tl.join makes of bytes, Triton 3.6.0 and
3.7.1 deal out mma.sync's rows in runs of 8 values to 4 threads, also where a row has 16: two threads then repeat what the other
two hold, and the products are wrong (seen on an H200 with 3.6.0). 3.9.0 takes shorter runs; triton-lang/triton#11691."""

BLOCKS_WANTED = 2 * 132
"""Thread blocks that fill a GPU: two on each SM of an H200. A smaller GPU runs them in more waves."""

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
    splits: int
    """Programs that share the keys of one row tile."""
    tokens_per_split: int
    """Keys that one float32 sum runs over, at most."""
    programs: int
    """Row tiles of all key-value heads and sequences."""
    workspace_bytes: int
    """Partial results, float32: out and lse of every split."""


def why_not(problem: Problem) -> str | None:
    """None if the kernels can do `problem`, else one sentence."""
    p = problem
    widest = max(p.head_dim, p.v_head_dim)
    if widest > MAX_HEAD_DIM:
        return f"triton takes head dims up to {MAX_HEAD_DIM}, not {widest}."
    if p.softmax_scale > LARGEST_SCALE:
        return f"triton takes softmax scales up to {LARGEST_SCALE:g}, not {p.softmax_scale:g}."
    return None


def padded(dim: int) -> int:
    """A head dim as the kernel's tiles hold it: the next power of two, at least `SHORTEST_PRODUCT`."""
    return max(_power_of_two(dim), SHORTEST_PRODUCT)


def schedule(problem: Problem, arch: Arch) -> Schedule:
    """The schedule of `problem` on `arch`; on the CPU, where nothing limits a tile, the one of a data-centre GPU."""
    p = problem
    rows = p.q_len * p.group
    block_m, block_n, num_warps = _tiles(rows, max(padded(p.head_dim), padded(p.v_head_dim)), arch)
    programs = p.batch * p.kv_heads * -(-rows // block_m)
    key_tiles = _key_tiles(p, block_m, block_n)
    splits = max(1, min(BLOCKS_WANTED // programs, key_tiles * block_n // MIN_SPLIT_TOKENS))
    tiles_each = -(-key_tiles // splits)
    splits = -(-key_tiles // tiles_each)  # rounding up has left the last ones empty
    results = p.batch * p.q_heads * p.q_len
    return Schedule(
        block_m=block_m,
        block_n=block_n,
        num_warps=num_warps,
        num_stages=2 if 0 < arch.shared_per_block < 128 * KIB else 3,
        splits=splits,
        tokens_per_split=tiles_each * block_n,
        programs=programs,
        workspace_bytes=4 * splits * results * (p.v_head_dim + 1) if splits > 1 else 0,
    )


def longest_chain(problem: Problem) -> int:
    """Keys that one float32 sum runs over at most, whatever the architecture."""
    return max(schedule(problem, arch).tokens_per_split for arch in (CPU, *ARCHES.values()))


def _tiles(rows: int, width: int, arch: Arch) -> tuple[int, int, int]:
    """(block_m, block_n, num_warps) for heads padded to `width`: the largest that spill no registers.

    Where a warp group multiplies (sm_90 to sm_110), operands stay in shared memory and leave registers for more sums.
    """
    warp_groups = arch.compute_capability[0] not in (8, 12)
    if width <= 64:
        block_m, block_n, num_warps = (128 if warp_groups else 64), 64, 4
    elif width == 128:
        block_m, block_n, num_warps = 128, (64 if warp_groups else 32), 8
    elif width == 256:
        block_m, block_n, num_warps = 64, 32, 8
    else:
        block_m, block_n, num_warps = 32, 32, 8
    if rows <= 16:
        return 16, min(64, 64 * 256 // width), 4
    if rows < block_m:
        block_m = _power_of_two(rows)
        num_warps = 4 if block_m * width <= 64 * 128 else 8
    return block_m, block_n, num_warps


def _power_of_two(number: int) -> int:
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
