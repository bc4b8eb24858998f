"""NVFP4 to 16-bit tensor-core operands, by bits, so that it runs on every GPU and under Triton's interpreter.

A byte holds an even and an odd element. They are not put side by side: `even` gives the even elements of a row as one tile
and `odd` the odd ones as another, and a product over a row is the sum of the products of both. Neither format is asked of the
hardware (Triton has no E4M3 on sm_80, E2M1 is nowhere a tensor type). Placed at the right of a 16-bit float's exponent, the
fields of E2M1 read as the right value times a power of two, subnormals included; so do those of E4M3 in a float32:

    code   s e e m            -> float16 bits   s 000ee m000...        = e2m1(code)  * 2^-14
                                 bfloat16 bits  s 000000ee m000...     = e2m1(code)  * 2^-126
    scale  s e e e e m m m    -> float32 bits   s 0000eeee mmm00...    = e4m3(scale) * 2^-120

e2m1 * e4m3 has 6 significant bits and lies in 2^-10 .. 2688, so that one multiplication by a 16-bit scale is exact. The scale
carries back what it can: 448 * 2^7 is in float16's range and 448 * 2^119 in bfloat16's. 2^7 stays out in both: `even` and
`odd` give value * 2^-7, and whoever multiplies by the global scale multiplies by `UNIT` too.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806, SIM108
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

UNIT = 2.0**7
"""`even` and `odd` times this is e2m1 * e4m3."""

# Whether this process interprets Triton (TRITON_INTERPRET was set when triton was imported) or compiles it.
INTERPRETED = not isinstance(tl.cdiv, triton.JITFunction)

_INTERPRETED = tl.constexpr(INTERPRETED)


def _unpack_ptx(odd: bool, magnitude_shift: int, multiply: str, move: dict[str, tuple[str, str]]) -> str:
    """PTX: the even or odd elements of a word of 4 bytes, two in a register.

    $0, $1: the elements.  $2: the bytes.  $3, $4: their scales.  `move` has what puts the odd codes of two bytes, or the
    even ones, at the top of the two 16-bit lanes of `lanes`, for each of the two registers.
    """
    lines = ["{ .reg .b32 lanes, field, minus_zero;", "mov.b32 minus_zero, 0x80008000;"]
    for half in range(2):
        lines.append(move["odd" if odd else "even"][half])
        lines.append("and.b32 field, lanes, 0x70007000;")
        lines.append(f"shr.u32 field, field, {magnitude_shift};")
        lines.append("lop3.b32 field, lanes, 0x80008000, field, 0xEA;")  # (lanes & sign) | field
        lines.append(multiply.format(out=f"${half}", scale=f"${3 + half}"))
    return "\n".join([*lines, "}"])


def _convert_ptx(odd: bool) -> str:
    """PTX: as `_unpack_ptx` for float16, by the instruction that converts E4M3, of which E2M1 is a part.

    A code in the place of an E4M3 byte's low exponent bits, s 00ee m00, reads as e2m1 * 2^-6.
    """
    lines = ["{ .reg .b32 bytes, field; .reg .b16 low, high;", "mov.b32 bytes, $2;" if odd else "shl.b32 bytes, $2, 4;"]
    lines += ["shr.u32 field, bytes, 2;", "and.b32 field, field, 0x1C1C1C1C;"]
    lines.append("lop3.b32 field, bytes, 0x80808080, field, 0xEA;")  # (bytes & sign) | field
    lines.append("mov.b32 {low, high}, field;")
    for half, part in enumerate(("low", "high")):
        lines.append(f"cvt.rn.f16x2.e4m3x2 ${half}, {part};")
        lines.append(f"mul.rn.f16x2 ${half}, ${half}, ${3 + half};")
    return "\n".join([*lines, "}"])


_IN_ORDER = {  # bytes 0, 1 and 2, 3
    "odd": ("prmt.b32 lanes, $2, 0, 0x1404;", "prmt.b32 lanes, $2, 0, 0x3424;"),
    "even": (
        "prmt.b32 lanes, $2, 0, 0x1404; shl.b32 lanes, lanes, 4;",
        "prmt.b32 lanes, $2, 0, 0x3424; shl.b32 lanes, lanes, 4;",
    ),
}
_IN_PLACE = {  # bytes 0, 2 and 1, 3: one shift at most
    "odd": ("shl.b32 lanes, $2, 8;", "mov.b32 lanes, $2;"),
    "even": ("shl.b32 lanes, $2, 12;", "shl.b32 lanes, $2, 4;"),
}
_MULTIPLY_F16 = "mul.rn.f16x2 {out}, field, {scale};"
# sm_80 has no multiplication of bfloat16, but one with an addition: of -0, which leaves every product as it is.
_MULTIPLY_BF16 = "fma.rn.bf16x2 {out}, field, {scale}, minus_zero;"
_UNPACK_F16_EVEN, _UNPACK_F16_ODD = (tl.constexpr(_unpack_ptx(odd, 3, _MULTIPLY_F16, _IN_ORDER)) for odd in (False, True))
_UNPACK_BF16_EVEN, _UNPACK_BF16_ODD = (tl.constexpr(_unpack_ptx(odd, 6, _MULTIPLY_BF16, _IN_ORDER)) for odd in (False, True))
_IN_PLACE_EVEN, _IN_PLACE_ODD = (tl.constexpr(_unpack_ptx(odd, 6, _MULTIPLY_BF16, _IN_PLACE)) for odd in (False, True))
_CONVERT_F16_EVEN, _CONVERT_F16_ODD = (tl.constexpr(_convert_ptx(odd)) for odd in (False, True))
_REGISTERS = tl.constexpr("=&r,=&r,r,r,r")


@triton.jit
def e4m3(scales):
    """float32 e4m3 * 2^-120 of uint8 `scales`. NaN stays NaN: a block that was NaN must not come out as a number."""
    bits = scales.to(tl.int32)
    value = ((bits & 0x7F) << 20 | (bits & 0x80) << 24).to(tl.float32, bitcast=True)
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
def e2m1(codes):
    """float32 e2m1 * 2^-126 of the low nibble of int32 `codes`."""
    return ((codes & 0x7) << 22 | (codes & 0x8) << 28).to(tl.float32, bitcast=True)


@triton.jit
def scale_operand(scales, DTYPE: tl.constexpr, HAS_E4M3: tl.constexpr):
    """What codes are multiplied by, of uint8 `scales`.

    HAS_E4M3: the GPU converts E4M3 to float16. All that comes of it has the same bits either way.
    """
    if _INTERPRETED:
        scale = e4m3(scales) * 2.0**120 * 2.0**119
    elif HAS_E4M3:
        scale = scales.to(tl.float8e4nv, bitcast=True).to(tl.float16)
        if DTYPE == tl.float16:  # noqa: SIM300 - DTYPE is what varies
            scale = scale * 0.5
        else:
            scale = (scale.to(tl.float32) * 2.0**119).to(tl.bfloat16)
    else:
        if DTYPE == tl.float16:  # noqa: SIM300
            scale = (e4m3(scales) * 2.0**127).to(tl.float16)
        else:
            scale = (e4m3(scales) * 2.0**120 * 2.0**119).to(tl.bfloat16)
    return scale


@triton.jit
def scale_per_byte(scales, DTYPE: tl.constexpr, HAS_E4M3: tl.constexpr):
    """[R, C] of uint8 scales [R, C / 8], what `even` and `odd` multiply by: a block of 16 elements is 8 bytes of codes.

    HAS_E4M3 as in `scale_operand`.
    """
    scale = scale_operand(scales, DTYPE, HAS_E4M3)
    R: tl.constexpr = scales.shape[0]
    C: tl.constexpr = scales.shape[1] * 8
    return tl.broadcast_to(scale[:, :, None], (R, C // 8, 8)).reshape(R, C)


@triton.jit
def byte_of_column(C: tl.constexpr, IN_PLACE: tl.constexpr):
    """[C]: the byte of a row of C that each column of `even` and `odd` comes from.

    IN_PLACE, which is for bfloat16: bytes 1 and 2 of every word of 4 have changed places, so that no byte has to be moved to
    where its code is. Whoever multiplies by such a tile along its rows has its own elements in the same order. The 4 bytes
    that a thread decodes at a time must be a word then: rows begin at multiples of 4, and a thread loads no fewer.
    """
    column = tl.arange(0, C)
    if _INTERPRETED or not IN_PLACE:
        return column
    else:  # noqa: RET505 - Triton would compile both returns
        return (column & ~3) | (column & 1) << 1 | (column & 2) >> 1


@triton.jit
def even(codes, scale, DTYPE: tl.constexpr, HAS_E4M3: tl.constexpr, IN_PLACE: tl.constexpr):
    """[R, C] DTYPE operand: the even elements e2m1 * e4m3 * 2^-7 of uint8 codes [R, C], see `byte_of_column`."""
    if _INTERPRETED:
        return operand(e2m1(codes.to(tl.int32)) * scale, DTYPE)
    elif DTYPE == tl.bfloat16 and IN_PLACE:  # noqa: RET505, SIM300 - Triton would compile all returns
        return tl.inline_asm_elementwise(_IN_PLACE_EVEN, _REGISTERS, [codes, scale], tl.bfloat16, False, 4)
    elif DTYPE == tl.bfloat16:  # noqa: SIM300
        return tl.inline_asm_elementwise(_UNPACK_BF16_EVEN, _REGISTERS, [codes, scale], tl.bfloat16, False, 4)
    elif HAS_E4M3:
        return tl.inline_asm_elementwise(_CONVERT_F16_EVEN, _REGISTERS, [codes, scale], tl.float16, False, 4)
    else:
        return tl.inline_asm_elementwise(_UNPACK_F16_EVEN, _REGISTERS, [codes, scale], tl.float16, False, 4)


@triton.jit
def odd(codes, scale, DTYPE: tl.constexpr, HAS_E4M3: tl.constexpr, IN_PLACE: tl.constexpr):
    """As `even`, of the odd elements."""
    if _INTERPRETED:
        return operand(e2m1(codes.to(tl.int32) >> 4) * scale, DTYPE)
    elif DTYPE == tl.bfloat16 and IN_PLACE:  # noqa: RET505, SIM300 - Triton would compile all returns
        return tl.inline_asm_elementwise(_IN_PLACE_ODD, _REGISTERS, [codes, scale], tl.bfloat16, False, 4)
    elif DTYPE == tl.bfloat16:  # noqa: SIM300
        return tl.inline_asm_elementwise(_UNPACK_BF16_ODD, _REGISTERS, [codes, scale], tl.bfloat16, False, 4)
    elif HAS_E4M3:
        return tl.inline_asm_elementwise(_CONVERT_F16_ODD, _REGISTERS, [codes, scale], tl.float16, False, 4)
    else:
        return tl.inline_asm_elementwise(_UNPACK_F16_ODD, _REGISTERS, [codes, scale], tl.float16, False, 4)


@triton.jit
def dequantize(codes, scales, DTYPE: tl.constexpr, HAS_E4M3: tl.constexpr):
    """e2m1 * e4m3 * 2^-7 [R, 2C] as a DTYPE operand, of uint8 codes [R, C] and uint8 scales [R, C / 8], in order.

    DTYPE is float16, or float32 in the interpreter.
    """
    scale = scale_per_byte(scales, DTYPE, HAS_E4M3)
    return tl.interleave(even(codes, scale, DTYPE, HAS_E4M3, False), odd(codes, scale, DTYPE, HAS_E4M3, False))
