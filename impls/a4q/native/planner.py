"""Tiles, splits and shared memory of the native kernels: plain arithmetic, no torch, no compiler."""

from __future__ import annotations

from dataclasses import dataclass

from impls.arch import ARCHES, Arch, products
from impls.contract import Problem
from impls.planning import most_keys

CAPABILITY = "nvfp4_mma_sync"
ROWS_OF_A_WARP = 16
"""Packed query rows of a warp: the rows of mma.sync."""
MOST_DIMS_OF_A_WARP = 256
"""Head dims of V: a lane's sums of 16 rows are half as many registers."""
MOST_DIMS_OF_TWO_BLOCKS = 128
MIN_STEPS = 2
"""Of a split: the first waits for keys."""
PADDING = 16
"""Bytes behind each line of codes in shared memory, see stage.cuh."""


@dataclass(frozen=True)
class NativeTile:
    row_warps: int
    """Times 16 rows."""
    teams: int
    """Warps, or pairs of them, that share a step's keys; a power of two."""
    keys: int
    """Of a step."""
    stages: int
    """Steps in shared memory, all but one of them under way."""
    blocks_per_sm: int


KEYS_AND_STAGES: dict[int, dict[int, tuple[tuple[int, int], ...]]] = {
    # widest head dim: by teams
    64: {1: ((64, 4),), 2: ((128, 3),), 4: ((128, 3),)},
    128: {1: ((64, 3),), 2: ((128, 2),), 4: ((128, 2),)},
    256: {1: ((64, 3),), 2: ((128, 2),), 4: ((128, 2),), 8: ((128, 2),)},
    512: {1: ((32, 3), (32, 2)), 2: ((64, 2), (32, 3)), 4: ((64, 2),)},
}
"""{widest head dim: {teams: ((keys, stages), ...)}}: the first that fits. A team has 16, 32 or 64 keys of a step."""
MOST_SHARED_BYTES = {1: 101_376, 2: 50_176}
"""Of a block, by blocks of an SM."""
WORK_BYTES = 16
"""That attend.cu declares, at most; `shared_bytes` come on top."""


@dataclass(frozen=True)
class NativeSchedule:
    """How attend.cu is cut and launched, and whether `combine` follows."""

    tile: NativeTile
    rows: int
    """Packed query rows of a block."""
    threads: int
    splits: int
    """Blocks that share the keys of one tile of rows."""
    programs: int
    """Tiles of rows of all key-value heads and sequences."""
    keys_of_a_team: int
    """Keys that one float32 sum runs over, at most."""
    shared_bytes: int
    workspace_bytes: int
    """Partial results, float32: out and lse of every split."""


def serves(arch: Arch) -> bool:
    """Whether tensor cores of `arch` take NVFP4 from registers. Then every problem that `a4q` takes is done with them."""
    return arch.executes(CAPABILITY)


def parts(problem: Problem) -> int:
    """Warps that share the head dims of V."""
    return 2 if problem.v_head_dim > MOST_DIMS_OF_A_WARP else 1


def tile_for(problem: Problem) -> NativeTile:
    """As many warps on rows as there are rows for; the others share the keys."""
    p = problem
    widest = max(p.head_dim, p.v_head_dim)
    blocks = 2 if widest <= MOST_DIMS_OF_TWO_BLOCKS else 1
    pairs = 8 // blocks // parts(p)  # 8 warps an SM: 255 registers a thread
    tiles = -(-p.q_len * p.group // ROWS_OF_A_WARP)
    row_warps = min(1 << (tiles - 1).bit_length(), pairs)
    choices = next(tile for dim, tile in KEYS_AND_STAGES.items() if widest <= dim)
    row_warps = max(row_warps, pairs // max(choices))  # of wide K 8 teams' keys would not fit
    teams = pairs // row_warps
    made = (NativeTile(row_warps, teams, keys, stages, blocks) for keys, stages in choices[teams])
    return next(tile for tile in made if shared_bytes(p, tile) + WORK_BYTES <= MOST_SHARED_BYTES[blocks])


def stage_bytes(problem: Problem, tile: NativeTile) -> int:
    """Of a step's packed K and V in shared memory, as stage.cuh lays them out."""
    p = problem
    k = tile.keys * (p.head_dim // 2 + PADDING + p.head_dim // 16)
    if p.v_block_axis == -1:
        return k + tile.keys * (p.v_head_dim // 2 + PADDING + p.v_head_dim // 16)
    return k + p.v_head_dim * (tile.keys // 2 + (PADDING if tile.teams > 1 else 0) + tile.keys // 16)


def shared_bytes(problem: Problem, tile: NativeTile) -> int:
    """Queries, what pairs exchange, and the stages, in whose place teams leave their sums at the end. No context in it."""
    p = problem
    rows, pairs = ROWS_OF_A_WARP * tile.row_warps, tile.row_warps * tile.teams
    queries = rows * (p.head_dim // 2 + p.head_dim // 16)
    exchanged = 0
    if parts(p) > 1:  # P in float16, and the largest score of each row, by warp
        exchanged = pairs * (ROWS_OF_A_WARP * tile.keys // tile.teams * 2 + parts(p) * ROWS_OF_A_WARP * 4)
    sums = pairs // 2 * parts(p) * 32 * 16 * (p.v_head_dim // parts(p) // 8 + 1) if tile.teams > 1 else 0
    return queries + exchanged + max(tile.stages * stage_bytes(p, tile), sums)


def schedule(problem: Problem, arch: Arch, tile: NativeTile | None = None) -> NativeSchedule:
    """The schedule of `problem`, for the tile that `tile_for` chooses where none is given."""
    p = problem
    tile = tile or tile_for(p)
    rows = ROWS_OF_A_WARP * tile.row_warps
    programs = p.batch * p.kv_heads * -(-p.q_len * p.group // rows)
    steps = max(-(-most_keys(p, rows, tile.keys) // tile.keys), 1)
    splits = max(1, min(tile.blocks_per_sm * sms(arch) // programs, steps // MIN_STEPS))
    steps_of_a_split = -(-steps // splits)
    splits = -(-steps // steps_of_a_split)  # rounding up has left the last ones empty
    results = p.batch * p.q_heads * p.q_len
    return NativeSchedule(
        tile=tile,
        rows=rows,
        threads=32 * tile.row_warps * tile.teams * parts(p),
        splits=splits,
        programs=programs,
        keys_of_a_team=steps_of_a_split * tile.keys // tile.teams,
        shared_bytes=shared_bytes(p, tile),
        workspace_bytes=4 * splits * results * (p.v_head_dim + 1) if splits > 1 else 0,
    )


def sms(arch: Arch) -> int:
    """Streaming multiprocessors that splits are to fill: those of the largest product. A smaller one takes more waves."""
    return max(product.sms or 0 for product in products(arch))


def longest_chain(problem: Problem) -> int:
    """Keys that one float32 sum runs over at most, on any architecture that has these kernels."""
    return max(schedule(problem, arch).keys_of_a_team for arch in ARCHES.values() if serves(arch))
