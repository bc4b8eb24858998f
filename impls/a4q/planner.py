"""Tiles and splits of a problem on an architecture: plain arithmetic, no torch, no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from impls.arch import ARCHES, KIB, Arch
from impls.contract import Paged, Problem
from impls.planning import LARGEST_SCALE, SMS, most_keys

ROWS = 8
"""Packed query rows of a row tile of decode.cu: the columns of mma.sync."""
ROWS_OF_A_GROUP = 64
"""Packed query rows of a warp group of many_rows.cu: the rows of wgmma."""
MOST_DIMS_OF_A_WARP = 256
MAX_HEAD_DIM = 512
STAGED_BYTES = 227 * KIB
"""Of shared memory that a block may ask for, where steps are staged there."""
LONGEST_STEP = 64
"""Keys of a step of the staged tiles, at most."""
MANY_KEYS = 5000
"""Keys that an SM walks, from which on longer steps are faster, though the last one takes longer: between the 3,972 and the
7,944 of the shapes in README.md on either side of it."""
MIN_STEPS_OF_MANY_ROWS = 4
"""Of a split: the first waits for keys, and the last for nothing but its product."""


@dataclass(frozen=True)
class Tile:
    """Of decode.cu: few rows, each warp decodes for itself."""

    key_tiles: int
    """Tiles of 16 keys in a step."""
    warps: int
    blocks_per_sm: int
    """Blocks that an SM is to hold, by registers: so many threads share its 65536."""
    stages: int = 0
    """Whole steps of a team that are under way to shared memory by bulk copies; 0: all steps come straight to registers."""
    row_tiles: int = 1
    """Times 8 rows, for which K and V are decoded once."""


@dataclass(frozen=True)
class SharedTile:
    """Of many_rows.cu: decoded tiles are shared by up to 128 rows. Registers that products need and do not find would serialise
    them, which the compiler reports in its log."""

    row_groups: int
    """Times 64 rows."""
    keys: int
    """Of a step."""
    stages: int
    """Places for decoded keys, and for values."""
    producers: int
    """Warp groups that decode."""
    blocks_per_sm: int


AnyTile = TypeVar("AnyTile", Tile, SharedTile)


# In shared memory: of those that a GPU was fastest with, see README.md. {widest head dim: tile}.
_STAGED = {
    64: Tile(2, 16, 1, 3),
    128: Tile(2, 16, 1, 3),
    192: Tile(2, 8, 1, 2),
    256: Tile(2, 8, 1, 3),
    512: Tile(2, 8, 1, 2),
}
_STAGED_LONG = _STAGED | {64: Tile(4, 12, 1, 3), 128: Tile(4, 8, 1, 3), 256: Tile(2, 12, 1, 2)}
_STAGED_MANY = _STAGED_LONG | {128: Tile(2, 8, 2, 3)}
"""Where the tiles of rows alone fill the GPU: of two blocks an SM one begins while the other has its steps."""
_STAGED_TWO_ROW_TILES = {
    64: Tile(4, 12, 1, 4, row_tiles=2),
    128: Tile(4, 8, 1, 2, row_tiles=2),
    192: Tile(2, 8, 1, 4, row_tiles=2),
    256: Tile(2, 8, 1, 3, row_tiles=2),
    512: Tile(2, 8, 1, 2, row_tiles=2),
}
_SCATTERED = {64: Tile(4, 12, 1), 128: Tile(2, 12, 1), 512: Tile(1, 12, 1)}
"""For caches that bulk copies cannot take, though their shape would allow it."""

# Chosen by registers: as many warps as no kernel spills for. {widest head dim: tile}.
_DENSE = {64: Tile(2, 8, 2), 128: Tile(2, 4, 3), 256: Tile(1, 4, 3), 512: Tile(1, 4, 3)}
_16_BIT_Q = _DENSE | {64: Tile(2, 4, 3)}
_PAGED = _16_BIT_Q | {256: Tile(1, 4, 2), 512: Tile(1, 4, 2)}
_MANY_REGISTERS = {64: Tile(2, 4, 3), 128: Tile(2, 4, 2), 256: Tile(1, 4, 2), 512: Tile(1, 4, 2)}
"""Along tokens a lane's part of V is on as many lines as it has head dims, each a word with a scale of its own; of pages and a
window every place is computed."""


_UP_TO_64_ROWS = {
    64: SharedTile(1, 64, 2, 1, 2),
    128: SharedTile(1, 128, 2, 2, 1),
    256: SharedTile(1, 64, 2, 2, 1),
    512: SharedTile(1, 64, 1, 1, 1),
}
_MORE_ROWS = {
    128: SharedTile(2, 128, 2, 1, 1),
    256: SharedTile(2, 64, 2, 1, 1),
    512: SharedTile(1, 64, 1, 1, 1),
}


@dataclass(frozen=True)
class Schedule:
    """How the kernel is cut and launched, and whether `combine` follows."""

    tile: Tile | SharedTile
    rows: int
    """Packed query rows of a block."""
    threads: int
    """Of a block."""
    teams: int
    """Teams of a block: warps that share one walk over keys."""
    splits: int
    """Blocks that share the keys of one tile of rows."""
    programs: int
    """Tiles of rows of all key-value heads and sequences."""
    keys_of_a_team: int
    """Keys that one float32 sum runs over, at most."""
    shared_bytes: int
    """Dynamic: for stages and the teams' results, or for queries and decoded tiles."""
    workspace_bytes: int
    """Partial results, float32: out and lse of every split."""


