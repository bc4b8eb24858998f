"""MMA once more, slowly: Python integers, one output at a time, fragments by a loop over lanes.

Written from the PTX ISA's fragments and from the measured rules of the adder, without the emulator's tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

NAN, INFINITY = "nan", "infinity"


@dataclass(frozen=True)
class Number:
    """A finite value mantissa x 2^scale with its encoded exponent, or a special one."""

    mantissa: int = 0
    scale: int = 0
    encoded: int = 0
    special: str = ""
    sign: int = 1


LAYOUTS = {  # name: exponent bits, fraction bits, bias, what the top exponent means
    "f32": (8, 23, 127, "ieee"),
    "tf32": (8, 10, 127, "ieee"),
    "f16": (5, 10, 15, "ieee"),
    "bf16": (8, 7, 127, "ieee"),
    "e5m2": (5, 2, 15, "ieee"),
    "e4m3": (4, 3, 7, "nan at all ones"),
    "e3m2": (3, 2, 3, "numbers"),
    "e2m3": (2, 3, 1, "numbers"),
    "e2m1": (2, 1, 1, "numbers"),
}


def decode(name: str, code: int) -> Number:
    if name == "ue8m0":
        return Number(special=NAN) if code == 255 else Number(1, code - 127, code - 127)
    if name == "ue4m3":
        return decode("e4m3", code & 0x7F)
    exponent_bits, fraction_bits, bias, top = LAYOUTS[name]
    fraction = code & ((1 << fraction_bits) - 1)
    field = (code >> fraction_bits) & ((1 << exponent_bits) - 1)
    sign = -1 if (code >> (fraction_bits + exponent_bits)) & 1 else 1
    if field == (1 << exponent_bits) - 1:
        if top == "ieee":
            return Number(special=NAN if fraction else INFINITY, sign=sign)
        if top == "nan at all ones" and fraction == (1 << fraction_bits) - 1:
            return Number(special=NAN)
    if field:
        fraction += 1 << fraction_bits
    encoded = max(field, 1) - bias
    return Number(sign * fraction, encoded - fraction_bits, encoded, sign=sign)


def after_conversion_to_f16(number: Number) -> Number:
    """The same value with the exponent that f16 encodes it with."""
    if number.special or not number.mantissa:
        return number
    return Number(
        number.mantissa, number.scale, max(abs(number.mantissa).bit_length() - 1 + number.scale, -14), sign=number.sign
    )


def times(a: Number, b: Number) -> Number:
    if NAN in (a.special, b.special):
        return Number(special=NAN)
    if INFINITY in (a.special, b.special):
        zero = (not a.special and not a.mantissa) or (not b.special and not b.mantissa)
        return Number(special=NAN) if zero else Number(special=INFINITY, sign=a.sign * b.sign)
    return Number(a.mantissa * b.mantissa, a.scale + b.scale, a.encoded + b.encoded, sign=a.sign * b.sign)


def special_sum(numbers: list[Number]) -> Number | None:
    signs = {number.sign for number in numbers if number.special == INFINITY}
    if any(number.special == NAN for number in numbers) or len(signs) == 2:
        return Number(special=NAN)
    return Number(special=INFINITY, sign=signs.pop()) if signs else None


def truncated(number: Number, quantum: int) -> int:
    shift = number.scale - quantum
    magnitude = abs(number.mantissa)
    magnitude = magnitude << shift if shift >= 0 else magnitude >> -shift
    return -magnitude if number.mantissa < 0 else magnitude


def windowed_sum(terms: list[Number], window: int) -> Number | Fraction:
    """Terms, C among them, truncated to the window below the largest encoded exponent of those that are not zero."""
    special = special_sum(terms)
    if special:
        return special
    exponents = [term.encoded for term in terms if term.mantissa]
    if not exponents:
        return Fraction(0)
    quantum = max(exponents) - window
    return sum(truncated(term, quantum) for term in terms) * Fraction(2) ** quantum


def exponent_of(value: Fraction) -> int:
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return exponent if magnitude >= Fraction(2) ** exponent else exponent - 1


def to_single(value: Number | Fraction, fraction_bits: int = 23, nearest: bool = False) -> int:
    if isinstance(value, Number):
        return 0x7FFFFFFF if value.special == NAN else 0x7F800000 | (value.sign < 0) << 31
    if not value:
        return 0
    exponent = max(exponent_of(value), -126)
    if exponent > 127:
        return 0x7F800000 | (value < 0) << 31
    exact = abs(value) / Fraction(2) ** (exponent - 23)
    mantissa = round(exact) if nearest else int(exact)
    mantissa &= -1 << (23 - fraction_bits)
    return (mantissa + (exponent + 126 << 23)) | (value < 0) << 31 if mantissa else 0


def to_half(value: Number | Fraction) -> int:
    if isinstance(value, Number):
        return 0x7FFF if value.special == NAN else 0x7C00 | (value.sign < 0) << 15
    if not value:
        return 0
    exponent = max(exponent_of(value), -14)
    mantissa = round(abs(value) / Fraction(2) ** (exponent - 10))
    return min(mantissa + (exponent + 14 << 10), 0x7C00) | (value < 0) << 15 if mantissa else 0


# Fragments: loops over lanes and registers, as the PTX ISA writes them.


def _elements(registers, bits: int) -> list[list[int]]:
    """[lane][element of all registers]: the lowest bits of each register first."""
    count = 32 // bits
    return [[int(word) >> bits * i & (1 << bits) - 1 for word in lane for i in range(count)] for lane in registers]


def matrix_a(registers, bits: int) -> list[list[int]]:
    """[row][k] of one warp's A, registers [32][r]."""
    per_register, count = 32 // bits, len(registers[0])
    k_columns = 4 * per_register * (count // 2)
    a = [[0] * k_columns for _ in range(16)]
    for lane, elements in enumerate(_elements(registers, bits)):
        for position, element in enumerate(elements):
            r, i = divmod(position, per_register)
            row = lane // 4 + (8 if r in (1, 3) else 0)
            column = lane % 4 * per_register + i + (4 * per_register if r >= 2 else 0)
            a[row][column] = element
    return a


def matrix_b(registers, bits: int) -> list[list[int]]:
    """[column][k] of one warp's B."""
    per_register, count = 32 // bits, len(registers[0])
    b = [[0] * (4 * per_register * count) for _ in range(8)]
    for lane, elements in enumerate(_elements(registers, bits)):
        for position, element in enumerate(elements):
            r, i = divmod(position, per_register)
            b[lane // 4][lane % 4 * per_register + i + r * 4 * per_register] = element
    return b


def matrix_c(registers, bits: int) -> list[list[int]]:
    """[row][column] of one warp's C or D."""
    c = [[0] * 8 for _ in range(16)]
    for lane, elements in enumerate(_elements(registers, bits)):
        for i, element in enumerate(elements):
            c[lane // 4 + (8 if i >= 2 else 0)][lane % 4 * 2 + i % 2] = element
    return c


def scales_a(data, byte: int, thread: int, count: int) -> list[list[int]]:
    """[row][block]: quad q gives the rows q and q + 8, the lower lane of the pair that `thread` names the former."""
    rows = []
    for row in range(16):
        quad, upper = (row, 0) if row < 8 else (row - 8, 1)
        word = int(data[4 * quad + 2 * thread + upper])
        rows.append([word >> 8 * (byte + j) & 255 for j in range(count)])
    return rows


def scales_b(data, byte: int, thread: int, count: int) -> list[list[int]]:
    """[column][block]."""
    return [[int(data[4 * column + thread]) >> 8 * (byte + j) & 255 for j in range(count)] for column in range(8)]


def each_output(function) -> np.ndarray:
    return np.array([[function(row, column) for column in range(8)] for row in range(16)])


def windowed(a_codes, b_codes, c_codes, types, window, parts, to, scales=None) -> np.ndarray:
    """D's codes [16][8]: K in `parts`, one after the other; `to` rounds and gives the code of the next part's C."""
    a_type, b_type, c_type = types
    a = [[decode(a_type, code) for code in row] for row in a_codes]
    b = [[decode(b_type, code) for code in row] for row in b_codes]

    def output(row: int, column: int) -> int:
        code, step = c_codes[row][column], len(a[0]) // parts
        for start in range(0, len(a[0]), step):
            terms = [times(x, y) for x, y in zip(a[row][start : start + step], b[column][start : start + step], strict=True)]
            if scales:
                scale = times(decode("ue8m0", scales[0][row][0]), decode("ue8m0", scales[1][column][0]))
                terms = [times(term, scale) for term in terms]
            code = to(windowed_sum([*terms, decode(c_type, code)], window))
        return code

    return each_output(output)


def converted(a_codes, b_codes, c_codes, types, to) -> np.ndarray:
    """D's codes [16][8] of fp8 as two f16 MMAs: bytes 0 and 1 of every word, then 2 and 3, without C; then C + the result."""
    a_type, b_type, c_type = types
    a = [[after_conversion_to_f16(decode(a_type, code)) for code in row] for row in a_codes]
    b = [[after_conversion_to_f16(decode(b_type, code)) for code in row] for row in b_codes]

    def output(row: int, column: int) -> int:
        code = 0
        for pair in ((0, 1), (2, 3)):
            terms = [times(a[row][k], b[column][k]) for k in range(len(a[0])) if k % 4 in pair]
            code = to(windowed_sum([*terms, decode(c_type, code)], 25))
        summands = [decode(c_type, c_codes[row][column]), decode(c_type, code)]
        exact = special_sum(summands) or sum(s.mantissa * Fraction(2) ** s.scale for s in summands)
        return to_half(exact) if c_type == "f16" else to_single(exact, nearest=True)

    return each_output(output)


def block_scaled(a_codes, b_codes, c_codes, scale_type, sa, sb, to=to_single, window=35) -> np.ndarray:
    """D's codes [16][8] of E2M1 with scales [row][2 or 4] and [column][2 or 4]."""

    def output(row: int, column: int) -> int:
        c = decode("f32", c_codes[row][column])
        scales = [
            times(decode(scale_type, sa[row][j * len(sa[row]) // 4]), decode(scale_type, sb[column][j * len(sb[column]) // 4]))
            for j in range(4)
        ]
        special = special_sum([c, *scales])
        if special:
            return to(special)
        blocks, touched = [], False
        for j, scale in enumerate(scales):
            dot = 0  # in quarters
            for k in range(16 * j, 16 * j + 16):
                product = times(decode("e2m1", a_codes[row][k]), decode("e2m1", b_codes[column][k]))
                touched |= product.mantissa * scale.mantissa != 0
                dot += product.mantissa * 2 ** (product.scale + 2)
            blocks.append(Number(dot * scale.mantissa, scale.scale - 2, scale.encoded))
        if not touched:
            return c_codes[row][column]
        exponents = [s.encoded for s in scales if s.mantissa] + ([c.encoded] if c.mantissa else [])
        quantum = max(exponents) - window
        return to(sum(truncated(term, quantum) for term in [*blocks, c]) * Fraction(2) ** quantum)

    return each_output(output)


def exact_block_scaled(a_codes, b_codes, c_codes, sa, sb) -> list[list[Fraction]]:
    """The exact sums behind NVFP4: no window."""

    def value(number: Number) -> Fraction:
        return number.mantissa * Fraction(2) ** number.scale

    def output(row: int, column: int) -> Fraction:
        total = value(decode("f32", c_codes[row][column]))
        for j in range(4):
            scale = value(decode("ue4m3", sa[row][j])) * value(decode("ue4m3", sb[column][j]))
            for k in range(16 * j, 16 * j + 16):
                total += scale * value(decode("e2m1", a_codes[row][k])) * value(decode("e2m1", b_codes[column][k]))
        return total

    return [[output(row, column) for column in range(8)] for row in range(16)]
