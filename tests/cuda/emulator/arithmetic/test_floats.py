"""Floating-point arithmetic against exact rational numbers, rounded once by definition."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tests.cuda.emulator.arithmetic.oracle import FORMATS, compute, decode, flush, numbers, run, specials

MODES = ("rn", "rz", "rm", "rp")
COUNT = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "rcp": 1, "sqrt": 1}


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
    return [
        within(compute(name, [decode(within(pattern), form) for pattern in row], form, mode))
        for row in zip(*columns, strict=True)
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "div", "rcp", "sqrt"])
def test_f32_rounds_once_in_every_direction(name, mode):
    columns = operands(name, "f32", 700)
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
    columns = operands(name, kind, 2000)
    assert run(name, f"rn.{kind}", *columns) == expect(name, kind, "rn", columns)


@pytest.mark.parametrize("name", ["add", "mul", "fma", "div", "sqrt"])
def test_ftz_flushes_inputs_and_results(name):
    columns = operands(name, "f32", 500)
    assert run(name, "rn.ftz.f32", *columns) == expect(name, "f32", "rn", columns, ftz=True)


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
    columns = [list(column) for column in zip(*rows, strict=True)]
    for mode in MODES:
        assert run("fma", f"{mode}.f32", *columns) == expect("fma", "f32", mode, columns)
