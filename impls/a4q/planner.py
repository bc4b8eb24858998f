"""Tiles and splits of a problem on an architecture: plain arithmetic, no torch, no compiler."""

from __future__ import annotations

from dataclasses import dataclass

from impls.arch import Arch
from impls.contract import Paged, Problem
from impls.peers.refusals import NO_GPU
from impls.planning import LARGEST_SCALE, SMS

ROWS = 8
"""Packed query rows of a program: the columns of mma.sync."""
MOST_DIMS_OF_A_WARP = 256
MAX_HEAD_DIM = 512
MIN_STEPS_OF_A_TEAM = 2


@dataclass(frozen=True)
class Tile:
    key_tiles: int
    """Tiles of 16 keys in a step."""
    warps: int
    blocks_per_sm: int
    """Blocks that an SM is to hold, by registers: so many threads share its 65536."""


# Chosen by registers: as many warps as no kernel spills for. {widest head dim: tile}.
_DENSE = {64: Tile(2, 4, 4), 128: Tile(2, 4, 4), 256: Tile(1, 4, 3), 512: Tile(1, 4, 3)}
_16_BIT_Q = _DENSE | {64: Tile(2, 4, 3), 128: Tile(2, 4, 3)}
_PAGED = _16_BIT_Q | {256: Tile(1, 4, 2), 512: Tile(1, 4, 2)}
_MANY_REGISTERS = {64: Tile(2, 4, 3), 128: Tile(2, 4, 2), 256: Tile(1, 4, 2), 512: Tile(1, 4, 2)}
"""Along tokens a lane's part of V is on as many lines as it has head dims, each a word with a scale of its own; of pages and a
window every place is computed."""


@dataclass(frozen=True)
class Schedule:
    """How the kernel is cut and launched, and whether `combine` follows."""

    tile: Tile
    teams: int
    """Teams of a block: warps that share one walk over keys."""
    splits: int
    """Blocks that share the keys of one tile of rows."""
    programs: int
    """Tiles of rows of all key-value heads and sequences."""
    keys_of_a_team: int
    """Keys that one float32 sum runs over, at most."""
    shared_bytes: int
    """For the teams' results."""
    workspace_bytes: int
    """Partial results, float32: out and lse of every split."""


def why_not(name: str, problem: Problem, arch: Arch) -> str | None:
    """None if the kernels can do `problem` on `arch`, else one sentence about the implementation called `name`."""
    p = problem
    if not arch.is_gpu:
        return NO_GPU
    for dim in (p.head_dim, p.v_head_dim):
        step = 64 if max(p.head_dim, p.v_head_dim) <= MOST_DIMS_OF_A_WARP else 128
        if dim % step or dim > MAX_HEAD_DIM:
            return f"{name} takes head dims that are multiples of 64, where one is beyond 256 of 128, up to 512, not {dim}."
    if p.softmax_scale > LARGEST_SCALE:
        return f"{name} takes softmax scales up to {LARGEST_SCALE:g}, not {p.softmax_scale:g}."
    return None


def tile_for(problem: Problem, *, rounds_q: bool) -> Tile:
    p = problem
    if p.v_block_axis == -2 or (isinstance(p.layout, Paged) and p.window is not None):
        tiles = _MANY_REGISTERS
    elif isinstance(p.layout, Paged):
        tiles = _PAGED
    else:
        tiles = _DENSE if rounds_q else _16_BIT_Q
    return next(tile for dim, tile in tiles.items() if max(p.head_dim, p.v_head_dim) <= dim)


def schedule(problem: Problem, tile: Tile | None = None, *, rounds_q: bool) -> Schedule:
    """The schedule of `problem`, for the tile that `tile_for` chooses where none is given."""
    p = problem
    tile = tile or tile_for(p, rounds_q=rounds_q)
    widest = max(p.head_dim, p.v_head_dim)
    teams = tile.warps // (2 if widest > MOST_DIMS_OF_A_WARP else 1)
    programs = p.batch * p.kv_heads * -(-p.q_len * p.group // ROWS)
    keys = 16 * tile.key_tiles
    steps = max(-(-_most_keys(p, keys) // keys), 1)
    splits = max(1, min(tile.blocks_per_sm * SMS // programs, steps // (MIN_STEPS_OF_A_TEAM * teams)))
    steps_of_a_team = -(-steps // (splits * teams))
    splits = -(-steps // (steps_of_a_team * teams))  # rounding up has left the last ones empty
    results = p.batch * p.q_heads * p.q_len
    return Schedule(
        tile=tile,
        teams=teams,
        splits=splits,
        programs=programs,
        keys_of_a_team=steps_of_a_team * keys,
        shared_bytes=4 * teams * ROWS * (p.v_head_dim + 2),
        workspace_bytes=4 * splits * results * (p.v_head_dim + 1) if splits > 1 else 0,
    )


def longest_chain(problem: Problem, *, rounds_q: bool) -> int:
    """Keys that one float32 sum runs over at most."""
    return schedule(problem, rounds_q=rounds_q).keys_of_a_team


def _most_keys(problem: Problem, keys_of_a_step: int) -> int:
    """Keys of the steps that one tile of rows walks, at most."""
    p = problem
    if p.window is None or p.window >= p.kv_len:
        return p.kv_len
    queries = min(p.q_len, -(-ROWS // p.group) + 1) if p.causal else 1
    return min(p.kv_len, p.window + queries - 1) + keys_of_a_step  # a window begins anywhere in its first step
