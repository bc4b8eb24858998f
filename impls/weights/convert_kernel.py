"""The Triton kernel that decodes packed weights to 16 bits in memory, at the speed of memory.

    grid = (tiles of K * groups of LINES lines), tiles of one group one after another

A program reads runs of LINES * 64 bytes of codes, and writes 256 bytes of each line.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from impls.triton.dequantize import UNIT, rounded
from impls.weights.decode import high, low, scales_of

_UNIT = tl.constexpr(UNIT)


@triton.jit
def convert(
    codes,  # uint8 [tiles, n, 64], see `pack`
    scales,  # uint8 [tiles, n, 8]
    global_scale,
    weights,  # [n, tiles * 128]: e2m1 * e4m3 * global scale, of which the last product is rounded
    n,
    tiles,
    HAS_E4M3: tl.constexpr,
    LINES: tl.constexpr,
):
    DTYPE: tl.constexpr = weights.dtype.element_ty
    tile = tl.program_id(0) % tiles
    line = tl.program_id(0) // tiles * LINES + tl.arange(0, LINES)
    exists = line < n
    byte = tl.arange(0, 64)
    place = n.to(tl.int64) * tile + line
    code = tl.load(codes + place[:, None] * 64 + byte[None, :], mask=exists[:, None], other=0)
    word = tl.load(scales.to(tl.pointer_type(tl.int64)) + place, mask=exists, other=0)
    scale = tl.load(global_scale) * _UNIT
    first = low(code, scales_of(word.to(tl.int32), DTYPE, HAS_E4M3), DTYPE)
    second = high(code, scales_of((word >> 32).to(tl.int32), DTYPE, HAS_E4M3), DTYPE)
    to = weights + (line.to(tl.int64) * tiles + tile)[:, None] * 128 + byte[None, :]
    tl.store(to, rounded(first.to(tl.float32) * scale, DTYPE), mask=exists[:, None])
    tl.store(to + 64, rounded(second.to(tl.float32) * scale, DTYPE), mask=exists[:, None])
