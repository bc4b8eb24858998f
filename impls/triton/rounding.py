"""Rounding to NVFP4 on the GPU, bit by bit as `impls.nvfp4` defines it, without instructions that only some GPUs have.

Rounding to nearest, ties to even, is one addition: float32 numbers from 2^(e+23) on are multiples of 2^e, so x + 2^(e+23)
rounds x to a multiple of 2^e and leaves the multiple in the sum's lowest bits. `e` is that of the narrow format where x lies.

A quotient is corrected instead of divided: with r = 1 / d rounded once for a whole block, q = x * r is off by 1.5 units in
the last place at most, and q + (x - q * d) * r, two fused steps, is x / d rounded to nearest if q was off by one at most
(Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). So two
corrections are always right; for x of 11 significant bits one is, which tests/triton/test_quantize.py shows exhaustively
for every rounding boundary of E2M1. Division as the compiler writes it takes three times as many instructions, and branches.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from impls.nvfp4 import E2M1_MAX, E4M3_MAX, E4M3_NAN, GLOBAL_MAX_RATIO, GLOBAL_SCALE_MIN

_E2M1_MAX = tl.constexpr(E2M1_MAX)
_E4M3_MAX = tl.constexpr(E4M3_MAX)
_E4M3_NAN = tl.constexpr(E4M3_NAN)
_GLOBAL_MAX_RATIO = tl.constexpr(GLOBAL_MAX_RATIO)
_GLOBAL_SCALE_MIN = tl.constexpr(GLOBAL_SCALE_MIN)
_E4M3_MIN_NORMAL = tl.constexpr(2.0**-6)


@triton.jit
def magnitude_bits(x):
    """int32 bits of |x|, which are ordered as the magnitudes are, with Inf and then NaN on top."""
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def default_global_scale(amax):
    """max|x| / 2688 as `impls.nvfp4.default_global_scale` rounds it."""
    scale = tl.div_rn(amax, tl.full(amax.shape, _GLOBAL_MAX_RATIO, tl.float32))
    scale = tl.where(scale < _GLOBAL_SCALE_MIN, _GLOBAL_SCALE_MIN, scale)  # NaN stays NaN
    return tl.where(amax == 0.0, 1.0, scale)


@triton.jit
def round_to_e4m3(x):
    """(bytes int32, values float32) of float32 x >= 0, saturating at 448; NaN gives 0x7F.

    Numbers from 2^e on, e >= -6, are multiples of 2^(e-3), 8 to 16 of them; below 2^-6, 0 to 8.
    """
    x = tl.where(x > _E4M3_MAX, _E4M3_MAX, x)
    exponent = tl.maximum(x, _E4M3_MIN_NORMAL).to(tl.int32, bitcast=True) >> 23  # biased: 121 for 2^-6
    magic = (exponent + 20 << 23).to(tl.float32, bitcast=True)
    rounded = x + magic
    byte = (rounded.to(tl.int32, bitcast=True) & 0x1F) + (exponent - 121) * 8
    return tl.where(x == x, byte, _E4M3_NAN), rounded - magic


@triton.jit
def _e2m1_in_low_bits(quotient):
    """int32 whose bits 0 to 2 are the code of |quotient|; bits 3 to 22 are zero. NaN, like all beyond 6, becomes 6.

    From 2^e on, e = 0, 1, 2, codes are multiples of 2^(e-1) plus 2e (below 1 as from 1 on): 2e is put in before rounding.
    """
    x = tl.minimum(tl.abs(quotient), _E2M1_MAX)
    exponent = tl.maximum(x, 1.0).to(tl.int32, bitcast=True) >> 23  # biased: 127 for 1
    magic = exponent * ((1 << 23) + 2) + ((22 << 23) - 2 * 127)
    return (x + magic.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)


@triton.jit
def divide(x, minus_divisor, reciprocal, CORRECTIONS: tl.constexpr):
    """x / divisor of a negated divisor: Triton 3.6 builds the minus of a product into the product, as a second one."""
    quotient = x * reciprocal
    for _ in tl.static_range(CORRECTIONS):
        quotient = tl.fma(tl.fma(quotient, minus_divisor, x), reciprocal, quotient)
    return quotient


@triton.jit
def round_blocks(even, odd, global_scale, AXIS: tl.constexpr, CORRECTIONS: tl.constexpr):
    """(bytes of two codes, int32 with the byte in bits 0 to 7, as `even`; scale bytes, int32, without AXIS) of blocks.

    `even` and `odd` are float32 with 8 entries along AXIS: elements 0, 2, ... and 1, 3, ... of a block; `global_scale` has
    the shape of a scale, or none. CORRECTIONS: 1 if the elements have 11 significant bits at most, else 2.
    """
    amax = tl.maximum(tl.abs(even), tl.abs(odd), propagate_nan=tl.PropagateNan.ALL)
    amax = tl.max(magnitude_bits(amax), AXIS).to(tl.float32, bitcast=True)
    scale_byte, scale = round_to_e4m3(tl.div_rn(amax, tl.zeros_like(amax) + _E2M1_MAX * global_scale))
    step = scale * global_scale

    # Elements and step are multiplied by the power of two that brings a normal step to 1 <= step < 2, so that nothing near
    # a boundary of E2M1 over- or underflows on its way. A step that is zero leaves zeros without a sign.
    zero = step == 0.0
    unit = tl.where(zero, 0, 254 - (step.to(tl.int32, bitcast=True) >> 23) << 23).to(tl.float32, bitcast=True)
    divisor = tl.where(zero, 1.0, step * unit)
    reciprocal = tl.div_rn(tl.full(amax.shape, 1.0, tl.float32), divisor)
    sign_bits = tl.where(zero, 0, 0x88)

    unit, minus_divisor = tl.expand_dims(unit, AXIS), tl.expand_dims(-divisor, AXIS)
    reciprocal, sign_bits = tl.expand_dims(reciprocal, AXIS), tl.expand_dims(sign_bits, AXIS)
    even_code = _e2m1_in_low_bits(divide(even * unit, minus_divisor, reciprocal, CORRECTIONS))
    odd_code = _e2m1_in_low_bits(divide(odd * unit, minus_divisor, reciprocal, CORRECTIONS))
    signs = even.to(tl.uint32, bitcast=True) >> 28 | odd.to(tl.uint32, bitcast=True) >> 24 & 0xF0
    return odd_code * 16 + even_code | signs.to(tl.int32, bitcast=True) & sign_bits, scale_byte
