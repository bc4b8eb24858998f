"""The Triton kernel that decodes and multiplies: a tile of the output, and a share of the sum over K.

    grid = (tiles of the output, splits)

A step of its loop takes a tile of 128 elements of K, of which `decode` gives the first and the second half: two products.
With `splits` > 1 a program leaves its share of the sum in float32, and counts: the last one for a tile of the output adds all
shares in the order of their numbers, so that equal inputs give equal bits, and puts the counter back to zero.

WEIGHTS_FIRST: the tile of weights is the first operand of mma.sync, and decoded where that wants it. Of 8 lines a thread loads
16 bytes of one each, elements 16t .. 16t + 15 of both halves; mma.sync wants 4 of every 16 elements of lines 8 apart. So lines
and elements are renamed: what a product sums over may come in any order, as long as x has the same, and lines are put in order
when they are stored. Then nothing is exchanged between threads.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from impls.triton.dequantize import UNIT, operand, rounded
from impls.weights.decode import high, low, scales_of

_UNIT = tl.constexpr(UNIT)
_ROW_TILES_TOGETHER = tl.constexpr(16)  # programs that run at once share lines of weights and rows of x in the L2 cache


@triton.jit
def _renamed(w, WARPS: tl.constexpr):
    """The operand [R, 64] of a tile [R, 64] as it lies in memory.

    Line 8 * WARPS * i + 8 * warp + g becomes line 16 * WARPS * (i // 2) + 16 * warp + 8 * (i % 2) + g, and element
    16t + 4h + j becomes 16h + 4t + j.
    """
    R: tl.constexpr = w.shape[0]
    w = w.reshape(R // (16 * WARPS), 2, WARPS, 8, 4, 4, 4)
    return tl.permute(w, (0, 2, 1, 3, 5, 4, 6)).reshape(R, 64)


@triton.jit
def _place(row_tiles, line_tiles):
    """(row tile, line tile) of this program: row tiles in groups, and in a group lines by lines."""
    number = tl.program_id(0)
    in_group = _ROW_TILES_TOGETHER * line_tiles
    first = number // in_group * _ROW_TILES_TOGETHER
    size = tl.minimum(row_tiles - first, _ROW_TILES_TOGETHER)
    number = number % in_group
    return first + number % size, number // size


@triton.jit
def project(
    x,
    codes,  # uint8 [tiles, n, 64], see `pack`
    scales,  # uint8 [tiles, n, 8]
    global_scale,
    out,
    partial,  # float32 [splits, rows, n]
    counters,  # int32, zeros, one a tile of the output
    x_row_stride,
    out_row_stride,
    rows,
    n,
    k,
    tiles,
    splits,
    RAGGED: tl.constexpr,  # k is no multiple of 128
    HAS_E4M3: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
    SPLIT: tl.constexpr,  # splits > 1
    WARPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    DTYPE: tl.constexpr = x.dtype.element_ty
    row_tile, line_tile = _place(tl.cdiv(rows, BLOCK_M), tl.cdiv(n, BLOCK_N))
    split = tl.program_id(1)
    start = tiles * split // splits
    stop = tiles * (split + 1) // splits
    scale = tl.load(global_scale) * _UNIT

    row = row_tile * BLOCK_M + tl.arange(0, BLOCK_M)
    row_exists = (row < rows)[:, None]
    in_tile = tl.arange(0, BLOCK_N)
    line = tl.minimum(line_tile * BLOCK_N + in_tile, n - 1)  # lines beyond the last one are computed, and not stored
    byte = tl.arange(0, 64)
    element = byte
    if WEIGHTS_FIRST:
        element = tl.max_contiguous(byte // 4 % 4 * 16 + byte // 16 * 4 + byte % 4, 4)
        acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    else:
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    x_rows = x + row.to(tl.int64)[:, None] * x_row_stride
    code_lines = codes + line.to(tl.int64)[:, None] * 64 + byte[None, :]
    scale_lines = scales.to(tl.pointer_type(tl.int64)) + line
    for tile in tl.range(start, stop):
        first = tile * 128 + element
        second = first + 64
        if RAGGED:
            x_low = tl.load(x_rows + first[None, :], mask=row_exists & (first < k)[None, :], other=0.0)
            x_high = tl.load(x_rows + second[None, :], mask=row_exists & (second < k)[None, :], other=0.0)
        else:
            x_low = tl.load(x_rows + first[None, :], mask=row_exists, other=0.0)
            x_high = tl.load(x_rows + second[None, :], mask=row_exists, other=0.0)
        before = n.to(tl.int64) * tile
        code = tl.load(code_lines + before * 64)
        word = tl.load(scale_lines + before)
        w_low = low(code, scales_of(word.to(tl.int32), DTYPE, HAS_E4M3), DTYPE)
        w_high = high(code, scales_of((word >> 32).to(tl.int32), DTYPE, HAS_E4M3), DTYPE)
        if WEIGHTS_FIRST:
            acc = tl.dot(_renamed(w_low, WARPS), tl.trans(operand(x_low, DTYPE)), acc)
            acc = tl.dot(_renamed(w_high, WARPS), tl.trans(operand(x_high, DTYPE)), acc)
        else:
            acc = tl.dot(operand(x_low, DTYPE), tl.trans(w_low), acc)
            acc = tl.dot(operand(x_high, DTYPE), tl.trans(w_high), acc)

    if WEIGHTS_FIRST:
        acc = tl.trans(acc)
        turn: tl.constexpr = 16 * WARPS
        in_tile = in_tile // turn * turn + in_tile // 8 % 2 * (turn // 2) + in_tile // 16 % WARPS * 8 + in_tile % 8
    line = line_tile * BLOCK_N + in_tile
    exists = row_exists & (line < n)[None, :]
    out_places = out + row.to(tl.int64)[:, None] * out_row_stride + line[None, :]
    if SPLIT:
        part = rows.to(tl.int64) * n
        partial_places = partial + (row.to(tl.int64) * n)[:, None] + line[None, :]
        tl.store(partial_places + split * part, acc, mask=exists)
        tl.debug_barrier()  # all of this program's share is written before it counts
        if tl.atomic_add(counters + tl.program_id(0), 1, sem="acq_rel") == splits - 1:
            total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
            for other in tl.range(0, splits):
                total += tl.load(partial_places + other * part, mask=exists, other=0.0, cache_modifier=".cg")
            tl.store(out_places, rounded(total * scale, DTYPE), mask=exists)
            tl.store(counters + tl.program_id(0), 0)
    else:
        tl.store(out_places, rounded(acc * scale, DTYPE), mask=exists)
