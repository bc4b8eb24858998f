"""Kernels that turn NVFP4 into 16 bits or E4M3, at the speed of memory.

    convert_rows      blocks along the head dim: codes are read and values written in the same order
    convert_columns   blocks along the tokens: turned on the way, in registers
    find_peaks        the largest block scale of each head, which E4M3 is made relative to

All view a cache as [pages, heads, lines, bytes], a page of a dense one being a sequence, and write [pages, heads, tokens,
head dim], packed. Codes are read in words of 8 elements, which PTX decodes in registers: 3 to 5 instructions an element with
all that is around it, where an H200 has time for 20 an element of 2 bytes and 12 of 1. Triton's own transposition would go
through shared memory an element at a time, 20 instructions each.

In Triton's interpreter, which has no PTX, the same values come from arithmetic in float32.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806, SIM108
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"

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
def _load_word(lines, number, needed, ALIGNED: tl.constexpr):
    """int32: word `number` of 4 bytes of the `lines` at these byte addresses, zeros where not needed.

    ALIGNED: bytes that divide the addresses. The addresses are of bytes, so that the compiler sees no run of words: Triton 3.6
    would give a thread several, and bring them into place through shared memory.
    """
    places = lines + number * 4
    if ALIGNED >= 4:
        return tl.load(places.to(tl.pointer_type(tl.int32)), mask=needed, other=0)
    else:  # noqa: RET505 - Triton would compile both returns
        word = tl.load(places, mask=needed, other=0).to(tl.int32)
        for byte in tl.static_range(1, 4):
            word |= tl.load(places + byte, mask=needed, other=0).to(tl.int32) << 8 * byte
        return word


@triton.jit
def _load_block(lines, number, needed, ALIGNED: tl.constexpr):
    """(int32, int32): the two words of block `number` of 16 elements, as `_load_word` loads one."""
    if ALIGNED >= 8:
        both = tl.load((lines + number * 8).to(tl.pointer_type(tl.int64)), mask=needed, other=0)
        return both.to(tl.int32), (both >> 32).to(tl.int32)
    else:  # noqa: RET505 - Triton would compile both returns
        return _load_word(lines, 2 * number, needed, ALIGNED), _load_word(lines, 2 * number + 1, needed, ALIGNED)


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


def _table_ptx() -> str:
    """PTX: a block's 8 magnitudes as E4M3, in order, four in $0 and four in $1, of its scale in float16, twice in $2."""
    lines = ["{ .reg .b32 magnitudes; .reg .b16 b0, b1, b2, b3;"]
    for i, pair in enumerate((0x38000000, 0x3E003C00, 0x42004000, 0x46004400)):  # 0 and 0.5, 1 and 1.5, 2 and 3, 4 and 6
        lines += [f"mov.b32 magnitudes, 0x{pair:08X};", "mul.rn.f16x2 magnitudes, $2, magnitudes;"]
        lines.append(f"cvt.rn.satfinite.e4m3x2.f16x2 b{i}, magnitudes;")
    return "\n".join([*lines, "mov.b32 $0, {b0, b1};", "mov.b32 $1, {b2, b3};", "}"])


def _look_up_ptx() -> str:
    """PTX: the 8 elements of word $2, in order, as bytes of the table in $3 and $4, four in $0 and four in $1.

    prmt looks four up at a time: its selectors are the codes themselves, without their signs. Where a selector has its highest
    bit set prmt repeats the sign of the byte chosen, so that of bytes 0x80 it makes 0xFF of a negative code.
    """
    lines = ["{ .reg .b32 selectors, bits, signs, upper;", "mov.b32 bits, 0x80808080;", "shr.u32 upper, $2, 16;"]
    for result, codes in (("$0", "$2"), ("$1", "upper")):
        lines += [f"and.b32 selectors, {codes}, 0x7777;", f"prmt.b32 {result}, $3, $4, selectors;"]
        lines += [f"prmt.b32 signs, bits, bits, {codes};", "shl.b32 signs, signs, 7;"]
        lines.append(f"lop3.b32 {result}, signs, 0x80808080, {result}, 0x6A;")  # (signs & 0x80808080) ^ magnitudes
    return "\n".join([*lines, "}"])


