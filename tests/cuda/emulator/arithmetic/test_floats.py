"""Floating-point arithmetic against exact rational numbers, rounded once by definition."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest

from impls.cuda.emulator.arithmetic import operation
from impls.cuda.emulator.errors import Unknown
from tests.cuda.emulator.arithmetic.oracle import (
    FORMATS,
    compute,
    decode,
    flush,
    numbers,
    result_flushed,
    rounded,
    run,
    specials,
)

MODES = ("rn", "rz", "rm", "rp")
COUNT = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "rcp": 1, "sqrt": 1}
NAN_FROM = {"add": (1, 0), "sub": (1, 0), "mul": (1, 0), "div": (0, 1), "fma": (1, 2, 0), "rcp": (0,), "sqrt": (0,)}
"""In which order an H200 looks for a NaN among the operands of f64, the only format whose NaNs keep their payload."""


def operands(name: str, kind: str, size: int) -> list[list[int]]:
    """Columns of operands: all pairs (or some triples) of special values, then random ones."""
    form = FORMATS[kind]
    chosen = specials(form)
    rows = list(itertools.product(chosen, repeat=COUNT[name]))
    random_ = random.Random(f"{name}{kind}")
    rows = random_.sample(rows, min(len(rows), size))
    columns = [numbers(form, size, random_.getrandbits(30)) for _ in range(COUNT[name])]
    rows += list(zip(*columns, strict=True))
    return [list(column) for column in zip(*rows, strict=True)]


def expect(name: str, kind: str, mode: str, columns: list[list[int]], *, ftz: bool = False) -> list[int]:
    form = FORMATS[kind]
    within = (lambda pattern: flush(pattern, form)) if ftz else (lambda pattern: pattern)
    found = []
    for row in zip(*columns, strict=True):
        numbers_ = [decode(within(pattern), form) for pattern in row]
        nans = [row[place] for place in NAN_FROM[name] if numbers_[place].kind == "nan"]
        if kind == "f64" and nans:
            found.append(nans[0] | 1 << 51)
        elif ftz:
            found.append(result_flushed(form, lambda of, of_row=numbers_: compute(name, of_row, of, mode)))
        else:
            found.append(compute(name, numbers_, form, mode))
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "div", "rcp", "sqrt"])
def test_f32_rounds_once_in_every_direction(name, mode):
    columns = operands(name, "f32", 500)
    assert run(name, f"{mode}.f32", *columns) == expect(name, "f32", mode, columns)


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_no_rounding_modifier_means_to_nearest(name):
    columns = operands(name, "f32", 300)
    assert run(name, "f32", *columns) == expect(name, "f32", "rn", columns)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "div", "rcp", "sqrt"])
def test_f64_rounds_once_in_every_direction(name, mode):
    columns = operands(name, "f64", 150)
    assert run(name, f"{mode}.f64", *columns) == expect(name, "f64", mode, columns)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_16_bits_round_once(name, kind):
    columns = operands(name, kind, 1000)
    assert run(name, f"rn.{kind}", *columns) == expect(name, kind, "rn", columns)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "div", "rcp", "sqrt"])
def test_ftz_flushes_inputs_and_results(name, mode):
    columns = operands(name, "f32", 400)
    assert run(name, f"{mode}.ftz.f32", *columns) == expect(name, "f32", mode, columns, ftz=True)


def next_to_the_least_normal(kind: str) -> list[list[int]]:
    """a and b whose product is within few units of the least normal number, below and above it."""
    form = FORMATS[kind]
    random_ = random.Random(kind)
    least, rows = form.magnitude(form.least_normal), []
    for _ in range(400):
        a = form.least_normal * random_.randint(8, 16) | random_.getrandbits(form.fraction)
        b = rounded(least / form.magnitude(a), form, "rn") + random_.randint(-1, 1)
        rows.append((a | random_.choice([0, form.sign]), b | random_.choice([0, form.sign])))
    return [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize(("kind", "mode"), [*(("f32", mode) for mode in MODES), ("f16", "rn")])
def test_a_product_is_flushed_if_its_exponent_was_below_the_least_before_it_was_a_subnormal_number(kind, mode):
    form, columns = FORMATS[kind], next_to_the_least_normal(kind)
    rows = [[decode(pattern, form) for pattern in row] for row in zip(*columns, strict=True)]
    kept = [compute("mul", row, form, mode) for row in rows]
    expected = expect("mul", kind, mode, columns, ftz=True)
    assert run("mul", f"{mode}.ftz.{kind}", *columns) == expected
    zero = [form.sign * (pattern >= form.sign) for pattern in kept]
    fused = run("fma", f"{mode}.ftz.{kind}", *columns, zero)
    assert fused == expected
    became_normal = [flush(x, form) and not y & ~form.sign for x, y in zip(kept, expected, strict=True)]
    assert any(became_normal) or mode == "rz"
    least = form.magnitude(form.least_normal)
    if kind == "f32" and mode == "rn":  # and some below it are not flushed: rounded to all bits they are the least normal
        assert any(abs(a.value * b.value) < least and y & ~form.sign for (a, b), y in zip(rows, expected, strict=True))


def test_a_reciprocal_just_below_the_least_normal_is_flushed():
    assert run("rcp", "rm.ftz.f32", [0xFE80_0001, 0xFE80_0000, 0x7E80_0001]) == [0x8000_0000, 0x8080_0000, 0]
    assert run("rcp", "rp.ftz.f32", [0x7E80_0001, 0x7E80_0000, 0xFE80_0001]) == [0, 0x0080_0000, 0x8000_0000]


def near_ties(kind: str, count: int) -> list[list[int]]:
    """a * b + c a hair below or above, or on, the midpoint of two numbers of the format."""
    form = FORMATS[kind]
    one = ((1 << (form.exponent - 1)) - 1) << form.fraction
    random_ = random.Random(kind)
    rows = []
    for _ in range(count):
        c_exponent = random_.randint(0, 4)
        c = one + (c_exponent << form.fraction) | random_.getrandbits(form.fraction)
        step = random_.choice([1, 2, 3, 5])
        a = one + random_.choice([0, step])
        # (1 + s) (1 - s) = 1 - s^2, times half of the last place of c
        b = one - (random_.choice([0, 2 * step]) if a != one else 0)
        b += (c_exponent - form.fraction - 1) << form.fraction
        rows.append((a, b | random_.choice([0, form.sign]), c | random_.choice([0, form.sign])))
    return [list(column) for column in zip(*rows, strict=True)]


def test_bf16_fma_of_a_midpoint_and_next_to_nothing():
    form = FORMATS["bf16"]
    rows = []
    for a, b in ((9, 29), (19, 27), (5, 57), (3, 171), (15, 19)):  # products of nine bits and more
        for exponent in (-8, -20, -24, -30, -40, -60, -100):
            for sign in (0, form.sign):
                a_bits, b_bits = rounded(Fraction(a), form, "rn"), rounded(Fraction(b), form, "rn")
                rows.append((a_bits, b_bits, rounded(Fraction(2) ** exponent, form, "rn") | sign))
    columns = [list(column) for column in zip(*rows, strict=True)]
    assert run("fma", "rn.bf16", *columns) == expect("fma", "bf16", "rn", columns)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_fma_is_right_where_rounding_twice_is_not(kind):
    columns = near_ties(kind, 1500)
    expected = expect("fma", kind, "rn", columns)
    assert run("fma", f"rn.{kind}", *columns) == expected
    if kind == "f32":
        a, b, c = (np.array(column, np.uint32).view(np.float32).astype(np.float64) for column in columns)
        twice = (a * b + c).astype(np.float32).view(np.uint32).tolist()
        assert sum(x != y for x, y in zip(twice, expected, strict=True)) > 50


def test_fma_at_the_edge_of_subnormal_numbers():
    form = FORMATS["f32"]
    random_ = random.Random(3)
    rows = []
    for _ in range(1500):  # products around 2^-149, sums around a few of them
        a = (random_.randint(50, 76) << 23) | random_.getrandbits(23)
        b = ((254 - 149 - (a >> 23) + random_.randint(-26, 3)) << 23) | random_.choice([0, 1, random_.getrandbits(23)])
        rows.append(
            (
                a,
                b | random_.choice([0, form.sign]),
                random_.getrandbits(random_.choice([1, 3, 23])) | random_.choice([0, form.sign]),
            )
        )
    for _ in range(300):  # half of 2^-149, times 1 - s^2, on top of up to 23 bits of subnormal number
        step = random_.choice([1, 2, 4])
        a, b = (52 << 23) + step, (52 << 23) - 2 * step
        rows.append((a, b | random_.choice([0, form.sign]), random_.getrandbits(23) | random_.choice([0, form.sign])))
    columns = [list(column) for column in zip(*rows, strict=True)]
    for mode in MODES:
        assert run("fma", f"{mode}.f32", *columns) == expect("fma", "f32", mode, columns)


@pytest.mark.parametrize(("kind", "ftz"), [("f32", ""), ("f32", "ftz."), ("f16", ""), ("f16", "ftz.")])
@pytest.mark.parametrize("name", ["add", "mul", "fma"])
def test_sat_clamps_to_zero_and_one_and_makes_nan_zero(name, kind, ftz):
    form = FORMATS[kind]
    one = ((1 << (form.exponent - 1)) - 1) << form.fraction
    columns = operands(name, kind, 400)
    clamped = [
        0 if pattern >= form.sign or pattern > form.infinity else min(pattern, one)
        for pattern in expect(name, kind, "rn", columns, ftz=bool(ftz))
    ]
    assert run(name, f"rn.{ftz}sat.{kind}", *columns) == clamped


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_relu_makes_what_is_negative_zero_and_keeps_nan(kind):
    form = FORMATS[kind]
    columns = operands("fma", kind, 600)
    clamped = [0 if pattern >= form.sign else pattern for pattern in expect("fma", kind, "rn", columns)]
    assert run("fma", f"rn.relu.{kind}", *columns) == clamped
    assert form.nan in clamped


@pytest.mark.parametrize("modifiers", ["rn.f16x2", "rn.bf16x2", "rn.ftz.f16x2", "rn.f32x2", "rz.ftz.f32x2"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_packed_forms_are_two_scalar_ones(name, modifiers):
    if modifiers == "rz.ftz.f32x2" and name == "sub":
        modifiers = "rp.f32x2"
    mode, *flushes, pair = modifiers.split(".")
    kind = pair.removesuffix("x2")
    half = FORMATS[kind].bits
    lower, upper = operands(name, kind, 300), operands(name, kind, 300)
    upper = [column[::-1] for column in upper]
    joined = [[low | high << half for low, high in zip(*columns, strict=True)] for columns in zip(lower, upper, strict=True)]
    expected = [
        low | high << half
        for low, high in zip(
            expect(name, kind, mode, lower, ftz=bool(flushes)), expect(name, kind, mode, upper, ftz=bool(flushes)), strict=True
        )
    ]
    assert run(name, modifiers, *joined) == expected


def test_packed_forms_take_an_immediate_for_all_lanes():
    registers = np.array([[0x3F80_4000, 0x4040_BF80], [0, 0x7FC0_0000]], np.uint32)
    for kind in ("bf16x2", "f16x2"):
        add = operation("add", ("rn", kind)).function
        assert np.array_equal(
            add(registers, np.array(0x3F80_3F80, np.uint32)), add(registers, np.full_like(registers, 0x3F80_3F80))
        )


@pytest.mark.parametrize("narrow", ["f16", "bf16"])
@pytest.mark.parametrize("mode", MODES)
def test_mixed_precision_widens_exactly_and_rounds_once(mode, narrow):
    form, wide = FORMATS[narrow], FORMATS["f32"]
    a, b = numbers(form, 600, 1) + specials(form), numbers(form, 600, 2) + specials(form)[::-1]
    c = (numbers(wide, 700, 3) + specials(wide))[: len(a)]
    for name, columns in (("add", [a, c]), ("sub", [a, c]), ("fma", [a, b, c])):
        kinds = [form] * (len(columns) - 1) + [wide]
        expected = [
            compute(name, [decode(pattern, of) for pattern, of in zip(row, kinds, strict=True)], wide, mode)
            for row in zip(*columns, strict=True)
        ]
        assert run(name, f"{mode}.f32.{narrow}", *columns) == expected


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_abs_and_neg_change_the_sign_bit_of_numbers(kind):
    form = FORMATS[kind]
    column = specials(form) + numbers(form, 200, 5)
    quiet = [pattern | form.least_normal >> 1 if kind == "f64" else form.nan for pattern in column]
    nan = [pattern & ~form.sign > form.infinity for pattern in column]

    def unless_nan(changed: list[int]) -> list[int]:
        return [of_nan if is_nan else number for of_nan, is_nan, number in zip(quiet, nan, changed, strict=True)]

    assert run("neg", kind, column) == unless_nan([pattern ^ form.sign for pattern in column])
    assert run("abs", kind, column) == unless_nan([pattern & ~form.sign for pattern in column])
    if kind in ("f32", "f16"):
        assert run("abs", f"ftz.{kind}", column) == unless_nan([flush(pattern, form) & ~form.sign for pattern in column])


def test_packed_abs_and_neg_treat_both_halves():
    assert run("neg", "f16x2", [0x0000_8001, 0x7C01_3C00]) == [0x8000_0001, 0x7FFF_BC00]
    assert run("abs", "bf16x2", [0x8000_8001, 0xFF80_FF81]) == [0x0000_0001, 0x7F80_7FFF]
    assert run("neg", "ftz.f16x2", [0x0001_3C00]) == [0x8000_BC00]


def test_copysign_takes_the_sign_of_its_first_operand():
    assert run("copysign", "f32", [0x8000_0000, 0x3F80_0000], [0x4000_0000, 0xFF80_0000]) == [0xC000_0000, 0x7F80_0000]


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_testp_counts_zero_as_normal(kind):
    form = FORMATS[kind]
    column = specials(form)
    sizes = [pattern & (form.sign - 1) for pattern in column]
    properties = {
        "finite": [size < form.infinity for size in sizes],
        "infinite": [size == form.infinity for size in sizes],
        "number": [size <= form.infinity for size in sizes],
        "notanumber": [size > form.infinity for size in sizes],
        "normal": [size == 0 or form.least_normal <= size < form.infinity for size in sizes],
        "subnormal": [0 < size < form.least_normal for size in sizes],
    }
    for name, expected in properties.items():
        assert run("testp", f"{name}.{kind}", column) == expected


@pytest.mark.parametrize(
    ("opcode", "modifiers"),
    [
        ("fma", "f32"),
        ("mad", "rn.f16"),
        ("add", "rz.f16"),
        ("add", "rn.ftz.f64"),
        ("add", "sat.bf16"),
        ("add", "sat.f32x2"),
        ("add", "rn.relu.f16"),
        ("fma", "rn.relu.f32"),
        ("fma", "rn.oob.f16"),
        ("add", "ftz.f32.bf16"),
        ("div", "f32"),
        ("div", "rn.ftz.f64"),
        ("neg", "ftz.bf16"),
        ("add", "rn.cc.f32"),
    ],
)
def test_forms_that_ptx_has_not_are_unknown(opcode, modifiers):
    with pytest.raises(Unknown):
        operation(opcode, tuple(modifiers.split(".")))
