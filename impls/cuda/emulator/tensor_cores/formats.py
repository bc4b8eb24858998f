"""Number formats of the operands: each code's value, and the exponent that it is encoded with.

The adder aligns by encoded exponents, not by those of the values: a subnormal has the exponent of the smallest normal number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
Exponents = npt.NDArray[np.int16]

NOTHING = -8192
"""Exponent of a zero: it takes no part in the alignment. Four of them still fit in 16 bits."""

Specials = Literal["infinities and NaNs", "one NaN", "none"]


@dataclass(frozen=True)
class Encoding:
    """Sign, exponent and fraction bits of a format, from the top of `bits`."""

    exponent_bits: int
    fraction_bits: int
    bias: int
    specials: Specials
    shift: int = 0
    """Bits below the fraction in the container."""

    def exponents(self, codes: npt.NDArray[np.integer]) -> Exponents:
        """Encoded exponent of each code; that of the smallest normal number for a subnormal one, NOTHING for zero."""
        magnitude = (codes >> self.shift) & ((1 << (self.exponent_bits + self.fraction_bits)) - 1)
        exponents = np.maximum(magnitude >> self.fraction_bits, 1).astype(np.int16) - self.bias
        return np.where(magnitude == 0, NOTHING, exponents).astype(np.int16)

    def values(self, codes: npt.NDArray[np.integer]) -> Floats:
        """Exact value of each code."""
        fraction_count = 1 << self.fraction_bits
        top = (1 << self.exponent_bits) - 1
        codes = (codes >> self.shift).astype(np.int64)
        sign = np.where(codes >> (self.exponent_bits + self.fraction_bits) & 1, -1.0, 1.0)
        field, fraction = codes >> self.fraction_bits & top, codes % fraction_count
        significand = np.where(field == 0, fraction, fraction + fraction_count).astype(np.float64)
        values = np.ldexp(significand, np.maximum(field, 1) - self.bias - self.fraction_bits)
        if self.specials == "infinities and NaNs":
            values[field == top] = np.where(fraction[field == top] == 0, np.inf, np.nan)
        elif self.specials == "one NaN":
            values[(field == top) & (fraction == fraction_count - 1)] = np.nan
        return sign * values


@dataclass(frozen=True)
class Format:
    """A format whose codes are few enough for tables."""

    bits: int
    """Of the container that a code sits in."""
    values: Floats
    exponents: Exponents

    def decode(self, words: Words) -> tuple[Floats, Exponents]:
        """Values and exponents of the elements in `words` [w, ...], the lowest bits first: [w x 32 / bits, ...]."""
        shifts = np.arange(0, 32, self.bits, dtype=np.uint32).reshape(-1, *[1] * (words.ndim - 1))
        codes = ((words[:, None] >> shifts) & np.uint32((1 << self.bits) - 1)).reshape(-1, *words.shape[1:])
        return self.values.take(codes), self.exponents.take(codes)


class Tf32:
    """32-bit containers whose low 13 bits do not count."""

    _ENCODING = Encoding(8, 10, 127, "infinities and NaNs", shift=13)

    def decode(self, words: Words) -> tuple[Floats, Exponents]:
        """As Format.decode; a word holds one element."""
        truncated = words & np.uint32(0xFFFFE000)
        return truncated.view(np.float32).astype(np.float64), self._ENCODING.exponents(truncated)


def _format(encoding: Encoding, bits: int) -> Format:
    codes = np.arange(1 << bits)
    return Format(bits, encoding.values(codes), encoding.exponents(codes))


_E4M3 = _format(Encoding(4, 3, 7, "one NaN"), 8)
SINGLE = Encoding(8, 23, 127, "infinities and NaNs")
_HALF = Encoding(5, 10, 15, "infinities and NaNs")

FORMATS: dict[str, Format | Tf32] = {
    "f16": _format(_HALF, 16),
    "bf16": _format(Encoding(8, 7, 127, "infinities and NaNs"), 16),
    "tf32": Tf32(),
    "e4m3": _E4M3,
    "e5m2": _format(Encoding(5, 2, 15, "infinities and NaNs"), 8),
    # Containers of 8 bits: kind::f8f6f4 and kind::mxf8f6f4.
    "e3m2": _format(Encoding(3, 2, 3, "none"), 8),
    "e2m3": _format(Encoding(2, 3, 1, "none"), 8),
    "e2m1": _format(Encoding(2, 1, 1, "none", shift=2), 8),
}


def through_half(operand: Format) -> Format:
    """`operand` as it is after a conversion to f16, which is exact: what was subnormal may be normal there."""
    halves = operand.values.astype(np.float16).view(np.uint16)
    return Format(operand.bits, operand.values, _HALF.exponents(halves))


_NIBBLES = Encoding(2, 1, 1, "none").values(np.arange(16))
E2M1_PAIRS: npt.NDArray[np.complex128] = _NIBBLES[np.arange(256) & 15] + 1j * _NIBBLES[np.arange(256) >> 4]
"""Of each byte, the value of the low nibble and of the high one: a pair, taken in one step."""

SCALES: dict[str, Format] = {
    # The sign bit must be 0; it is not looked at.
    "ue4m3": Format(8, np.tile(_E4M3.values[:128], 2), np.tile(_E4M3.exponents[:128], 2)),
    "ue8m0": Format(8, np.append(np.ldexp(1.0, np.arange(255) - 127), np.nan), (np.arange(256) - 127).astype(np.int16)),
}