def _turn_ptx(selectors: tuple[int, ...]) -> str:
    """PTX: bytes of $n and $n+1, the last two operands, by one prmt for each result."""
    n = len(selectors)
    return "\n".join(f"prmt.b32 ${i}, ${n}, ${n + 1}, 0x{selector:04X};" for i, selector in enumerate(selectors))


_BFLOAT16, _FLOAT16, _FOLDED = (tl.constexpr(_words_ptx(kind)) for kind in ("bfloat16", "float16", "folded"))
_TABLE, _LOOK_UP = tl.constexpr(_table_ptx()), tl.constexpr(_look_up_ptx())
_TURN_HALVES, _TURN_BYTES = tl.constexpr(_turn_ptx((0x5410, 0x7632))), tl.constexpr(_turn_ptx((0x5140, 0x7362)))
_FOUR_OF_TWO, _FOUR_OF_THREE = tl.constexpr("=&r,=&r,=&r,=&r,r,r"), tl.constexpr("=&r,=&r,=&r,=&r,r,r,f")
_TWO_OF_ONE, _TWO_OF_TWO = tl.constexpr("=&r,=&r,r"), tl.constexpr("=&r,=&r,r,r")
_TWO_OF_THREE = tl.constexpr("=&r,=&r,r,r,r")


@triton.jit
def _twice(scale, DTYPE: tl.constexpr):
    """int32: float32 `scale`, which DTYPE holds exactly, in both halves."""
    if DTYPE == tl.bfloat16:  # noqa: SIM300 - DTYPE is what varies
        bits = scale.to(tl.int32, bitcast=True)
        return bits & -65536 | bits >> 16 & 0xFFFF
    else:  # noqa: RET505 - Triton would compile both returns
        return (scale.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF) * 0x10001


@triton.jit
def _rounded_magnitude(scale, MAGNITUDE: tl.constexpr):
    """int32 byte: MAGNITUDE * float32 `scale`, rounded to E4M3."""
    byte, _ = round_to_e4m3(tl.abs(scale) * MAGNITUDE)
    return byte | scale.to(tl.int32, bitcast=True) >> 24 & 0x80


@triton.jit
def _table(scale, HAS_E4M3: tl.constexpr):
    """(int32, int32): the 8 magnitudes of E2M1 times float32 `scale` in E4M3. Each is exact before it is rounded."""
    if HAS_E4M3:
        return tl.inline_asm_elementwise(_TABLE, _TWO_OF_ONE, [_twice(scale, tl.float16)], (tl.int32, tl.int32), True, 1)
    else:  # noqa: RET505 - Triton would compile both returns
        low = _rounded_magnitude(scale, 0.0) | _rounded_magnitude(scale, 0.5) << 8
        low |= _rounded_magnitude(scale, 1.0) << 16 | _rounded_magnitude(scale, 1.5) << 24
        high = _rounded_magnitude(scale, 2.0) | _rounded_magnitude(scale, 3.0) << 8
        return low, high | _rounded_magnitude(scale, 4.0) << 16 | _rounded_magnitude(scale, 6.0) << 24


@triton.jit
def _decoded_word(word, scale, factor, DTYPE: tl.constexpr, FOLDED: tl.constexpr):
    """Four int32: the 8 elements of each `word` in order, in 16 bits, under float32 `scale`."""
    twice = _twice(scale, DTYPE)
    if FOLDED:
        return tl.inline_asm_elementwise(
            _FOLDED,
            _FOUR_OF_THREE,
            [word, twice, tl.zeros_like(scale) + factor],
            (tl.int32, tl.int32, tl.int32, tl.int32),
            True,
            1,
        )
    elif DTYPE == tl.bfloat16:  # noqa: RET505, SIM300 - Triton would compile all returns
        return tl.inline_asm_elementwise(
            _BFLOAT16, _FOUR_OF_TWO, [word, twice], (tl.int32, tl.int32, tl.int32, tl.int32), True, 1
        )
    else:
        return tl.inline_asm_elementwise(
            _FLOAT16, _FOUR_OF_TWO, [word, twice], (tl.int32, tl.int32, tl.int32, tl.int32), True, 1
        )


