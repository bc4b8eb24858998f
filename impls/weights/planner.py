"""Tiles and splits of a projection on an architecture: plain arithmetic, no torch, no triton.

Two ways to multiply. "fused": weights are decoded in the loop of the product, once for each tile of rows. "convert": they are
decoded once a call, to 16 bits in memory, and cuBLAS multiplies them, which is faster from CONVERTED_FROM rows on.

Two shapes of fused tile, told apart by the rows of x:

    up to 32     Weights are the first operand (WEIGHTS_FIRST): their lines fill the 16 rows of mma.sync's first operand, and
                 rows of x its 8 columns. Bytes come from memory into the operand's registers with no more than one stop in
                 shared memory. The sums over K are split among as many programs as reside at once.
    more         x is the first operand, and decoded weights go through shared memory to the second: a warp group multiplies
                 them where there is one (sm_90 to sm_110).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from impls.arch import Arch
from impls.planning import SMS, has_e4m3
from impls.weights.contract import Projection

TILE = 128
"""Elements of K in a step of the kernel's loop; packed weights are whole tiles."""
LARGEST = 2**31 - 1
CONVERTED_FROM = 256
"""Rows of x from which on decoding all weights to memory first takes less time than decoding them for each tile of rows. On
an H200, 4096 x 14336, M = 512: 190 us fused, and 90 us of cuBLAS after 45 us of decoding."""


@dataclass(frozen=True)
class Tile:
    """How a program is cut; found on an H200 with `python -m tests.weights.on_gpu speed`."""

    block_m: int
    """Rows of x."""
    block_n: int
    """Lines of the weights."""
    num_warps: int
    num_stages: int
    """Depth of the pipeline that loads packed weights and x."""
    blocks_per_sm: int
    """Programs that reside on an SM of an H200, by their registers and shared memory."""
    weights_first: bool = False


@dataclass(frozen=True)
class Schedule:
    """How the kernel is cut and launched."""

    tile: Tile
    has_e4m3: bool
    """The GPU converts E4M3 to float16 by an instruction."""
    programs: int
    """Tiles of the output."""
    splits: int
    """Programs that share the sum over K of one tile; the last one to end adds their parts, in order."""
    tiles: int
    """Tiles of K."""
    workspace_bytes: int
    """Parts of sums, float32, and a counter for each tile of the output."""


def why_not(problem: Projection) -> str | None:
    """None if kernels can reach all packed weights of `problem`, else one sentence."""
    if tile_count(problem.inputs) * problem.outputs > LARGEST // 64:
        return f"w4a16 and its kin take weights of up to 2^32 elements, not {problem.outputs} x {problem.inputs}."
    return None


_FEW_ROWS = {
    8: Tile(8, 64, 2, 4, blocks_per_sm=6, weights_first=True),
    16: Tile(16, 64, 2, 4, blocks_per_sm=4, weights_first=True),
    32: Tile(32, 64, 2, 4, blocks_per_sm=4, weights_first=True),
}
_SIXTY_FOUR_ROWS = Tile(64, 64, 4, 3, blocks_per_sm=3)
_BY_WARP_GROUP = Tile(128, 128, 4, 2, blocks_per_sm=2)
_BY_WARP = Tile(64, 64, 4, 2, blocks_per_sm=2)


def converts(problem: Projection) -> bool:
    """Whether decoding all weights to memory first is the faster way."""
    return problem.rows >= CONVERTED_FROM


def tile_for(problem: Projection, arch: Arch) -> Tile:
    """The tile for a number of rows."""
    for most, tile in _FEW_ROWS.items():
        if problem.rows <= most:
            return tile
    if arch.compute_capability[0] in (8, 12):
        return _BY_WARP
    return _SIXTY_FOUR_ROWS if problem.rows <= 64 else _BY_WARP_GROUP


def tile_count(inputs: int) -> int:
    """Tiles that K elements take."""
    return -(-inputs // TILE)


def schedule(problem: Projection, arch: Arch, tile_of: Callable[[Projection, Arch], Tile] = tile_for) -> Schedule:
    """The schedule of `problem` on `arch`; on the CPU the one of a data-centre GPU. `tile_of` gives its tile."""
    tile = tile_of(problem, arch)
    tiles = tile_count(problem.inputs)
    programs = -(-problem.rows // tile.block_m) * -(-problem.outputs // tile.block_n)
    splits = max(1, min(tile.blocks_per_sm * SMS // programs, tiles))
    return Schedule(
        tile=tile,
        has_e4m3=has_e4m3(arch),
        programs=programs,
        splits=splits,
        tiles=tiles,
        workspace_bytes=4 * (splits * problem.rows * problem.outputs + programs) if splits > 1 else 0,
    )
