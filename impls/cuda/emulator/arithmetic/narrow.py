"""The 8-, 6- and 4-bit formats: codes of float32 numbers, and the numbers of codes, by table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from impls.cuda.emulator.arithmetic.formats import BF16, F16
from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.arithmetic.rounding import to_bf16

_ALL16 = np.arange(1 << 16, dtype=np.uint32)


@dataclass(frozen=True)
class Narrow:
    """A sign, `exponent` bits with bias `bias`, and `mantissa` bits."""

    exponent: int
    mantissa: int
    bias: int
    largest: float
    nan: int | None
    """The code that a NaN becomes; None: +largest."""
    infinity: int | None = None

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa


E4M3 = Narrow(4, 3, 7, 448.0, 0x7F)
E5M2 = Narrow(5, 2, 15, 57344.0, 0x7F, 0x7C)
E2M3 = Narrow(2, 3, 1, 7.5, None)
E3M2 = Narrow(3, 2, 3, 28.0, None)
E2M1 = Narrow(2, 1, 1, 6.0, None)
PAIRS = {"e4m3x2": E4M3, "e5m2x2": E5M2, "e2m3x2": E2M3, "e3m2x2": E3M2, "e2m1x2": E2M1}


def _codes(x: Array, to: Narrow) -> Array:
    """float32 `x` rounded to nearest even, beyond the largest to the largest; a NaN becomes the format's."""
    size = np.fmin(np.abs(x), np.float32(to.largest))
    least = np.uint32(128 - to.bias)
    exponent = np.maximum(size.view(np.uint32) >> np.uint32(23), least)
    # In units of the last place at this exponent; a sum that reaches the next power of two carries into the exponent.
    per_unit = ((np.uint32(254 + to.mantissa) - exponent) << np.uint32(23)).view(np.float32)
    places = np.rint(size * per_unit).astype(np.uint32)
    codes = places + ((exponent - least) << np.uint32(to.mantissa))
    signed = codes | np.signbit(x).astype(np.uint32) << np.uint32(to.bits - 1)
    return np.where(x == x, signed, codes if to.nan is None else np.uint32(to.nan)).astype(np.uint16)


def _values(from_: Narrow) -> Array:
    """float32 values of all codes of a byte; bits above the format's are ignored."""
    code = np.arange(256, dtype=np.uint32)
    mantissa = (code & np.uint32((1 << from_.mantissa) - 1)).astype(np.int64)
    exponent = (code >> np.uint32(from_.mantissa) & np.uint32((1 << from_.exponent) - 1)).astype(np.int64)
    hidden = (exponent > 0).astype(np.int64) << from_.mantissa
    size = np.ldexp((mantissa + hidden).astype(np.float32), np.maximum(exponent, 1) - from_.bias - from_.mantissa)
    magnitude = code & np.uint32((1 << from_.bits - 1) - 1)
    if from_.infinity is not None:
        size = np.where(magnitude >= from_.infinity, np.where(magnitude > from_.infinity, np.nan, np.inf), size)
    elif from_.nan is not None:
        size = np.where(magnitude == from_.nan, np.nan, size)
    negative = code >> np.uint32(from_.bits - 1) & np.uint32(1)
    return np.where(negative, -size, size).astype(np.float32)


@cache
def _code_table(to: Narrow, source: str, relu: bool) -> Array:
    """Codes of all 65536 numbers of `source`, f16 or bf16."""
    with np.errstate(all="ignore"):
        if source == "f16":
            x = _ALL16.astype(np.uint16).view(np.float16).astype(np.float32)
        else:
            x = (_ALL16 << np.uint32(16)).view(np.float32)
        return _codes(np.where(x <= 0, np.float32(0), x) if relu else x, to)


def coder(to: Narrow, source: str, relu: bool) -> Callable[[Array], Array]:
    """Registers of `source` (f32, f16 or bf16) to codes in uint16."""
    if source != "f32":
        return _code_table(to, source, relu).take
    table = _code_table(to, "bf16", relu)

    def codes(a: Array) -> Array:
        # Rounded to odd, 8 bits decide how to round to 4.
        return table.take((a >> np.uint32(16)) | ((a & np.uint32(0xFFFF)) != 0))

    return codes


@cache
def pair_table(name: str, result: str, relu: bool) -> Array:
    """The pair of f16 or bf16 numbers, as 32 bits, of every pair of codes `name`."""
    with np.errstate(all="ignore"):
        x = _values(PAIRS[name])
        x = np.where(x <= 0, np.float32(0), x) if relu else x
        half = x.astype(np.float16).view(np.uint16) if result == "f16x2" else to_bf16(x, "rn")
        nan = (F16 if result == "f16x2" else BF16).nan
        half = np.where(x == x, half, nan).astype(np.uint32)
    low, high = _ALL16 & 0xFF, _ALL16 >> 8
    if name == "e2m1x2":
        low, high = _ALL16 & 0xF, _ALL16 >> 4 & 0xF
    return half[low] | half[high] << np.uint32(16)


def scale_codes(a: Array, up: bool, finite: bool) -> Array:
    """ue8m0 codes of the magnitudes of float32 registers, rounded up or toward zero; beyond 2^127: it, or NaN."""
    size = a & np.uint32(0x7FFF_FFFF)
    code = size >> np.uint32(23)
    if up:
        # 2^-127 is subnormal in float32, and what is smaller becomes it.
        code = code + (((size & np.uint32(0x7F_FFFF)) != 0) & (size > np.uint32(0x40_0000)))
    if finite:
        code = np.where(size <= np.uint32(0x7F80_0000), np.minimum(code, np.uint32(0xFE)), np.uint32(0xFF))
    return np.minimum(code, np.uint32(0xFF)).astype(np.uint16)


@cache
def scale_pair_table() -> Array:
    """The pair of bf16 numbers, as 32 bits, of every pair of ue8m0 codes."""
    code = np.arange(256, dtype=np.uint32)
    half = code << np.uint32(7)
    half[0], half[255] = 0x0040, BF16.nan  # 2^-127, which is subnormal
    return half[_ALL16 & 0xFF] | half[_ALL16 >> 8] << np.uint32(16)