@triton.jit
def _decoded_block(low, high, scales, factor, DTYPE: tl.constexpr, FOLDED: tl.constexpr, HAS_E4M3: tl.constexpr):
    """A tuple of int32: the 16 elements of each block in order, two in each of eight, or of E4M3 four in each of four."""
    scale = e4m3(scales) * 2.0**120
    if DTYPE == tl.uint8:  # noqa: SIM300 - DTYPE is what varies
        a, b = _table(scale * factor, HAS_E4M3)
        first = tl.inline_asm_elementwise(_LOOK_UP, _TWO_OF_THREE, [low, a, b], (tl.int32, tl.int32), True, 1)
        return first + tl.inline_asm_elementwise(_LOOK_UP, _TWO_OF_THREE, [high, a, b], (tl.int32, tl.int32), True, 1)
    else:  # noqa: RET505 - Triton would compile both returns
        first = _decoded_word(low, scale, factor, DTYPE, FOLDED)
        return first + _decoded_word(high, scale, factor, DTYPE, FOLDED)


@triton.jit
def _decoded(words, scales, factor):
    """float32 [..., 8]: e2m1 * e4m3 * factor of int32 `words` [...] under uint8 `scales` [...], where there is no PTX.

    One rounding, by the last factor; none where that is a power of two.
    """
    code = tl.expand_dims(words, -1) << (28 - 4 * tl.arange(0, 8))  # at the top: s e e m
    value = (code >> 6 & -0x7E400000).to(tl.float32, bitcast=True)  # e2m1 * 2^-126; the shift keeps the sign
    scale = e4m3(scales) * 2.0**120 * 2.0**119
    return value * tl.expand_dims(scale, -1) * (factor * _UNIT)


@triton.jit
def _as_stored(values, DTYPE: tl.constexpr):
    """float32 `values` rounded to DTYPE, of which uint8 stands for E4M3."""
    if DTYPE == tl.uint8:  # noqa: SIM300 - DTYPE is what varies
        magnitude, _ = round_to_e4m3(tl.abs(values))
        return (magnitude | values.to(tl.int32, bitcast=True) >> 24 & 0x80).to(tl.uint8)
    else:  # noqa: RET505 - Triton would compile both returns
        return rounded(values, DTYPE)


@triton.jit
def _store_words(out, words, mask):
    """Store the int32 `words`, two or four tensors alike, side by side at each of the addresses `out`, in one instruction."""
    if len(words) == 2:
        joined = tl.join(words[0], words[1])
    else:
        pairs = tl.join(tl.join(words[0], words[2]), tl.join(words[1], words[3]))
        joined = pairs.reshape(words[0].shape + (4,))  # noqa: RUF005 - Triton unpacks nothing
    places = tl.expand_dims(out.to(tl.pointer_type(tl.int32)), -1) + tl.arange(0, len(words))
    tl.store(places, joined, mask=tl.expand_dims(mask, -1))


