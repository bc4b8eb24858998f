"""min and max as the pseudo-code of PTX ISA 9.7.3.11 and 9.7.3.12 says; of two NaNs in f64, as an H200 does."""

from __future__ import annotations

import itertools

import pytest

from impls.cuda.emulator.arithmetic import operation
from impls.cuda.emulator.errors import Unknown
from tests.cuda.emulator.arithmetic.oracle import FORMATS, decode, flush, numbers, run, specials


def two(largest: bool, propagate: bool, form, x: int, y: int) -> int:
    x_nan, y_nan = (decode(pattern, form).kind == "nan" for pattern in (x, y))
    if (x_nan and y_nan) or (propagate and (x_nan or y_nan)):
        return y | form.least_normal >> 1 if form is FORMATS["f64"] else form.nan
    if x_nan or y_nan:
        return y if x_nan else x

    def key(pattern: int):
        number = decode(pattern, form)
        size = {"inf": 1, "finite": 0, "zero": 0}[number.kind]
        return (-size if number.negative else size, number.value, not number.negative)

    return max(x, y, key=key) if largest else min(x, y, key=key)


def pairs(form):
    chosen = list(itertools.product(specials(form), repeat=2))
    chosen += list(zip(numbers(form, 800, 1), numbers(form, 800, 2), strict=True))
    chosen += [(x, x ^ form.sign) for x in numbers(form, 50, 3)]
    return [list(column) for column in zip(*chosen, strict=True)]


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_two_inputs(name, kind):
    form = FORMATS[kind]
    a, b = pairs(form)
    assert run(name, kind, a, b) == [two(name == "max", False, form, x, y) for x, y in zip(a, b, strict=True)]
    if kind == "f64":
        return
    assert run(name, f"NaN.{kind}", a, b) == [two(name == "max", True, form, x, y) for x, y in zip(a, b, strict=True)]
    if kind != "bf16":
        flushed = [(flush(x, form), flush(y, form)) for x, y in zip(a, b, strict=True)]
        assert run(name, f"ftz.{kind}", a, b) == [two(name == "max", False, form, x, y) for x, y in flushed]


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("propagate", ["", "NaN."])
def test_xorsign_takes_the_sign_of_the_product_unless_the_result_is_nan(kind, propagate):
    form = FORMATS[kind]
    a, b = pairs(form)
    expected = []
    for x, y in zip(a, b, strict=True):
        found = two(True, bool(propagate), form, x & ~form.sign, y & ~form.sign)
        nan = found & ~form.sign > form.infinity
        expected.append(form.nan if nan else found | ((x ^ y) & form.sign))
    assert run("max", f"{propagate}xorsign.abs.{kind}", a, b) == expected


@pytest.mark.parametrize("modifiers", ["f32", "NaN.f32", "abs.f32", "ftz.NaN.abs.f32"])
def test_three_inputs(modifiers):
    form = FORMATS["f32"]
    a, b = pairs(form)
    c = (b[7:] + b[:7])[::-1]
    names = modifiers.split(".")
    expected = []
    for row in zip(a, b, c, strict=True):
        x, y, z = (flush(pattern, form) if "ftz" in names else pattern for pattern in row)
        x, y, z = (pattern & ~form.sign if "abs" in names else pattern for pattern in (x, y, z))
        expected.append(two(False, "NaN" in names, form, two(False, "NaN" in names, form, x, y), z))
    assert run("min", modifiers, a, b, c) == expected


def test_packed_forms_treat_both_halves():
    assert run("max", "f16x2", [0x0000_7E00], [0x8000_3C00]) == [0x0000_3C00]
    assert run("min", "NaN.bf16x2", [0x0000_7FC0], [0x8000_3F80]) == [0x8000_7FFF]


@pytest.mark.parametrize(
    ("modifiers", "operands"),
    [("NaN.f64", 2), ("abs.f32", 2), ("xorsign.f32", 2), ("xorsign.abs.f32", 3), ("f16", 3), ("ftz.bf16", 2)],
)
def test_forms_that_ptx_has_not_are_unknown(modifiers, operands):
    with pytest.raises(Unknown):
        operation("max", tuple(modifiers.split(".")), operands=operands)