def why_not(name: str, problem: Problem, arch: Arch) -> str | None:
    """None if the kernels can do `problem` on `arch`, else one sentence about the implementation called `name`."""
    p = problem
    if not arch.is_gpu:
        return f"{name} is compiled for NVIDIA GPUs, and there is none."
    for dim in (p.head_dim, p.v_head_dim):
        step = 64 if max(p.head_dim, p.v_head_dim) <= MOST_DIMS_OF_A_WARP else 128
        if dim % step or dim > MAX_HEAD_DIM:
            return f"{name} takes head dims that are multiples of 64, where one is beyond 256 of 128, up to 512, not {dim}."
    if p.softmax_scale > LARGEST_SCALE:
        return f"{name} takes softmax scales up to {LARGEST_SCALE:g}, not {p.softmax_scale:g}."
    return None


def tile_for(problem: Problem, arch: Arch, *, rounds_q: bool) -> Tile | SharedTile:
    """Decoding is shared where there are more rows than decode.cu has in a block, and warp groups that multiply. Wide and
    uneven head dims with V along tokens would not find the registers there."""
    p = problem
    uneven = p.v_block_axis == -2 and p.head_dim != p.v_head_dim and max(p.head_dim, p.v_head_dim) > MOST_DIMS_OF_A_WARP
    rows = p.q_len * p.group
    if ROWS < rows <= rows_decoded_once(p, arch):
        return _narrowest(_STAGED_TWO_ROW_TILES, p)
    if rows > ROWS and arch.executes("wgmma") and not uneven:
        return shared_tile(p)
    return tile_of_a_warp(p, arch, rounds_q=rounds_q)


def shared_tile(problem: Problem) -> SharedTile:
    """Two warp groups that decode have equal shares of 64 keys only where lines are multiples of 128 elements."""
    tile = _narrowest(_UP_TO_64_ROWS if problem.q_len * problem.group <= ROWS_OF_A_GROUP else _MORE_ROWS, problem)
    uneven = bool(problem.head_dim % 128 or problem.v_head_dim % 128)
    return replace(tile, producers=1) if uneven and tile.keys == 64 else tile


