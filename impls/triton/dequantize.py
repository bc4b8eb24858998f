"""NVFP4 to 16-bit tensor-core operands, by bits, so that it runs on every GPU and under Triton's interpreter.

Neither format is asked of the hardware (Triton has no E4M3 on sm_80, E2M1 is nowhere a tensor type). Placed at the top of
a float32's exponent, the fields of E2M1 and E4M3 read as the right value times a power of two, subnormals included:

    code   s e e m            -> float32 bits  s 000000ee m00...       = e2m1(code)  * 2^-126
    scale  s e e e e m m m    -> float32 bits  s 0000eeee mmm00...     = e4m3(scale) * 2^-120

e2m1 * e4m3 has 6 significant bits and lies in 2^-10 .. 2688, so the product is exact in float32, bfloat16 and float16.
Of the 246 binary places lost, the scale can carry back 239 (448 * 2^119 is just below the largest float32). The other 7 stay
out: `dequantize` gives value * 2^-7, and whoever multiplies by the global scale multiplies by `UNIT` too.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

UNIT = 2.0**7
"""`dequantize` times this is e2m1 * e4m3."""

# Whether this process interprets Triton (TRITON_INTERPRET was set when triton was imported) or compiles it.
INTERPRETED = not isinstance(tl.cdiv, triton.JITFunction)

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def _e2m1(codes):
    """float32 e2m1 * 2^-126 of the low nibble of int32 `codes`."""
    return ((codes & 0x7) << 22 | (codes & 0x8) << 28).to(tl.float32, bitcast=True)


@triton.jit
def e4m3(scales):
    """float32 e4m3 * 2^119 of uint8 `scales`. NaN stays NaN: a block that was NaN must not come out as a number."""
    bits = scales.to(tl.int32)
    value = ((bits & 0x7F) << 20 | (bits & 0x80) << 24).to(tl.float32, bitcast=True) * 2.0**120 * 2.0**119
    return tl.where((bits & 0x7F) == 0x7F, float("nan"), value)


@triton.jit
def operand(x, DTYPE: tl.constexpr):
    """`x`, whose values DTYPE holds exactly, as an operand of tl.dot.

    The interpreter's tl.dot multiplies the bit patterns of bfloat16 as integers; float32 holds the same values there.
    """
    if _INTERPRETED and DTYPE == tl.bfloat16:  # noqa: SIM300 - DTYPE is what varies
        return x.to(tl.float32)
    else:  # noqa: RET505 - Triton would compile both returns
        return x.to(DTYPE)


@triton.jit
def rounded(x, DTYPE: tl.constexpr):
    """float32 `x` rounded to DTYPE, to nearest, ties to even.

    The interpreter drops the carry out of bfloat16's mantissa (1.999 becomes 1): there the rounding is done on bits.
    """
    if _INTERPRETED and DTYPE == tl.bfloat16:  # noqa: SIM300 - DTYPE is what varies
        bits = x.to(tl.uint32, bitcast=True)
        up = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return tl.where(x == x, up, 0x7FC0).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:  # noqa: RET505 - Triton would compile both returns
        return x.to(DTYPE)


@triton.jit
def dequantize(codes, scales, DTYPE: tl.constexpr):
    """e2m1 * e4m3 * 2^-7 [R, 2C] as a DTYPE operand, of uint8 codes [R, C] and uint8 scales [R, C / 8]."""
    R: tl.constexpr = codes.shape[0]
    C: tl.constexpr = codes.shape[1]
    per_byte = tl.broadcast_to(e4m3(scales)[:, :, None], (R, C // 8, 8)).reshape(R, C)
    nibbles = codes.to(tl.int32)
    even = operand(_e2m1(nibbles) * per_byte, DTYPE)
    odd = operand(_e2m1(nibbles >> 4) * per_byte, DTYPE)
    return tl.interleave(even, odd)