@triton.jit
def _factor_after_loads(global_scale, peaks, peak, FOLDED: tl.constexpr):
    """What decoded values are multiplied by: the global scale where it is FOLDED in, 1 / unit for E4M3, else 1.

    It is loaded behind a barrier, which no load crosses: what needs it, ptxas cannot put before the last of the other loads,
    of which it would leave some until others have arrived.
    """
    if not _INTERPRETED:
        tl.debug_barrier()
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
    ALIGNED: tl.constexpr,  # bytes that divide the addresses of lines of codes
    HAS_E4M3: tl.constexpr,  # the GPU rounds to E4M3
    PACKED: tl.constexpr,  # lines of codes, and of scales, lie one behind the other
    LANES: tl.constexpr,  # threads
    UNROLL: tl.constexpr,
):
    """Each thread UNROLL times 16 bytes of values: 8 elements of 2 bytes, or 16 of 1.  grid = (pages * heads * chunks)"""
    plane = tl.program_id(0) // chunks
    page = (plane // heads).to(tl.int64)
    head = (plane % heads).to(tl.int64)
    DTYPE: tl.constexpr = out.dtype.element_ty
    SIZE: tl.constexpr = 16 if tl.uint8 == DTYPE else 8
    PER_LINE: tl.constexpr = WIDTH // SIZE
    number = (tl.program_id(0) % chunks * UNROLL + tl.arange(0, UNROLL))[:, None] * LANES + tl.arange(0, LANES)[None, :]
    exists = number < tokens * PER_LINE
    codes += page * codes_page_stride + head * codes_head_stride
    scales += page * scales_page_stride + head * scales_head_stride
    out += plane.to(tl.int64) * tokens * WIDTH
    in_line = number
    if not PACKED:
        line = (number // PER_LINE).to(tl.int64)
        in_line = number % PER_LINE
        codes += line * codes_line_stride
        scales += line * scales_line_stride
    # shifted to and fro so that the compiler sees no run of bytes: see `_load_word`
    scale = tl.load(scales + (in_line >> 1 if SIZE == 8 else in_line << 1 >> 1), mask=exists, other=0)
    if SIZE == 8:
        low = _load_word(codes, in_line, exists, ALIGNED)
    else:
        low, high = _load_block(codes, in_line, exists, ALIGNED)
    factor = _factor_after_loads(global_scale, peaks, page * peaks_page_stride + head, FOLDED)
    if _INTERPRETED and SIZE == 8:
        values = _as_stored(_decoded(low, scale, factor), DTYPE)
        tl.store(out + number[:, :, None] * 8 + tl.arange(0, 8), values, mask=exists[:, :, None])
    elif _INTERPRETED:
        values = _as_stored(_decoded(tl.join(low, high), tl.join(scale, scale), factor), DTYPE).reshape(UNROLL, LANES, 16)
        tl.store(out + number[:, :, None] * 16 + tl.arange(0, 16), values, mask=exists[:, :, None])
    elif SIZE == 8:
        words = _decoded_word(low, e4m3(scale) * 2.0**120, factor, DTYPE, FOLDED)
        _store_words(out + number.to(tl.int64) * 8, words, exists)
    else:
        words = _decoded_block(low, high, scale, factor, DTYPE, False, HAS_E4M3)
        _store_words(out + number.to(tl.int64) * 16, words, exists)


@triton.jit
def _turned(a, b, BYTES: tl.constexpr):
    """(the lower, the upper) halves or bytes of int32 `a` and `b` by turns."""
    return tl.inline_asm_elementwise(_TURN_BYTES if BYTES else _TURN_HALVES, _TWO_OF_TWO, [a, b], (tl.int32, tl.int32), True, 1)


@triton.jit
def _turned_bytes(a, b, c, d):
    """Four int32: byte n of each operand, in their order, is in the n-th."""
    ab = _turned(a, b, True)
    cd = _turned(c, d, True)
    return _turned(ab[0], cd[0], False) + _turned(ab[1], cd[1], False)


@triton.jit
def _store_turned(out, lines, left, exists, WIDTH: tl.constexpr):
    """Store a block of 16 tokens of 8 head dims; `lines` holds these as `_decoded_block` gives each.

    out: the address of the first head dim of the first token. left: tokens from there on.
    """
    WORDS: tl.constexpr = len(lines[0])
    for i in tl.static_range(WORDS):
        if WORDS == 8:
            a = _turned(lines[0][i], lines[1][i], False)
            b = _turned(lines[2][i], lines[3][i], False)
            c = _turned(lines[4][i], lines[5][i], False)
            d = _turned(lines[6][i], lines[7][i], False)
            tokens = ((a[0], b[0], c[0], d[0]), (a[1], b[1], c[1], d[1]))
        else:
            a = _turned_bytes(lines[0][i], lines[1][i], lines[2][i], lines[3][i])
            b = _turned_bytes(lines[4][i], lines[5][i], lines[6][i], lines[7][i])
            tokens = ((a[0], b[0]), (a[1], b[1]), (a[2], b[2]), (a[3], b[3]))
        for n in tl.static_range(16 // WORDS):
            token = 16 // WORDS * i + n
            _store_words(out + token * WIDTH, tokens[n], exists & (token < left))


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
    ALIGNED: tl.constexpr,
    HAS_E4M3: tl.constexpr,
    LANES: tl.constexpr,  # threads
    ACROSS: tl.constexpr,  # how many of them lie side by side along the head dims
):
    """A block of 16 tokens of 8 head dims by each thread.  grid = (pages * heads * chunks), chunks of head dims fastest

    A thread turns its elements in its registers, and stores the 8 head dims of one token at a time.
    """
    plane = tl.program_id(0) // chunks
    page = (plane // heads).to(tl.int64)
    head = (plane % heads).to(tl.int64)
    PARTS: tl.constexpr = (WIDTH + 8 * ACROSS - 1) // (8 * ACROSS)
    lane = tl.arange(0, LANES)
    dim = (tl.program_id(0) % chunks % PARTS * ACROSS + lane % ACROSS) * 8
    block = tl.program_id(0) % chunks // PARTS * (LANES // ACROSS) + lane // ACROSS
    left = tokens - block * 16
    exists = (dim < WIDTH) & (left > 0)
    codes += page * codes_page_stride + head * codes_head_stride + dim.to(tl.int64) * codes_line_stride
    scales += page * scales_page_stride + head * scales_head_stride + dim.to(tl.int64) * scales_line_stride
    out += plane.to(tl.int64) * tokens * WIDTH + (block * 16).to(tl.int64) * WIDTH + dim
    DTYPE: tl.constexpr = out.dtype.element_ty
    loaded = ()
    for i in tl.static_range(8):
        low, high = _load_block(codes + i * codes_line_stride, block, exists, ALIGNED)
        scale = tl.load(scales + i * scales_line_stride + block, mask=exists, other=0)
        loaded = loaded + ((low, high, scale),)  # noqa: RUF005 - Triton unpacks nothing
    factor = _factor_after_loads(global_scale, peaks, page * peaks_page_stride + head, FOLDED)
    if _INTERPRETED:
        for i in tl.static_range(8):
            low, high, scale = loaded[i]
            values = _as_stored(_decoded(tl.join(low, high), tl.join(scale, scale), factor), DTYPE).reshape(LANES, 16)
            token = tl.arange(0, 16)[None, :]
            tl.store(out[:, None] + token * WIDTH + i, values, mask=exists[:, None] & (token < left[:, None]))
    else:
        lines = ()
        for i in tl.static_range(8):
            low, high, scale = loaded[i]
            lines = lines + (_decoded_block(low, high, scale, factor, DTYPE, FOLDED, HAS_E4M3),)  # noqa: RUF005
        _store_turned(out, lines, left, exists, WIDTH)


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
    IN_WORDS: tl.constexpr,  # PACKED, and a head's scales are whole words of 4 bytes at addresses that 16 divides
    COUNT: tl.constexpr,
):
    """Raise the peak of one page's head to the largest of COUNT of its scale bytes, NaN and signs left out.

    E4M3 is ordered as its bytes are. To each 1 is added, modulo 128, so that NaN comes below all others; of words of four
    bytes, the largest word has the largest first byte, and shifted to the left, the others.  grid = (pages * heads * chunks)
    """
    plane = tl.program_id(0) // chunks
    page = (plane // heads).to(tl.int64)
    head = (plane % heads).to(tl.int64)
    scales += page * scales_page_stride + head * scales_head_stride
    if IN_WORDS:
        index = tl.program_id(0) % chunks * (COUNT // 4) + tl.arange(0, COUNT // 4)
        words = tl.load(scales.to(tl.pointer_type(tl.int32)) + index, mask=index < lines * PER_LINE // 4, other=0)
        words = (words & 0x7F7F7F7F) + 0x01010101 & 0x7F7F7F7F
        words = tl.maximum(tl.maximum(words, words << 8), tl.maximum(words << 16, words << 24))
        largest = (tl.max(words, 0) >> 24) - 1
    else:
        index = tl.program_id(0) % chunks * COUNT + tl.arange(0, COUNT)
        if PACKED:
            places = scales + index
        else:
            places = scales + (index // PER_LINE).to(tl.int64) * scales_line_stride + index % PER_LINE
        byte = tl.load(places, mask=index < lines * PER_LINE, other=0).to(tl.int32)
        largest = tl.max(byte + 1 & 0x7F, 0) - 1
    peak = peaks + page * peaks_page_stride + head
    if largest > tl.load(peak):  # peaks only rise, so an old one is no harm: most programs add nothing to the queue
        tl.atomic_max(peak, largest)
