"""Tiles, shared memory and splits of a problem on an architecture: plain arithmetic, no torch, no compiler."""

from __future__ import annotations

from dataclasses import dataclass

from impls.arch import Arch
from impls.contract import Problem
from impls.occupancy import RESERVED_SHARED
from impls.peers.refusals import NO_GPU
from impls.planning import LARGEST_SCALE, SMS, most_keys

NAME = "smem-unpack"
KEYS = 128
"""Of a tile, whose K and V are unpacked whole: 8 warps share its scores, and each multiplies all of its numerators."""
WARPS = 8
ROW_TILES = (1, 2, 4)
"""Times 16 packed query rows (queries times heads of a group) of a block: what its warps are shared among."""
BLOCKS_OF_AN_SM = 2
"""That splits are to fill SMs with."""
DIMS_IN_128_REGISTERS = 64
"""Head dims of a warp's sums that leave it room for the rest."""
MIN_TILES_OF_A_SPLIT = 2
COMBINED_DIMS = 32
"""`combine.cu` joins so many head dims at a time; others are not split."""


@dataclass(frozen=True)
class Schedule:
    """How the kernel is cut and launched, and whether `combine` follows."""

    row_warps: int
    """Times 16 rows of a tile."""
    shared_bytes: int
    """Of a block, all of it: for unpacked queries, keys, values and numerators."""
    splits: int
    """Blocks that share the keys of one tile of rows."""
    programs: int
    """Tiles of rows of all key-value heads and sequences."""
    keys_of_a_split: int
    """Keys that one float32 sum runs over, at most."""
    workspace_bytes: int
    """Partial results, float32: out and lse of every split."""

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * WARPS


def shared_bytes(problem: Problem, row_warps: int) -> int:
    """Bytes of shared memory of a block with 16 * `row_warps` rows: the size of `Shared` in attend.cu, which asserts it."""
    p = problem
    rows, steps = 16 * row_warps, -(-p.head_dim // 32)
    line, key_line = 32 * (steps | 1), KEYS + 32
    tiles = rows * line + KEYS * line + p.v_head_dim * key_line + rows * key_line
    return tiles + 4 * rows * (WARPS // row_warps + 1)


def why_not(problem: Problem, arch: Arch) -> str | None:
    """None if the kernels can do `problem` on `arch`, else one sentence."""
    p = problem
    if not arch.is_gpu:
        return NO_GPU
    if not arch.accepts("fp8_mma_sync"):
        return arch.why_lacks("fp8_mma_sync")
    if arch.rough_fp8_sums:
        return f"{arch.name} sums products of E4M3 with 13 fractional bits, for which {NAME}'s error bound has no term."
    if p.softmax_scale > LARGEST_SCALE:
        return f"{NAME} takes softmax scales up to {LARGEST_SCALE:g}, not {p.softmax_scale:g}."
    wanted = shared_bytes(p, ROW_TILES[0])
    if wanted > arch.shared_per_block:
        return (
            f"{NAME} unpacks {KEYS} keys and values of head dims {p.head_dim} and {p.v_head_dim} in shared memory, which takes "
            f"{wanted:,} B; a block has {arch.shared_per_block:,} B on {arch.name}."
        )
    return None


def row_warps_for(problem: Problem, arch: Arch) -> int:
    """The fewest that hold the rows of a key-value head, of those that fit; the most that fit where none is enough."""
    fitting = [tile for tile in ROW_TILES if shared_bytes(problem, tile) <= arch.shared_per_block]
    return next((tile for tile in fitting if 16 * tile >= problem.q_len * problem.group), fitting[-1])


def schedule(problem: Problem, row_warps: int) -> Schedule:
    p = problem
    rows = 16 * row_warps
    programs = p.batch * p.kv_heads * -(-p.q_len * p.group // rows)
    tiles = max(-(-most_keys(p, rows, KEYS) // KEYS), 1)
    splits = max(1, min(BLOCKS_OF_AN_SM * SMS // programs, tiles // MIN_TILES_OF_A_SPLIT))
    if p.v_head_dim % COMBINED_DIMS:
        splits = 1
    each = -(-tiles // splits)
    splits = -(-tiles // each)  # rounding up has left the last ones empty
    results = p.batch * p.q_heads * p.q_len
    return Schedule(
        row_warps=row_warps,
        shared_bytes=shared_bytes(p, row_warps),
        splits=splits,
        programs=programs,
        keys_of_a_split=each * KEYS,
        workspace_bytes=4 * splits * results * (p.v_head_dim + 1) if splits > 1 else 0,
    )


def blocks_per_sm(problem: Problem, schedule: Schedule, arch: Arch) -> int:
    """Blocks that an SM of `arch` is to hold, 1 or 2: a compiler that is told 2 gives a thread 128 registers at most."""
    dims_of_a_warp = problem.v_head_dim * schedule.row_warps // WARPS
    fits = 2 * (schedule.shared_bytes + RESERVED_SHARED) <= arch.shared_per_sm
    return 2 if fits and dims_of_a_warp <= DIMS_IN_128_REGISTERS else 1


def longest_chain(problem: Problem) -> int:
    """Keys that one float32 sum runs over at most, whichever tile of rows fits."""
    return max(schedule(problem, tile).keys_of_a_split for tile in ROW_TILES)
