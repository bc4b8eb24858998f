"""Kernels that turn NVFP4 into 16 bits or E4M3, at the speed of memory.

    convert_rows      blocks along the head dim: codes are read and values written in the same order
    convert_columns   blocks along the tokens: transposed on the way
    find_peaks        the largest block scale of each head, which E4M3 is made relative to

All view a cache as [pages, heads, lines, bytes], a page of a dense one being a sequence, and write [pages, heads, tokens,
head dim], packed. Codes are read as words of 8 elements, and a thread writes 16 bytes at a time: a word becomes 8 elements of
2 bytes, two words 16 of 1. A warp reads and writes without gaps, and a thread has UNROLL reads in flight. An H200 has time
for 20 instructions an element of 2 bytes, and 12 of 1: rows are decoded two elements at a time by PTX, 5 to 8 instructions
each; columns, whose elements part again, one by one in float32, on bits as in `impls.triton.dequantize`.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806, SIM108
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from impls.triton.dequantize import INTERPRETED, UNIT, e4m3, rounded
from impls.triton.rounding import round_to_e4m3

_INTERPRETED = tl.constexpr(INTERPRETED)
_UNIT = tl.constexpr(UNIT)


@triton.jit
def unit_of(peak):
    """float32: what the E4M3 values of a head are relative to, of the byte `peak` of its largest scale.

    The least power of two with 6 * scale <= 448 * unit, 2^-15 to 2^3, so that no value saturates; 1 where all scales are 0.
    448 = 1.75 * 2^8, so the exponent of 6 * scale less 8, plus 1 where its mantissa is beyond 1.75.
    """
    largest = e4m3(peak.to(tl.uint8)) * 2.0**120 * 6.0
    exponent = (largest.to(tl.int32, bitcast=True) + 0x1FFFFF >> 23) - 8
    return tl.where(peak == 0, 1.0, (exponent << 23).to(tl.float32, bitcast=True))


@triton.jit
def _load_words(lines, number, needed, IN_WORDS: tl.constexpr, WORDS: tl.constexpr):
    """int32: word `number` of 4 bytes of the `lines` at these byte addresses, zeros where not needed.

    IN_WORDS: the addresses are multiples of 4. WORDS: how many a thread is to load at a time. Of one, the addresses are of
    bytes, so that the compiler sees no run of words: Triton 3.6 would give a thread several, and bring them into place through
    shared memory.
    """
    if IN_WORDS and WORDS == 1:
        return tl.load((lines + number * 4).to(tl.pointer_type(tl.int32)), mask=needed, other=0)
    elif IN_WORDS:  # noqa: RET505 - Triton would compile all returns
        return tl.load(lines.to(tl.pointer_type(tl.int32)) + number, mask=needed, other=0)
    else:
        places = lines + number * 4
        word = tl.load(places, mask=needed, other=0).to(tl.int32)
        for byte in tl.static_range(1, 4):
            word |= tl.load(places + byte, mask=needed, other=0).to(tl.int32) << 8 * byte
        return word


def _words_ptx(kind: str) -> str:
    """PTX: the 8 elements of a word, in order, two in each of $0 to $3.

    Behind them come the word, its scale in both halves of a register, and for "folded" the global scale in float32. A code's
    fields, at the right of a 16-bit exponent, read as e2m1 * 2^-14 (float16) or * 2^-126 (bfloat16).
    """
    word, scale, factor = "$4", "$5", "$6"
    wide = kind in ("bfloat16", "folded")
    multiply = "fma.rn.bf16x2 {0}, {0}, {1}, minus_zero;" if wide else "mul.rn.f16x2 {0}, {0}, {1};"
    lines = ["{ .reg .b32 evens, lanes, one, minus_zero, e0, e1, e2, e3; .reg .f32 low, high;"]
    lines += ["mov.b32 minus_zero, 0x80008000;", f"mov.b32 one, {'0x7E807E80' if wide else '0x74007400'};"]  # 2^126, 2^14
    lines.append(f"shl.b32 evens, {word}, 4;")
    for i in range(4):  # byte i: its even element at the top of the lower lane, its odd one at that of the upper lane
        lines.append(f"prmt.b32 lanes, evens, {word}, 0x{4 + i}{4 + i}{i}{i};")
        lines += [f"and.b32 e{i}, lanes, 0x70007000;", f"shr.u32 e{i}, e{i}, {6 if wide else 3};"]
        lines.append(f"lop3.b32 e{i}, lanes, 0x80008000, e{i}, 0xEA;")  # (lanes & sign) | field
        lines += [multiply.format(f"e{i}", "one"), multiply.format(f"e{i}", scale)]
        if kind == "folded":
            lines += [f"shl.b32 lanes, e{i}, 16;", "mov.b32 low, lanes;", f"and.b32 lanes, e{i}, 0xFFFF0000;"]
            lines += ["mov.b32 high, lanes;", f"mul.rn.f32 low, low, {factor};", f"mul.rn.f32 high, high, {factor};"]
            lines.append(f"cvt.rn.bf16x2.f32 ${i}, high, low;")
        else:
            lines.append(f"mov.b32 ${i}, e{i};")
    return "\n".join([*lines, "}"])


def _e4m3_ptx() -> str:
    """PTX: the 8 elements of word $2, in order, as E4M3, four in $0 and four in $1; $3 is the scale in float16, twice.

    A block has 8 magnitudes. They are multiplied and rounded once, which makes a table of 8 bytes in two registers, and prmt
    looks four of them up at a time: its selectors are the codes themselves, without their signs. Where a selector has its
    highest bit set prmt repeats the sign of the byte chosen, so that of bytes 0x80 it makes 0xFF of a negative code.
    """
    lines = ["{ .reg .b32 magnitudes, low, high, selectors, bits, signs, upper; .reg .b16 b0, b1, b2, b3;"]
    lines.append("mov.b32 bits, 0x80808080;")
    for i, pair in enumerate((0x38000000, 0x3E003C00, 0x42004000, 0x46004400)):  # 0 and 0.5, 1 and 1.5, 2 and 3, 4 and 6
        lines += [f"mov.b32 magnitudes, 0x{pair:08X};", "mul.rn.f16x2 magnitudes, $3, magnitudes;"]
        lines.append(f"cvt.rn.satfinite.e4m3x2.f16x2 b{i}, magnitudes;")
    lines += ["mov.b32 low, {b0, b1};", "mov.b32 high, {b2, b3};", "shr.u32 upper, $2, 16;"]
    for result, codes in (("$0", "$2"), ("$1", "upper")):
        lines += [f"and.b32 selectors, {codes}, 0x7777;", f"prmt.b32 {result}, low, high, selectors;"]
        lines += [f"prmt.b32 signs, bits, bits, {codes};", "shl.b32 signs, signs, 7;"]
        lines.append(f"lop3.b32 {result}, signs, 0x80808080, {result}, 0x6A;")  # (signs & 0x80808080) ^ magnitudes
    return "\n".join([*lines, "}"])


_BFLOAT16, _FLOAT16, _FOLDED = (tl.constexpr(_words_ptx(kind)) for kind in ("bfloat16", "float16", "folded"))
_E4M3 = tl.constexpr(_e4m3_ptx())
_FOUR, _FOUR_BY_FACTOR = tl.constexpr("=&r,=&r,=&r,=&r,r,r"), tl.constexpr("=&r,=&r,=&r,=&r,r,r,f")
_TWO = tl.constexpr("=&r,=&r,r,r")


@triton.jit
def _twice(scale, DTYPE: tl.constexpr):
    """int32: float32 `scale`, which DTYPE holds exactly, in both halves."""
    if DTYPE == tl.bfloat16:  # noqa: SIM300 - DTYPE is what varies
        bits = scale.to(tl.int32, bitcast=True)
        return bits & -65536 | bits >> 16 & 0xFFFF
    else:  # noqa: RET505 - Triton would compile both returns
        return (scale.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF) * 0x10001


@triton.jit
def _in_order(a, b, c, d):
    """int32 [A, B, 4 C] of [A, B, C] each: a[0], b[0], c[0], d[0], a[1], ..."""
    joined = tl.join(tl.join(a, c), tl.join(b, d))
    return joined.reshape(a.shape[0], a.shape[1], 4 * a.shape[2])


@triton.jit
def _decoded_words(words, scales, factor, DTYPE: tl.constexpr, FOLDED: tl.constexpr):
    """int32 [A, B, 4 C]: the elements of int32 `words` [A, B, C] as DTYPE, several in each, by PTX; as `_decoded` gives them.

    Of E4M3, DTYPE uint8, it is [A, B, 2 C].
    """
    scale = e4m3(scales) * 2.0**120
    if DTYPE == tl.uint8:  # noqa: SIM300 - DTYPE is what varies
        scale = _twice(scale * factor, tl.float16)
        a, b = tl.inline_asm_elementwise(_E4M3, _TWO, [words, scale], (tl.int32, tl.int32), True, 1)
        return tl.join(a, b).reshape(words.shape[0], words.shape[1], 2 * words.shape[2])
    elif FOLDED:  # noqa: RET505 - Triton would compile all returns
        scale_twice, factors = _twice(scale, DTYPE), tl.zeros_like(scale) + factor
        a, b, c, d = tl.inline_asm_elementwise(
            _FOLDED, _FOUR_BY_FACTOR, [words, scale_twice, factors], (tl.int32, tl.int32, tl.int32, tl.int32), True, 1
        )
        return _in_order(a, b, c, d)
    else:
        ASM: tl.constexpr = _BFLOAT16 if tl.bfloat16 == DTYPE else _FLOAT16
        a, b, c, d = tl.inline_asm_elementwise(
            ASM, _FOUR, [words, _twice(scale, DTYPE)], (tl.int32, tl.int32, tl.int32, tl.int32), True, 1
        )
        return _in_order(a, b, c, d)


@triton.jit
def _decoded(words, scales, factor):
    """float32 [A, B, C, 8]: e2m1 * e4m3 * factor of int32 `words` [A, B, C] under uint8 `scales` of that shape.

    One rounding, by the last factor; none where that is a power of two.
    """
    code = words[:, :, :, None] << (28 - 4 * tl.arange(0, 8))[None, None, None, :]  # at the top: s e e m
    value = (code >> 6 & -0x7E400000).to(tl.float32, bitcast=True)  # e2m1 * 2^-126; the shift keeps the sign
    scale = e4m3(scales) * 2.0**120 * 2.0**119
    return value * scale[:, :, :, None] * (factor * _UNIT)


@triton.jit
def _as_stored(values, DTYPE: tl.constexpr, HAS_E4M3: tl.constexpr):
    """float32 `values` rounded to DTYPE, of which uint8 stands for E4M3. HAS_E4M3: by the GPU's own conversion."""
    if tl.uint8 != DTYPE:
        return rounded(values, DTYPE)
    elif HAS_E4M3:  # noqa: RET505 - Triton would compile all returns
        return values.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    else:
        magnitude, _ = round_to_e4m3(tl.abs(values))
        return (magnitude | values.to(tl.int32, bitcast=True) >> 24 & 0x80).to(tl.uint8)


