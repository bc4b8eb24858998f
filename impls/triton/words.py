"""Few query rows against wide heads: NVFP4 decoded in the registers that products take their first operand from.

A word of 4 bytes holds 8 elements of a row, and these stay apart, as even and odd ones do in `dequantize`: q is 8 tiles of
every eighth element, a score is the sum of 8 products, and the output is summed in 8 parts. For

    scores     k [N, D / 8] words, the first operand of mma.sync as they lie
    output     v [DV / 8, N] words, transposed by where they are loaded

a thread of mma.sync needs two neighbours along the row of that operand in one register: element i of two words. Two words are
decoded at a time, 16 elements into 8 registers, by operations on both of their halves. No decoded tile goes through shared
memory, which would write and read it at 4 times the bytes of its codes.

Triton carries the layout that the product wants back to the loads, over operations that move nothing between threads. So a
scale is loaded as a byte: to pick it out of a word would take its place in the row. Products run over 32 words or keys at
least, see `planner.SHORTEST_PRODUCT`.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"

from __future__ import annotations

import triton
import triton.language as tl

from impls.triton.dequantize import INTERPRETED, e2m1, operand, scale_operand

_INTERPRETED = tl.constexpr(INTERPRETED)

# bfloat16 has the sign of E2M1 at bit 15 and its other bits at 8 to 6. Of a code's place in a half of a word: what moves all
# of it, what is left of it then, and the factor that copies it so that one copy has the sign and one the rest in their places.
_BF16_PLACES = (
    ("mov.b32 field, halves;", "0x000F000F", (1 << 12) + (1 << 6)),
    ("mov.b32 field, halves;", "0x00F000F0", (1 << 8) + (1 << 2)),
    ("shr.u32 field, halves, 2;", "0x03C003C0", (1 << 6) + 1),
)


def _bf16_ptx() -> str:
    """PTX: $0 to $7 are the elements in order, of both words each.  $8, $9: the words.  $10: their scales."""
    lines = ["{ .reg .b32 halves, field, minus_zero;", "mov.b32 minus_zero, 0x80008000;"]
    for half, lower_or_upper in enumerate(("0x5410", "0x7632")):
        lines.append(f"prmt.b32 halves, $8, $9, {lower_or_upper};")
        multiply = "fma.rn.bf16x2 ${}, field, $10, minus_zero;"  # see `dequantize`
        for place, (move, mask, factor) in enumerate(_BF16_PLACES):
            lines += [move, f"and.b32 field, field, {mask};", f"mul.lo.u32 field, field, {factor};"]
            lines += ["and.b32 field, field, 0x81C081C0;", multiply.format(4 * half + place)]
        lines += ["shr.u32 field, halves, 6;", "and.b32 field, field, 0x01C001C0;"]
        lines.append("lop3.b32 field, halves, 0x80008000, field, 0xEA;")  # (halves & sign) | field
        lines.append(multiply.format(4 * half + 3))
    return "\n".join([*lines, "}"])


def _f16_ptx() -> str:
    """As `_bf16_ptx`, in float16, by the conversion of E4M3 that `dequantize` uses."""
    lines = ["{ .reg .b32 bytes, field; .reg .b16 low, high;"]
    for half, two_bytes_of_both in enumerate(("0x5140", "0x7362")):
        lines.append(f"prmt.b32 bytes, $8, $9, {two_bytes_of_both};")
        for odd in (1, 0):
            if not odd:
                lines.append("shl.b32 bytes, bytes, 4;")
            lines += ["shr.u32 field, bytes, 2;", "and.b32 field, field, 0x1C1C1C1C;"]
            lines.append("lop3.b32 field, bytes, 0x80808080, field, 0xEA;")
            lines.append("mov.b32 {low, high}, field;")
            for byte, part in enumerate(("low", "high")):
                element = f"${4 * half + 2 * byte + odd}"
                lines.append(f"cvt.rn.f16x2.e4m3x2 {element}, {part};")
                lines.append(f"mul.rn.f16x2 {element}, {element}, $10;")
    return "\n".join([*lines, "}"])


_BF16 = tl.constexpr(_bf16_ptx())
_F16 = tl.constexpr(_f16_ptx())
_REGISTERS = tl.constexpr(",".join(8 * ["=&r"] + 3 * ["r"]))


@triton.jit
def _interpreted(words, scale, DTYPE: tl.constexpr):
    """`_elements` in the interpreter."""
    elements = ()
    for i in tl.static_range(8):
        elements = elements + (operand(e2m1(words >> (4 * i)) * scale, DTYPE),)  # noqa: RUF005 - Triton has no unpacking
    return elements


@triton.jit
def _elements(words, scale, DTYPE: tl.constexpr):
    """8 DTYPE operands e2m1 * e4m3 * 2^-7, the first to the eighth elements of int32 `words`. The GPU converts E4M3.

    Without side effects, so that the compiler may decode in whatever registers the results are wanted.
    """
    if _INTERPRETED:
        return _interpreted(words, scale, DTYPE)
    elif tl.bfloat16 == DTYPE:  # noqa: RET505 - Triton would compile all returns
        return tl.inline_asm_elementwise(
            _BF16,
            _REGISTERS,
            [words, scale],
            (tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            True,
            2,
        )
    else:
        return tl.inline_asm_elementwise(
            _F16,
            _REGISTERS,
            [words, scale],
            (tl.float16, tl.float16, tl.float16, tl.float16, tl.float16, tl.float16, tl.float16, tl.float16),
            True,
            2,
        )


@triton.jit
def _scale_per_word(scales, DTYPE: tl.constexpr):
    """[R, C] of uint8 scales [R, C / 2]: a block of 16 elements is two words."""
    scale = scale_operand(scales, DTYPE, True)
    R: tl.constexpr = scales.shape[0]
    C: tl.constexpr = scales.shape[1] * 2
    return tl.broadcast_to(scale[:, :, None], (R, C // 2, 2)).reshape(R, C)


@triton.jit
def load_q(rows, exist, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """8 operands [M, PADDED / 8], the first every eighth of WIDTH elements at the addresses `rows` [M] from the first on."""
    DTYPE: tl.constexpr = rows.dtype.element_ty
    q = ()
    for i in tl.static_range(8):
        dim = i + 8 * tl.arange(0, PADDED // 8)
        tile = tl.load(rows[:, None] + dim[None, :], mask=exist[:, None] & (dim < WIDTH)[None, :], other=0.0)
        q = q + (operand(tile, DTYPE),)  # noqa: RUF005 - Triton has no unpacking
    return q


@triton.jit
def load_transposed(rows, needed, MASKED: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """[PADDED, R]: WIDTH entries at each of the addresses `rows` [R] that is needed, zeros elsewhere."""
    entry = tl.arange(0, PADDED)
    places = rows[None, :] + entry[:, None]
    if MASKED:
        return tl.load(places, mask=needed[None, :] & (entry < WIDTH)[:, None], other=0)
    elif WIDTH < PADDED:  # noqa: RET505 - Triton would compile all returns
        return tl.load(places, mask=(entry < WIDTH)[:, None], other=0)
    else:
        return tl.load(places)


@triton.jit
def scores(q, words, scales, DTYPE: tl.constexpr):
    """[N, M] k @ q^T, of q from `load_q`, k's int32 words [N, D / 8] and its uint8 scales [N, D / 16]."""
    k = _elements(words, _scale_per_word(scales, DTYPE), DTYPE)
    s = tl.dot(k[0], tl.trans(q[0]))
    for i in tl.static_range(1, 8):
        s = tl.dot(k[i], tl.trans(q[i]), s)
    return s


