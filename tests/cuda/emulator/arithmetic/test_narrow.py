"""The 8-, 6- and 4-bit formats against ml_dtypes: every code, every 16-bit number, and float32 around every midpoint."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from impls.cuda.emulator.arithmetic import operation
from tests.cuda.emulator.arithmetic.oracle import FORMATS, decode, run

ml_dtypes = pytest.importorskip("ml_dtypes")

DTYPES = {
    "e4m3x2": ml_dtypes.float8_e4m3fn,
    "e5m2x2": ml_dtypes.float8_e5m2,
    "e2m3x2": ml_dtypes.float6_e2m3fn,
    "e3m2x2": ml_dtypes.float6_e3m2fn,
    "e2m1x2": ml_dtypes.float4_e2m1fn,
}
BITS = {"e4m3x2": 8, "e5m2x2": 8, "e2m3x2": 6, "e3m2x2": 6, "e2m1x2": 4}
SHIFT = {name: 4 if name == "e2m1x2" else 8 for name in DTYPES}
ALL16 = np.arange(1 << 16, dtype=np.uint16)


def values(name: str) -> np.ndarray:
    """float32 values of all codes."""
    return np.arange(1 << BITS[name], dtype=np.uint8).view(DTYPES[name]).astype(np.float32)


def codes(name: str, x: np.ndarray) -> np.ndarray:
    """The codes of float32 `x`, saturated: PTX keeps a NaN as 0x7f, or makes it +MAX_NORM where there is none."""
    largest = float(ml_dtypes.finfo(DTYPES[name]).max)
    nan = 0x7F if BITS[name] == 8 else (1 << BITS[name] - 1) - 1
    with np.errstate(all="ignore"):
        clamped = np.clip(np.where(np.isnan(x), 0, x), -largest, largest).astype(DTYPES[name])
    found = clamped.view(np.uint8).astype(np.uint16) & ((1 << BITS[name]) - 1)
    return np.where(np.isnan(x), nan, found).astype(np.uint16)


def around_midpoints(name: str) -> np.ndarray:
    """float32 patterns: every code's value and every midpoint, with their neighbours, and random ones."""
    finite = np.unique(values(name)[np.isfinite(values(name))])
    points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, finite * np.float32(1.25)])
    patterns = points.astype(np.float32).view(np.uint32)
    random_ = np.random.default_rng(1)
    near = random_.standard_normal(20_000).astype(np.float32) * np.exp2(random_.integers(-14, 18, 20_000)).astype(np.float32)
    special = np.array([0, 1, 0x7F80_0000, 0x7F80_0001, 0x7FC0_0000, 0xFFFF_FFFF, 0x7F7F_FFFF], np.uint32)
    every = np.concatenate([patterns, patterns - np.uint32(1), patterns + np.uint32(1), near.view(np.uint32), special])
    return np.concatenate([every, every ^ np.uint32(1 << 31)])


@pytest.mark.parametrize("name", list(DTYPES))
def test_float32_to_codes_puts_the_first_operand_in_the_upper_bits(name):
    patterns = around_midpoints(name)
    a, b = patterns, patterns[::-1].copy()
    expected = codes(name, a.view(np.float32)) << np.uint16(SHIFT[name]) | codes(name, b.view(np.float32))
    found = operation("cvt", ("rn", "satfinite", name, "f32")).function(a, b)
    assert found.dtype == np.uint16 and np.array_equal(found, expected)