def tile_of_a_warp(problem: Problem, arch: Arch, *, rounds_q: bool) -> Tile:
    p = problem
    if _is_staged(p, arch):
        programs = p.batch * p.kv_heads * -(-p.q_len * p.group // ROWS)
        if programs >= SMS:
            return _narrowest(_STAGED_MANY, p)
        return _narrowest(_STAGED_LONG if programs * p.kv_len >= MANY_KEYS * SMS else _STAGED, p)
    if p.v_block_axis == -2 or (isinstance(p.layout, Paged) and p.window is not None):
        return _narrowest(_MANY_REGISTERS, p)
    if isinstance(p.layout, Paged):
        return _narrowest(_PAGED, p)
    return _narrowest(_DENSE if rounds_q else _16_BIT_Q, p)


def _comes_in_runs(problem: Problem) -> bool:
    """Whether there are whole steps, and they are runs of bytes in global memory that bulk copies take, from 16 to 16 bytes, if
    the cache is packed."""
    p = problem
    aligned = p.kv_len * p.head_dim % 256 == 0 and p.kv_len * p.v_head_dim % 256 == 0
    plain = p.v_block_axis == -1 and p.window is None and not isinstance(p.layout, Paged)
    return plain and aligned and p.kv_len >= LONGEST_STEP


def rows_decoded_once(problem: Problem, arch: Arch) -> int:
    """Packed query rows up to which decode.cu decodes K and V once."""
    return 2 * ROWS if _is_staged(problem, arch) else ROWS


def decodes_once(problem: Problem, arch: Arch) -> bool:
    """Whether a kernel is made for so many rows: all that a block has share what it decodes, or few of them are all there are.
    Elsewhere decode.cu goes through K and V again for every `ROWS`."""
    few = problem.q_len * problem.group <= rows_decoded_once(problem, arch)
    return few or isinstance(tile_for(problem, arch, rounds_q=False), SharedTile)


def _is_staged(problem: Problem, arch: Arch) -> bool:
    return _comes_in_runs(problem) and arch.executes("bulk_copy") and arch.shared_per_block >= STAGED_BYTES


def _narrowest(tiles: Mapping[int, AnyTile], problem: Problem) -> AnyTile:
    widest = max(problem.head_dim, problem.v_head_dim)
    return next(tile for dim, tile in tiles.items() if widest <= dim)


def schedule(
    problem: Problem, arch: Arch, tile: Tile | SharedTile | None = None, *, rounds_q: bool, most_splits: int = 65535
) -> Schedule:
    """The schedule of `problem`, for the tile that `tile_for` chooses where none is given."""
    p = problem
    tile = tile or tile_for(p, arch, rounds_q=rounds_q)
    parts = 2 if max(p.head_dim, p.v_head_dim) > MOST_DIMS_OF_A_WARP else 1
    if isinstance(tile, SharedTile):
        rows, keys, teams, least = ROWS_OF_A_GROUP * tile.row_groups, tile.keys, 1, MIN_STEPS_OF_MANY_ROWS
        threads = 128 * (tile.producers + parts * tile.row_groups)
        tiles_bytes = 2 * (rows * p.head_dim + tile.stages * keys * (p.head_dim + p.v_head_dim))
        shared_bytes = 1024 + tiles_bytes + 4 * rows + 4 * 8 * tile.stages  # aligned; factors of rows; barriers
    else:
        rows, keys, teams, least = ROWS * tile.row_tiles, 16 * tile.key_tiles, tile.warps // parts, 1
        threads = 32 * tile.warps
        results_bytes = 4 * teams * rows * (p.v_head_dim // 8 * 9 + 4)
        shared_bytes = max(results_bytes, teams * tile.stages * keys * (p.head_dim + p.v_head_dim) * 9 // 16)
    programs = p.batch * p.kv_heads * -(-p.q_len * p.group // rows)
    steps = max(-(-most_keys(p, rows, keys) // keys), 1)
    splits = max(1, min(tile.blocks_per_sm * SMS // programs, steps // (least * teams), most_splits))
    steps_of_a_team = -(-steps // (splits * teams))
    splits = -(-steps // (steps_of_a_team * teams))  # rounding up has left the last ones empty
    results = p.batch * p.q_heads * p.q_len
    return Schedule(
        tile=tile,
        rows=rows,
        threads=threads,
        teams=teams,
        splits=splits,
        programs=programs,
        keys_of_a_team=steps_of_a_team * keys,
        shared_bytes=shared_bytes,
        workspace_bytes=4 * splits * results * (p.v_head_dim + 1) if splits > 1 else 0,
    )


def scattered(problem: Problem, arch: Arch, staged: Schedule) -> Schedule:
    """In place of `staged`, for a cache that is not packed as it expects; with no more partial results."""
    many = problem.q_len * problem.group > ROWS and arch.executes("wgmma")
    tile = shared_tile(problem) if many else _narrowest(_SCATTERED, problem)
    return schedule(problem, arch, tile, rounds_q=False, most_splits=staged.splits)


def longest_chain(problem: Problem, *, rounds_q: bool) -> int:
    """Keys that one float32 sum runs over at most, on any architecture."""
    longest = 0
    for arch in ARCHES.values():
        s = schedule(problem, arch, rounds_q=rounds_q)
        longest = max(longest, s.keys_of_a_team)
        if isinstance(s.tile, Tile) and s.tile.stages:
            longest = max(longest, scattered(problem, arch, s).keys_of_a_team)
    return longest
