"""cvt between scalar types, by the value of every operand as an exact number and PTX ISA 9.7.9.21."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from impls.cuda.emulator.arithmetic import operation
from impls.cuda.emulator.errors import Unknown
from tests.cuda.emulator.arithmetic.oracle import (
    FORMATS,
    Binary,
    decode,
    flush,
    numbers,
    result_flushed,
    rounded,
    run,
    specials,
)

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
MODES = ("rn", "rz", "rm", "rp")
WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def limits(kind: str) -> tuple[int, int]:
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)


def value(pattern: int, kind: str) -> int:
    bits = int(kind[1:])
    pattern &= (1 << bits) - 1
    return pattern - (1 << bits) if kind[0] == "s" and pattern >> bits - 1 else pattern


def register_pattern(number: int, kind: str) -> int:
    """As a register holds it: 8-bit types are extended to 16 bits."""
    bits = max(int(kind[1:]), 16)
    return value(number, kind) & ((1 << bits) - 1)


def integer_column(kind: str) -> list[int]:
    bits = int(kind[1:])
    random_ = random.Random(kind)
    corners = [0, 1, 2, 127, 128, 255, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1]
    wide = [random_.getrandbits(random_.randint(1, bits)) for _ in range(150)]
    # midpoints of float32 and float64, and their neighbours
    ties = [(1 << top) + (1 << top - p) + d for p in (9, 12, 25, 54) for top in range(p, bits) for d in (-1, 0, 1)]
    mask = (1 << max(bits, 16)) - 1
    return [x & mask for x in [x & (1 << bits) - 1 for x in corners] + wide + ties + [-x for x in ties]]


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integer_to_integer(source, target):
    column = integer_column(source)
    assert run("cvt", f"{target}.{source}", column) == [register_pattern(value(x, source), target) for x in column]
    least, most = limits(target)
    clamped = [register_pattern(min(max(value(x, source), least), most), target) for x in column]
    assert run("cvt", f"sat.{target}.{source}", column) == clamped


@pytest.mark.parametrize("target", list(FORMATS))
@pytest.mark.parametrize("source", INTEGERS)
def test_integer_to_float(source, target):
    column = integer_column(source)
    form = FORMATS[target]
    for mode in MODES:
        expected = [rounded(Fraction(value(x, source)), form, mode) if value(x, source) else 0 for x in column]
        assert run("cvt", f"{mode}.{target}.{source}", column) == expected


def float_column(kind: str, count: int = 300) -> list[int]:
    form = FORMATS[kind]
    chosen = specials(form) + numbers(form, count, 7)
    for edge in (0.5, 1.5, 2.5, 127.5, 128.0, 255.5, 32767.5, 65535.5, 2.0**31, 2.0**32, 2.0**63, 2.0**64):
        for sign in (1, -1):
            near = rounded(Fraction(edge) * sign, form, "rz")
            chosen += [near - 1, near, near + 1]
    return chosen


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", list(FORMATS))
def test_float_to_integer_clamps(source, target):
    form = FORMATS[source]
    column = float_column(source)
    least, most = limits(target)
    of_nan = 1 << int(target[1:]) - 1 if source == "f64" or target in ("s64", "u64") else 0
    for rounding, whole in WHOLE.items():
        expected = []
        for pattern in column:
            number = decode(pattern, form)
            if number.kind == "nan":
                found = of_nan
            elif number.kind == "inf":
                found = least if number.negative else most
            else:
                found = min(max(whole(number.value), least), most)
            expected.append(register_pattern(found, target))
        assert run("cvt", f"{rounding}.{target}.{source}", column) == expected
        assert run("cvt", f"{rounding}.sat.{target}.{source}", column) == expected


def test_ftz_flushes_before_rounding_to_an_integer():
    assert run("cvt", "rpi.s32.f32", [1, 0x8000_0001]) == [1, 0]
    assert run("cvt", "rpi.ftz.s32.f32", [1, 0x8000_0001]) == [0, 0]
    assert run("cvt", "rmi.ftz.s32.f32", [0x8000_0001]) == [0]
    assert run("cvt", "rpi.ftz.f32.f32", [1, 0x8000_0001]) == [0, 0x8000_0000]


def nan_of(pattern: int, source: Binary, target: Binary) -> int:
    """The NaN that an H200 makes of one: PTX leaves it open."""
    single, double = FORMATS["f32"], FORMATS["f64"]
    if (source, target) == (FORMATS["bf16"], single):
        return pattern << 16
    if source == target or (target != double and source != double) or target.bits == 16:
        return target.nan
    fraction = pattern & (source.least_normal - 1)
    widened = target.fraction - source.fraction
    payload = fraction << widened if widened > 0 else fraction >> -widened
    return (target.sign if pattern & source.sign else 0) | target.infinity | target.least_normal >> 1 | payload


def converted(pattern: int, source: Binary, target: Binary, mode: str) -> int:
    number = decode(pattern, source)
    sign = target.sign if number.negative else 0
    if number.kind == "nan":
        return nan_of(pattern, source, target)
    if number.kind == "finite":
        return rounded(number.value, target, mode)
    return (target.infinity if number.kind == "inf" else 0) | sign


@pytest.mark.parametrize("source", list(FORMATS))
@pytest.mark.parametrize("target", list(FORMATS))
def test_float_to_float_rounds_once(source, target):
    wide, narrow = FORMATS[source], FORMATS[target]
    exact = (
        source == target
        or (wide.bits < narrow.bits and source != "bf16")
        or (source, target) in {("bf16", "f32"), ("bf16", "f64")}
    )
    column = float_column(source, 300)
    if wide.bits > narrow.bits:  # midpoints of the narrow format, and their neighbours
        for pattern in [*numbers(narrow, 100, 9), narrow.infinity - 1, 0, 1]:
            size = pattern & ~narrow.sign
            if size < narrow.infinity:
                middle = (narrow.magnitude(size) + narrow.magnitude(size + 1)) / 2
                near = rounded(middle, wide, "rz")
                column += [near - 1, near, near + 1, near | wide.sign]
    for mode in ("",) if exact else MODES:
        expected = [converted(x, wide, narrow, mode or "rn") for x in column]
        prefix = f"{mode}." if mode else ""
        assert run("cvt", f"{prefix}{target}.{source}", column) == expected
        if "f32" in (source, target):

            def within(x: int, kind: str) -> int:
                return flush(x, FORMATS[kind]) if kind == "f32" else x

            expected = [within(converted(within(x, source), wide, narrow, mode or "rn"), target) for x in column]
            if (source, target) == ("f32", "f64"):  # NaNs become canonical first
                expected = [0x7FFF_FFFF_E000_0000 if y & ~narrow.sign > narrow.infinity else y for y in expected]
            if (source, target) == ("f32", "f16"):  # an H200 does not flush
                expected = [converted(x, wide, narrow, mode) for x in column]
            if (source, target) == ("f64", "f32"):
                expected = [result_flushed(narrow, lambda of, x=x, mode=mode: converted(x, wide, of, mode)) for x in column]
            assert run("cvt", f"{prefix}ftz.{target}.{source}", column) == expected


@pytest.mark.parametrize("kind", list(FORMATS))
def test_rounding_to_an_integer_keeps_the_sign_of_zero(kind):
    form = FORMATS[kind]
    column = float_column(kind)
    for rounding, whole in WHOLE.items():
        expected = []
        for pattern in column:
            number = decode(pattern, form)
            if number.kind == "finite":
                result = whole(number.value)
                expected.append(rounded(Fraction(result), form, "rn") if result else pattern & form.sign)
            else:
                expected.append(converted(pattern, form, form, "rn"))
        assert run("cvt", f"{rounding}.{kind}.{kind}", column) == expected


@pytest.mark.parametrize("target", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_relu_satfinite_and_the_packed_forms(target, mode):
    wide, narrow = FORMATS["f32"], FORMATS[target]
    column = float_column("f32")
    plain = [converted(x, wide, narrow, mode) for x in column]
    relu = [0 if x & narrow.sign else x for x in plain]
    finite = [x - 1 if x & ~narrow.sign == narrow.infinity else x for x in plain]
    both = [0 if x & narrow.sign else x for x in finite]
    for modifiers, expected in (("", plain), ("relu.", relu), ("satfinite.", finite), ("relu.satfinite.", both)):
        assert run("cvt", f"{mode}.{modifiers}{target}.f32", column) == expected
        packed = [high << 16 | low for high, low in zip(expected, expected[::-1], strict=True)]
        assert run("cvt", f"{mode}.{modifiers}{target}x2.f32", column, column[::-1]) == packed


def test_sat_clamps_to_zero_and_one():
    column = [0xBF80_0000, 0x8000_0000, 0x3F00_0000, 0x4000_0000, 0x7F80_0000, 0x7FC0_0000]
    assert run("cvt", "sat.f32.f32", column) == [0, 0, 0x3F00_0000, 0x3F80_0000, 0x3F80_0000, 0]
    assert run("cvt", "rn.sat.f16.f32", column) == [0, 0, 0x3800, 0x3C00, 0x3C00, 0]
    assert run("cvt", "rn.sat.f32.s32", [0xFFFF_FFFF, 5]) == [0, 0x3F80_0000]


TF32 = Binary(8, 10, 0x7FFF_FFFF >> 13)


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32_leaves_thirteen_zero_bits(mode):
    column = float_column("f32", 800) + [x << 12 | 1 << 31 for x in numbers(Binary(8, 10, 0), 200, 3)]
    column = [x & 0xFFFF_FFFF for x in column]
    wide = FORMATS["f32"]
    plain = [converted(x, wide, TF32, mode) << 13 for x in column]
    nans = [(x if mode == "rna" else wide.nan) & ~0x1FFF for x in column]
    plain = [nan if decode(x, wide).kind == "nan" else y for x, y, nan in zip(column, plain, nans, strict=True)]
    assert run("cvt", f"{mode}.tf32.f32", column) == plain
    assert 0x7F80_0001 in column and plain[column.index(0x7F80_0001)] == (0x7F80_0000 if mode == "rna" else 0x7FFF_E000)
    finite = [x - (1 << 13) if x & ~wide.sign == wide.infinity else x for x in plain]
    assert run("cvt", f"{mode}.satfinite.tf32.f32", column) == finite
    if mode != "rna":
        assert run("cvt", f"{mode}.relu.tf32.f32", column) == [0 if x & wide.sign else x for x in plain]


@pytest.mark.parametrize("target", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
def test_pack_saturates_and_shifts_the_third_operand_up(target):
    bits = int(target[1:])
    least, most = limits(target)
    a = [value(x, "s32") & 0xFFFF_FFFF for x in integer_column("s32")]
    b, c = a[::-1], a[5:] + a[:5]

    def part(x: int) -> int:
        return min(max(value(x, "s32"), least), most) & (1 << bits) - 1

    if bits == 16:
        expected = [part(x) << 16 | part(y) for x, y in zip(a, b, strict=True)]
        assert run("cvt", f"pack.sat.{target}.s32", a, b) == expected
    else:
        expected = [(z << 2 * bits | part(x) << bits | part(y)) & 0xFFFF_FFFF for x, y, z in zip(a, b, c, strict=True)]
        assert run("cvt", f"pack.sat.{target}.s32.b32", a, b, c) == expected


@pytest.mark.parametrize(
    "modifiers",
    [
        "f32.s32",
        "s32.f32",
        "rn.f32.f16",
        "f16.f32",
        "rn.s32.s16",
        "rni.f16.f32",
        "rm.f16x2.f32",
        "rn.relu.f32.f64",
        "ftz.f64.f16",
        "rs.f16x2.f32",
        "rn.bf16x2.e4m3x2",
        "rn.satfinite.s2f6x2.f32",
        "rz.satfinite.e4m3x2.f32",
        "rn.e4m3x2.f32",
        "rn.ue8m0x2.f32",
        "rna.f16.f32",
        "rn.sat.bf16.f32",
        "pack.s16.s32",
    ],
)
def test_forms_that_ptx_has_not_or_nobody_wrote_are_unknown(modifiers):
    with pytest.raises(Unknown):
        operation("cvt", tuple(modifiers.split(".")))