@triton.jit
def no_sums(DV: tl.constexpr, M: tl.constexpr):
    """Sums of nothing: 8 of [DV / 8, M], the first every eighth head dim from the first on."""
    acc = ()
    for _ in tl.static_range(8):
        acc = acc + (tl.zeros([DV // 8, M], tl.float32),)  # noqa: RUF005 - Triton has no unpacking
    return acc


@triton.jit
def add_products(acc, keep, p, words, scales):
    """`acc` times `keep` [1, M], and v^T @ p, of v's int32 words [DV / 8, N], its uint8 scales [N, DV / 16] and p [N, M]."""
    v = _elements(words, tl.trans(_scale_per_word(scales, tl.float16)), tl.float16)
    added = ()
    for i in tl.static_range(8):
        added = added + (tl.dot(v[i], p, acc[i] * keep),)  # noqa: RUF005 - Triton has no unpacking
    return added


@triton.jit
def _side_by_side(acc, FIRST: tl.constexpr):
    """[M, DV / 2]: every other head dim from FIRST on."""
    return tl.interleave(
        tl.interleave(tl.trans(acc[FIRST]), tl.trans(acc[FIRST + 4])),
        tl.interleave(tl.trans(acc[FIRST + 2]), tl.trans(acc[FIRST + 6])),
    )


@triton.jit
def in_order(acc):
    """[M, DV] of sums."""
    return tl.interleave(_side_by_side(acc, 0), _side_by_side(acc, 1))
