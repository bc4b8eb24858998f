"""setp and set: every comparison of PTX ISA 9.7.6 and 9.7.7, by its meaning for exact numbers."""

from __future__ import annotations

import itertools
import operator
import random

import numpy as np
import pytest

from impls.cuda.emulator.arithmetic import operation, register
from impls.cuda.emulator.errors import Unknown
from tests.cuda.emulator.arithmetic.oracle import FORMATS, decode, flush, numbers, run, specials

ORDER = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
INTEGERS = [f"{sign}{bits}" for sign in "us" for bits in (16, 32, 64)]
FLOAT_COMPARISONS = [*ORDER, *(f"{name}u" for name in ORDER), "num", "nan"]


def integers(kind: str) -> tuple[list[int], list[int]]:
    """Pairs of patterns."""
    bits = int(kind[1:])
    random_ = random.Random(kind)
    corners = [0, 1, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1]
    rows = list(itertools.product(corners, repeat=2))
    rows += [(random_.getrandbits(bits), random_.getrandbits(bits)) for _ in range(100)]
    return [a for a, _ in rows], [b for _, b in rows]


def value(pattern: int, kind: str) -> int:
    bits = int(kind[1:])
    return pattern - (1 << bits) if kind[0] == "s" and pattern >> bits - 1 else pattern


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", list(ORDER))
def test_integers(name, kind):
    a, b = integers(kind)
    expected = [ORDER[name](value(x, kind), value(y, kind)) for x, y in zip(a, b, strict=True)]
    assert run("setp", f"{name}.{kind}", a, b) == expected
    alias = {"lt": "lo", "le": "ls", "gt": "hi", "ge": "hs"}.get(name)
    if kind[0] == "u" and alias:
        assert run("setp", f"{alias}.{kind}", a, b) == expected


def compare(name: str, form, x: int, y: int, ftz: bool = False) -> bool:
    first, second = (decode(flush(pattern, form) if ftz else pattern, form) for pattern in (x, y))
    unordered = "nan" in (first.kind, second.kind)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if unordered:
        return name.endswith("u")
    order = [({"inf": 1}.get(number.kind, 0) * (-1 if number.negative else 1), number.value) for number in (first, second)]
    return ORDER[name.removesuffix("u")](*order)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", FLOAT_COMPARISONS)
def test_floats_ordered_and_unordered(name, kind):
    form = FORMATS[kind]
    rows = list(itertools.product(specials(form), repeat=2)) + list(
        zip(numbers(form, 200, 1), numbers(form, 200, 2), strict=True)
    )
    a, b = ([row[i] for row in rows] for i in (0, 1))
    assert run("setp", f"{name}.{kind}", a, b) == [compare(name, form, x, y) for x, y in rows]
    if kind in ("f32", "f16"):
        assert run("setp", f"{name}.ftz.{kind}", a, b) == [compare(name, form, x, y, ftz=True) for x, y in rows]


@pytest.mark.parametrize(("combine", "join"), [("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)])
def test_a_third_predicate_is_combined_with_both_results(combine, join):
    a, b, c = [1, 1, 2, 2], [1, 1, 1, 1], [False, True, False, True]
    op = operation("setp", ("eq", combine, "s32"), results=2, operands=3)
    p, q = op.function(*(np.array(x, dtype=register(k)) for x, k in zip((a, b, c), op.operands, strict=True)))
    held = [x == y for x, y in zip(a, b, strict=True)]
    assert p.tolist() == [join(h, z) for h, z in zip(held, c, strict=True)]
    assert q.tolist() == [join(not h, z) for h, z in zip(held, c, strict=True)]
    assert run("setp", f"eq.{combine}.s32", a, b, c) == p.tolist()


def test_the_opposite_of_an_ordered_comparison_holds_for_nan():
    p, q = operation("setp", ("lt", "f32"), results=2).function(np.array([0x7FC0_0000], np.uint32), np.array([0], np.uint32))
    assert (p.tolist(), q.tolist()) == ([False], [True])


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_packed_setp_gives_the_lower_half_first(kind):
    one = FORMATS[kind.removesuffix("x2")]
    size = ((1 << (one.exponent - 1)) - 1) << one.fraction
    op = operation("setp", ("gt", kind), results=2)
    low, high = op.function(np.array([size, size << 16], np.uint32), np.array([0, 0], np.uint32))
    assert (low.tolist(), high.tolist()) == ([True, False], [False, True])
    op = operation("setp", ("gt", "and", kind), results=2)
    low, high = op.function(np.array([size, size], np.uint32), np.array([0, 0], np.uint32), np.array([True, False]))
    assert (low.tolist(), high.tolist()) == ([True, False], [False, False])


def test_set_gives_all_ones_or_one_by_the_type_of_its_result():
    assert run("set", "lt.u32.s32", [0xFFFF_FFFF, 1], [0, 0]) == [0xFFFF_FFFF, 0]
    assert run("set", "lt.f32.f32", [0xBF80_0000, 0x7FC0_0000], [0, 0]) == [0x3F80_0000, 0]
    assert run("set", "ltu.and.s32.f32", [0x7FC0_0000] * 2, [0, 0], [True, False]) == [0xFFFF_FFFF, 0]
    assert run("set", "eq.f16.f16", [0x3C00, 0], [0x3C00, 0x3C00]) == [0x3C00, 0]
    assert run("set", "eq.u16.bf16", [0x3F80, 0], [0x3F80, 0x3F80]) == [0xFFFF, 0]
    assert run("set", "gt.f16x2.f16x2", [0x3C00_0000], [0x0000_0000]) == [0x3C00_0000]
    assert run("set", "ge.u32.f16x2", [0xBC00_0000], [0x0000_0000]) == [0x0000_FFFF]


@pytest.mark.parametrize(
    "modifiers", ["lt.b32", "lo.s32", "ltu.s32", "num.u32", "lo.f32", "lt.ftz.s32", "lt.ftz.bf16", "lt.pred", "lt.s8"]
)
def test_forms_that_ptx_has_not_are_unknown(modifiers):
    with pytest.raises(Unknown):
        operation("setp", tuple(modifiers.split(".")))