@pytest.mark.parametrize("source", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("name", list(DTYPES))
def test_all_16_bit_numbers_to_codes(name, source):
    x = ALL16.view(np.float16 if source == "f16x2" else ml_dtypes.bfloat16).astype(np.float32)
    single = codes(name, x)
    high, low = ALL16.astype(np.uint32), ALL16[::-1].astype(np.uint32)
    found = operation("cvt", ("rn", "satfinite", name, source)).function(high << np.uint32(16) | low)
    assert np.array_equal(found, single << np.uint16(SHIFT[name]) | single[::-1])


@pytest.mark.parametrize("name", list(DTYPES))
def test_relu_makes_negative_numbers_zero_and_leaves_nan(name):
    patterns = around_midpoints(name)
    x = patterns.view(np.float32)
    expected = codes(name, np.where(x <= 0, np.float32(0), x))
    found = operation("cvt", ("rn", "satfinite", "relu", name, "f32")).function(patterns, patterns)
    assert np.array_equal(found, expected << np.uint16(SHIFT[name]) | expected)


@pytest.mark.parametrize("name", list(DTYPES))
def test_all_pairs_of_codes_to_f16x2(name):
    mask = (1 << BITS[name]) - 1
    high, low = (ALL16 >> SHIFT[name]) & mask, ALL16 & mask
    half = values(name).astype(np.float16).view(np.uint16)
    half = np.where(np.isnan(values(name)), 0x7FFF, half).astype(np.uint32)
    found = operation("cvt", ("rn", "f16x2", name)).function(ALL16)
    assert found.dtype == np.uint32
    assert np.array_equal(found, half[high] << np.uint32(16) | half[low])
    positive = np.where(half >> 15, 0, half).astype(np.uint32)
    found = operation("cvt", ("rn", "relu", "f16x2", name)).function(ALL16)
    assert np.array_equal(found, positive[high] << np.uint32(16) | positive[low])


def test_known_codes():
    six, half, nan = 0x40C0_0000, 0x3F00_0000, 0x7FC0_0000
    assert run("cvt", "rn.satfinite.e2m1x2.f32", [six, nan], [half, six | 1 << 31]) == [0x71, 0x7F]
    assert run("cvt", "rn.satfinite.e4m3x2.f32", [0x43E0_0000, nan], [0x7F80_0000, 0xFF80_0000]) == [0x7E7E, 0x7FFE]
    assert run("cvt", "rn.f16x2.e2m1x2", [0x71]) == [0x4600_3800]


SCALES = [Fraction(2) ** (code - 127) for code in range(255)]


def scale(pattern: int, mode: str, finite: bool) -> int:
    number = decode(pattern & 0x7FFF_FFFF, FORMATS["f32"])
    if number.kind == "nan":
        return 0xFF
    if number.kind == "inf" or number.value > SCALES[-1]:
        if finite or (mode == "rz" and number.kind != "inf"):
            return 0xFE
        return 0xFF
    if mode == "rp":
        return next(code for code, size in enumerate(SCALES) if size >= number.value)
    return max((code for code, size in enumerate(SCALES) if size <= number.value), default=0)


@pytest.mark.parametrize("finite", [False, True])
@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_scales_ignore_the_sign(mode, finite):
    powers = [e << 23 for e in range(256)] + [1 << i for i in range(23)] + [0, 0x7FC0_0000]
    patterns = sorted({(p + d) & 0x7FFF_FFFF for p in powers for d in (-1, 0, 1)})
    patterns += [p | 1 << 31 for p in patterns[::5]]
    modifiers = f"{mode}.satfinite" if finite else mode
    single = [scale(p, mode, finite) for p in patterns]
    found = run("cvt", f"{modifiers}.ue8m0x2.f32", patterns, patterns[::-1])
    assert found == [high << 8 | low for high, low in zip(single, single[::-1], strict=True)]
    upper = [p & 0xFFFF_0000 for p in patterns]
    single = [scale(p, mode, finite) for p in upper]
    packed = [p | q >> 16 for p, q in zip(upper, upper[::-1], strict=True)]
    assert run("cvt", f"{modifiers}.ue8m0x2.bf16x2", packed) == [
        high << 8 | low for high, low in zip(single, single[::-1], strict=True)
    ]


def test_all_pairs_of_scales_to_bf16x2():
    x = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    half = np.where(np.isnan(x), 0x7FFF, x.view(np.uint32) >> np.uint32(16)).astype(np.uint32)
    found = operation("cvt", ("rn", "bf16x2", "ue8m0x2")).function(ALL16)
    assert np.array_equal(found, half[ALL16 >> 8] << np.uint32(16) | half[ALL16 & 0xFF])