@triton.jit
def _factor(global_scale, peaks, peak, FOLDED: tl.constexpr):
    """What decoded values are multiplied by: the global scale where it is FOLDED in, 1 / unit for E4M3, else 1."""
    factor = 1.0
    if FOLDED:
        factor = tl.load(global_scale)
    if peaks is not None:
        factor = 1.0 / unit_of(tl.load(peaks + peak))
    return factor


@triton.jit
def convert_rows(
    codes,
    scales,
    global_scale,
    peaks,  # int32, the largest scale byte of each head; None where the result is no E4M3
    out,
    codes_page_stride,
    codes_head_stride,
    codes_line_stride,
    scales_page_stride,
    scales_head_stride,
    scales_line_stride,
    peaks_page_stride,
    heads,
    tokens,
    chunks,
    WIDTH: tl.constexpr,  # head dim
    FOLDED: tl.constexpr,
    IN_WORDS: tl.constexpr,
    HAS_E4M3: tl.constexpr,
    UNROLL: tl.constexpr,
    LANES: tl.constexpr,  # threads
    WORDS: tl.constexpr,  # words of codes that become 16 bytes
    PACKED: tl.constexpr,  # lines of codes, and of scales, lie one behind the other
):
    """A chunk of UNROLL * LANES * WORDS words of one page's head.  grid = (pages * heads * chunks)"""
    plane = tl.program_id(0) // chunks
    page = (plane // heads).to(tl.int64)
    head = (plane % heads).to(tl.int64)
    PER_LINE: tl.constexpr = WIDTH // 8
    group = (tl.program_id(0) % chunks * UNROLL + tl.arange(0, UNROLL))[:, None] * LANES + tl.arange(0, LANES)[None, :]
    word = group[:, :, None] * WORDS + tl.arange(0, WORDS)[None, None, :]
    exists = word < tokens * PER_LINE
    codes += page * codes_page_stride + head * codes_head_stride
    scales += page * scales_page_stride + head * scales_head_stride
    if PACKED:
        words = _load_words(codes, word, exists, IN_WORDS, WORDS)
        scale = tl.load(scales + word // 2, mask=exists, other=0)
    else:
        line = (word // PER_LINE).to(tl.int64)
        in_line = word % PER_LINE
        words = _load_words(codes + line * codes_line_stride, in_line, exists, IN_WORDS, WORDS)
        scale = tl.load(scales + line * scales_line_stride + in_line // 2, mask=exists, other=0)
    factor = _factor(global_scale, peaks, page * peaks_page_stride + head, FOLDED)
    out += plane.to(tl.int64) * tokens * WIDTH
    DTYPE: tl.constexpr = out.dtype.element_ty
    if _INTERPRETED or (tl.uint8 == DTYPE and not HAS_E4M3) or (FOLDED and tl.bfloat16 != DTYPE):
        values = _as_stored(_decoded(words, scale, factor), DTYPE, HAS_E4M3).reshape(UNROLL, LANES, 8 * WORDS)
    else:
        values = _decoded_words(words, scale, factor, DTYPE, FOLDED)
        out = out.to(tl.pointer_type(tl.int32))
    SIZE: tl.constexpr = values.shape[2]
    place = group[:, :, None] * SIZE + tl.arange(0, SIZE)[None, None, :]
    tl.store(out + place, values, mask=(group * WORDS < tokens * PER_LINE)[:, :, None])


@triton.jit
def convert_columns(
    codes,
    scales,
    global_scale,
    peaks,
    out,
    codes_page_stride,
    codes_head_stride,
    codes_line_stride,
    scales_page_stride,
    scales_head_stride,
    scales_line_stride,
    peaks_page_stride,
    heads,
    tokens,
    chunks,
    WIDTH: tl.constexpr,
    FOLDED: tl.constexpr,
    IN_WORDS: tl.constexpr,
    HAS_E4M3: tl.constexpr,
    LINES: tl.constexpr,  # head dims of a program
    TOKENS: tl.constexpr,  # its tokens
):
    """TOKENS of LINES head dims of one page's head.  grid = (pages * heads * chunks), the chunks of head dims fastest"""
    plane = tl.program_id(0) // chunks
    page = (plane // heads).to(tl.int64)
    head = (plane % heads).to(tl.int64)
    parts: tl.constexpr = (WIDTH + LINES - 1) // LINES
    line = tl.program_id(0) % chunks % parts * LINES + tl.arange(0, LINES)
    first = tl.program_id(0) % chunks // parts * TOKENS
    word = first // 8 + tl.arange(0, TOKENS // 8)
    exists = (line < WIDTH)[:, None] & (word * 8 < tokens)[None, :]
    codes += page * codes_page_stride + head * codes_head_stride
    scales += page * scales_page_stride + head * scales_head_stride
    line_64 = line.to(tl.int64)[:, None]
    words = _load_words(codes + line_64 * codes_line_stride, word[None, :], exists, IN_WORDS, 2)
    scale = tl.load(scales + line_64 * scales_line_stride + (word // 2)[None, :], mask=exists, other=0)
    factor = _factor(global_scale, peaks, page * peaks_page_stride + head, FOLDED)
    values = _decoded(words[:, :, None], scale[:, :, None], factor).reshape(LINES, TOKENS)
    values = tl.trans(_as_stored(values, out.dtype.element_ty, HAS_E4M3))

    token = first + tl.arange(0, TOKENS)
    out += plane.to(tl.int64) * tokens * WIDTH
    place = token.to(tl.int64)[:, None] * WIDTH + line[None, :]
    tl.store(out + place, values, mask=(token < tokens)[:, None] & (line < WIDTH)[None, :])


@triton.jit
def find_peaks(
    scales,
    peaks,  # int32, 0 before
    scales_page_stride,
    scales_head_stride,
    scales_line_stride,
    peaks_page_stride,
    heads,
    lines,
    chunks,
    PER_LINE: tl.constexpr,  # scales of a line
    PACKED: tl.constexpr,  # lines lie one behind the other
    COUNT: tl.constexpr,
):
    """Raise the peak of one page's head to the largest of COUNT of its scale bytes, NaN and signs left out.

    E4M3 is ordered as its bytes are.  grid = (pages * heads * chunks)
    """
    plane = tl.program_id(0) // chunks
    page = (plane // heads).to(tl.int64)
    head = (plane % heads).to(tl.int64)
    index = tl.program_id(0) % chunks * COUNT + tl.arange(0, COUNT)
    scales += page * scales_page_stride + head * scales_head_stride
    if PACKED:
        places = scales + index
    else:
        places = scales + (index // PER_LINE).to(tl.int64) * scales_line_stride + index % PER_LINE
    byte = tl.load(places, mask=index < lines * PER_LINE, other=0).to(tl.int32) & 0x7F
    largest = tl.max(tl.where(byte == 0x7F, 0, byte), 0)
    peak = peaks + page * peaks_page_stride + head
    if largest > tl.load(peak):  # peaks only rise, so an old one is no harm: most programs add nothing to the queue
        tl.atomic_max(peak, largest)
