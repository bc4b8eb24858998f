"""Approximate functions within their documented error in float64, and their tables of special values."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from impls.cuda.emulator.arithmetic import APPROXIMATE, operation
from impls.cuda.emulator.errors import Unknown
from tests.cuda.emulator.arithmetic.oracle import FORMATS, decode, numbers, rounded, run

INF, NAN, ZERO, NEGATIVE = 0x7F80_0000, 0x7FFF_FFFF, 0, 0x8000_0000
ONE = 0x3F80_0000
SUBNORMAL = 1

TABLES = {
    # PTX ISA 9.1, 9.7.3: input -> result
    "rcp.approx.f32": {NEGATIVE | INF: NEGATIVE, NEGATIVE: NEGATIVE | INF, ZERO: INF, INF: ZERO, NAN: NAN},
    "rcp.approx.ftz.f32": {NEGATIVE | SUBNORMAL: NEGATIVE | INF, SUBNORMAL: INF, 0x7F00_0001: ZERO},
    "sqrt.approx.f32": {NEGATIVE | INF: NAN, NEGATIVE | ONE: NAN, NEGATIVE: NEGATIVE, ZERO: ZERO, INF: INF, NAN: NAN},
    "rsqrt.approx.f32": {NEGATIVE | INF: NAN, NEGATIVE | ONE: NAN, NEGATIVE: NEGATIVE | INF, ZERO: INF, INF: ZERO, NAN: NAN},
    "rsqrt.approx.ftz.f32": {NEGATIVE | SUBNORMAL: NEGATIVE | INF, SUBNORMAL: INF},
    "sin.approx.f32": {NEGATIVE | INF: NAN, NEGATIVE: NEGATIVE, ZERO: ZERO, INF: NAN, NAN: NAN},
    "cos.approx.f32": {NEGATIVE | INF: NAN, NEGATIVE: ONE, ZERO: ONE, INF: NAN, NAN: NAN},
    "lg2.approx.f32": {
        NEGATIVE | INF: NAN,
        NEGATIVE | ONE: NAN,
        NEGATIVE: NEGATIVE | INF,
        ZERO: NEGATIVE | INF,
        INF: INF,
        NAN: NAN,
    },
    "ex2.approx.f32": {NEGATIVE | INF: ZERO, NEGATIVE: ONE, ZERO: ONE, INF: INF, NAN: NAN},
    "ex2.approx.ftz.f32": {NEGATIVE | SUBNORMAL: ONE, SUBNORMAL: ONE, 0xC2FE_0000: ZERO},
    "tanh.approx.f32": {
        NEGATIVE | INF: NEGATIVE | ONE,
        NEGATIVE: NEGATIVE,
        ZERO: ZERO,
        INF: ONE,
        NAN: NAN,
        SUBNORMAL: SUBNORMAL,
    },
    "ex2.approx.f16": {0xFC00: 0, 0x8000: 0x3C00, 0: 0x3C00, 0x7C00: 0x7C00, 0x7E00: 0x7FFF},
    "ex2.approx.ftz.bf16": {0xFF80: 0, 0x8001: 0x3F80, 0x8000: 0x3F80, 1: 0x3F80, 0x7F80: 0x7F80, 0x7FC0: 0x7FFF},
    "tanh.approx.f16": {0xFC00: 0xBC00, 0x8000: 0x8000, 0: 0, 0x7C00: 0x3C00, 0x7E00: 0x7FFF, 1: 1},
    "tanh.approx.bf16": {0xFF80: 0xBF80, 0x8000: 0x8000, 0: 0, 0x7F80: 0x3F80, 0x7FC0: 0x7FFF, 1: 1},
    "rcp.approx.ftz.f64": {
        0xFFF0 << 48: 1 << 63,
        1 << 63 | 1 << 32: 0xFFF0 << 48,
        1 << 63: 0xFFF0 << 48,
        0: 0x7FF0 << 48,
        1: 0x7FF0 << 48,
        0x7FF0 << 48: 0,
        0x7FF8 << 48: 0x7FFF_FFFF << 32,
    },
    "rsqrt.approx.ftz.f64": {0xFFF0 << 48: 0x7FFF_FFFF << 32, 1 << 63: 0xFFF0 << 48, 0: 0x7FF0 << 48, 0x7FF0 << 48: 0},
    "rsqrt.approx.f64": {0: 0x7FF0 << 48, 0x4010 << 48: 0x3FE0 << 48},
}


@pytest.mark.parametrize("name", TABLES)
def test_special_values(name):
    opcode, modifiers = name.split(".", 1)
    table = TABLES[name]
    assert run(opcode, modifiers, list(table)) == list(table.values())


FUNCTIONS = {
    "rcp": lambda x: 1 / x,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sin": math.sin,
    "cos": math.cos,
    "lg2": math.log2,
    "ex2": lambda x: 2.0**x,
    "tanh": math.tanh,
}


def ulp(x: float, form) -> float:
    """The distance of two numbers of the format at `x`."""
    pattern = rounded(abs(Fraction(x)), form, "rz")
    return float(form.magnitude(pattern + 1) - form.magnitude(pattern))


@pytest.mark.parametrize("name", [name for name in APPROXIMATE if not name.startswith("div")])
def test_errors_are_within_their_bound(name):
    opcode, _, kind = name.split(".")
    form = FORMATS[kind]
    measure, bound = APPROXIMATE[name]
    column = []
    for pattern in numbers(form, 3000, 11):
        number = decode(pattern, form)
        if number.kind != "finite" or abs(number.value) > 6 * (20 if opcode == "ex2" else 1):
            continue
        if opcode in ("sqrt", "rsqrt", "lg2"):
            pattern &= ~form.sign
        if (pattern & ~form.sign) >= form.least_normal:
            column.append(pattern)
    assert len(column) > 1000
    found = run(opcode, "approx.ftz.bf16" if name == "ex2.approx.bf16" else f"approx.{kind}", column)
    for pattern, result in zip(column, found, strict=True):
        exact = FUNCTIONS[opcode](float(decode(pattern, form).value))
        got = decode(result, form)
        if abs(exact) < float(form.magnitude(form.least_normal)) or got.kind == "inf":
            continue
        error = abs(float(got.value) - exact)
        allowed = {"ulp": bound * ulp(exact, form), "relative": bound * abs(exact), "absolute": bound}[measure]
        assert error <= allowed, (name, hex(pattern), hex(result), exact)


@pytest.mark.parametrize("how", ["full", "approx"])
def test_division_is_within_two_ulp(how):
    form = FORMATS["f32"]
    a, b = numbers(form, 2000, 1), numbers(form, 2000, 2)
    for x, y, result in zip(a, b, run("div", f"{how}.f32", a, b), strict=True):
        dividend, divisor, got = (decode(pattern, form) for pattern in (x, y, result))
        if dividend.kind != "finite" or divisor.kind != "finite" or got.kind != "finite":
            continue
        if not Fraction(2) ** -126 <= abs(divisor.value) <= Fraction(2) ** 126:
            continue
        exact = dividend.value / divisor.value
        if abs(exact) >= form.magnitude(form.least_normal):
            assert abs(got.value - exact) <= 2 * Fraction(ulp(float(exact), form))


def test_division_by_a_huge_number_goes_through_a_reciprocal_of_zero():
    huge = 0x7F00_0001  # above 2^126
    assert run("div", "approx.f32", [ONE, NEGATIVE | ONE, INF], [huge] * 3) == [ZERO, NEGATIVE, NAN]
    assert run("div", "full.f32", [huge], [huge]) == [ONE]


def test_packed_forms_treat_both_halves():
    assert run("ex2", "approx.f16x2", [0x3C00_0000]) == [0x4000_3C00]
    assert run("tanh", "approx.bf16x2", [0x7F80_0000]) == [0x3F80_0000]


@pytest.mark.parametrize(
    ("opcode", "modifiers"),
    [
        ("ex2", "f32"),
        ("ex2", "approx.f64"),
        ("ex2", "approx.ftz.f16"),
        ("ex2", "approx.bf16"),
        ("tanh", "approx.ftz.f32"),
        ("rcp", "approx.f64"),
        ("lg2", "approx.f16"),
    ],
)
def test_forms_that_ptx_has_not_are_unknown(opcode, modifiers):
    with pytest.raises(Unknown):
        operation(opcode, tuple(modifiers.split(".")))


def test_a_quotient_is_rounded_once():
    """A divisor whose reciprocal is not exact, a quotient that is: an error of its own would count against the GPU's."""
    dividend, divisor = 0xB8E1_662B, 0xC161_662B
    assert run("div", "approx.f32", [dividend, divisor], [divisor, divisor]) == [0x3700_0000, ONE]
