"""Packed weights, and how Triton decodes them: straight into the registers that a product takes its first operand from.

A tile of a line is 128 elements, 64 bytes, and its bytes are 16 words of 4. Word v holds four elements of the tile's first
half and four of its second half:

    low   = elements 4v .. 4v + 3          high  = elements 64 + 4v .. 64 + 4v + 3

A 16-bit float holds E2M1 as its sign, bit 15, and three bits where its exponent ends (see `impls.triton.dequantize`): in
bfloat16 bits 8 to 6. The codes lie in the word's two halves so that three of four pairs need a shift and a mask at most:

    bit    15  14  13  12  11  10   9   8   7   6   5   4   3   2   1   0        pair of elements   moved by
           a           -   -   -       a   a   a                                 a  low  0, 1        0
                      (b)                          b   b   b                     b  low  2, 3        3 to the left
                                   c                           c   c   c         c  high 0, 1        6 to the left
               d   d       d   d                                                 d  high 2, 3        in three pieces

The lower half of the word holds the first element of each pair, the upper half the second.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from impls.triton.dequantize import INTERPRETED, operand, scale_operand

_INTERPRETED = tl.constexpr(INTERPRETED)
_A, _B, _C = ((f"shl.b32 field, $2, {shift}; and.b32 field, field, 0x81C081C0;") for shift in (0, 3, 6))
_D = """shl.b32 field, $2, 1; and.b32 field, field, 0x80008000;
shr.u32 piece, $2, 5; lop3.b32 field, piece, 0x01000100, field, 0xEA;
shr.u32 piece, $2, 4; lop3.b32 field, piece, 0x00C000C0, field, 0xEA;"""
# In float16 the three bits lie 3 places higher: times 8 is once more and 7 times more.
_TO_F16 = "and.b32 piece, field, 0x01C001C0; mad.lo.u32 field, piece, 7, field;"
# sm_80 has no multiplication of bfloat16, but one with an addition: of -0, which leaves every product as it is.
_TIMES = {"bf16": "fma.rn.bf16x2 {}, field, {}, minus_zero;", "f16": "mul.rn.f16x2 {}, field, {};"}


def _ptx(pairs: tuple[str, str], kind: str) -> str:
    """$0, $1: four elements.  $2: the word.  $3, $4: their scales."""
    lines = ["{ .reg .b32 field, piece, minus_zero; mov.b32 minus_zero, 0x80008000;"]
    for number, pair in enumerate(pairs):
        lines += [pair, _TO_F16 if kind == "f16" else "", _TIMES[kind].format(f"${number}", f"${3 + number}")]
    return "\n".join([*lines, "}"])


_LOW_BF16, _HIGH_BF16 = (tl.constexpr(_ptx(pairs, "bf16")) for pairs in ((_A, _B), (_C, _D)))
_LOW_F16, _HIGH_F16 = (tl.constexpr(_ptx(pairs, "f16")) for pairs in ((_A, _B), (_C, _D)))
_REGISTERS = tl.constexpr("=&r,=&r,r,r,r")


@triton.jit
def _halves(codes):
    """int32 [R, words, 2]: the 16-bit halves of the words of uint8 [R, bytes]. For the interpreter."""
    R: tl.constexpr = codes.shape[0]
    C: tl.constexpr = codes.shape[1]
    first, second = tl.split(codes.to(tl.int32).reshape(R, C // 4, 2, 2))
    return first | second << 8


@triton.jit
def _pairs(first, second, scale, DTYPE: tl.constexpr):
    """[R, bytes]: of each word the elements of two pairs, given as sign << 3 | magnitude. For the interpreter."""
    R: tl.constexpr = first.shape[0]
    C: tl.constexpr = first.shape[1]
    code = tl.permute(tl.join(first, second), (0, 1, 3, 2)).reshape(R, C * 4)
    value = ((code & 0x7) << 22 | (code & 0x8) << 28).to(tl.float32, bitcast=True)
    return operand(value * scale, DTYPE)


@triton.jit
def low(codes, scale, DTYPE: tl.constexpr):
    """[R, 64] e2m1 * e4m3 * 2^-7 of the first half of a tile, of uint8 codes [R, 64] and what `scales_of` gives.

    Without side effects, so that the compiler may decode in whatever registers the result is wanted.
    """
    if _INTERPRETED:
        half = _halves(codes)
        a = (half >> 12) & 0x8 | (half >> 6) & 0x7
        b = (half >> 9) & 0x8 | (half >> 3) & 0x7
        return _pairs(a, b, scale, DTYPE)
    elif tl.bfloat16 == DTYPE:  # noqa: RET505 - Triton would compile all returns
        return tl.inline_asm_elementwise(_LOW_BF16, _REGISTERS, [codes, scale], tl.bfloat16, True, 4)
    else:
        return tl.inline_asm_elementwise(_LOW_F16, _REGISTERS, [codes, scale], tl.float16, True, 4)


@triton.jit
def high(codes, scale, DTYPE: tl.constexpr):
    """As `low`, of the second half of a tile."""
    if _INTERPRETED:
        half = _halves(codes)
        c = (half >> 6) & 0x8 | half & 0x7
        d = (half >> 11) & 0x8 | (half >> 11) & 0x4 | (half >> 10) & 0x3
        return _pairs(c, d, scale, DTYPE)
    elif tl.bfloat16 == DTYPE:  # noqa: RET505 - Triton would compile all returns
        return tl.inline_asm_elementwise(_HIGH_BF16, _REGISTERS, [codes, scale], tl.bfloat16, True, 4)
    else:
        return tl.inline_asm_elementwise(_HIGH_F16, _REGISTERS, [codes, scale], tl.float16, True, 4)


@triton.jit
def scales_of(word, DTYPE: tl.constexpr, HAS_E4M3: tl.constexpr):
    """[R, 64], what `low` or `high` multiplies by, of int32 [R]: byte t is the scale of elements 16t to 16t + 15.

    HAS_E4M3: the GPU converts E4M3 to float16.
    """
    R: tl.constexpr = word.shape[0]
    byte = (word[:, None] >> (tl.arange(0, 4) * 8)[None, :]) & 0xFF
    # the conversion by hardware leaves float16 a factor of 2^7 short of what these codes need
    scale = scale_operand(byte.to(tl.uint8), DTYPE, HAS_E4M3 and tl.bfloat16 == DTYPE)
    return tl.broadcast_to(scale[:, :, None], (R, 4, 16)).reshape(R, 64)
