"""Integer arithmetic against Python's integers, of every width and sign."""

from __future__ import annotations

import itertools
import random

import pytest

from impls.cuda.emulator.arithmetic import operation
from impls.cuda.emulator.errors import Unknown
from tests.cuda.emulator.arithmetic.oracle import run

KINDS = ["s16", "u16", "s32", "u32", "s64", "u64"]
WIDE = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}


def width(kind: str) -> int:
    return int(kind[1:])


def value(pattern: int, kind: str) -> int:
    bits = width(kind)
    pattern &= (1 << bits) - 1
    return pattern - (1 << bits) if kind[0] == "s" and pattern >> bits - 1 else pattern


def pattern(number: int, kind: str) -> int:
    return number & ((1 << width(kind)) - 1)


def clamped(number: int, kind: str) -> int:
    bits = width(kind)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return pattern(min(max(number, least), most), kind)


def columns(kind: str, count: int, *more: str) -> list[list[int]]:
    """`count` columns of `kind`, then one of each of `more`: combinations of corners, then random ones."""
    random_ = random.Random(f"{kind}{count}{more}")
    kinds = [kind] * count + list(more)
    corners = [[0, 1, 2, (1 << width(k) - 1) - 1, 1 << width(k) - 1, (1 << width(k)) - 1] for k in kinds]
    rows = list(itertools.product(*corners))
    rows = random_.sample(rows, min(len(rows), 216))
    rows += [tuple(random_.getrandbits(random_.randint(1, width(k))) for k in kinds) for _ in range(200)]
    return [list(column) for column in zip(*rows, strict=True)]


def check(opcode: str, modifiers: str, kind: str, given: list[list[int]], function, result: str | None = None) -> None:
    expected = [pattern(function(*(value(x, kind) for x in row)), result or kind) for row in zip(*given, strict=True)]
    assert run(opcode, modifiers, *given) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_add_sub_mul_min_max_sad(kind):
    a, b, c = columns(kind, 3)
    check("add", kind, kind, [a, b], lambda x, y: x + y)
    check("sub", kind, kind, [a, b], lambda x, y: x - y)
    check("mul", f"lo.{kind}", kind, [a, b], lambda x, y: x * y)
    check("mul", f"hi.{kind}", kind, [a, b], lambda x, y: x * y >> width(kind))
    check("mad", f"lo.{kind}", kind, [a, b, c], lambda x, y, z: x * y + z)
    check("mad", f"hi.{kind}", kind, [a, b, c], lambda x, y, z: (x * y >> width(kind)) + z)
    check("min", kind, kind, [a, b], min)
    check("max", kind, kind, [a, b], max)
    check("sad", kind, kind, [a, b, c], lambda x, y, z: z + abs(x - y))


@pytest.mark.parametrize("kind", WIDE)
def test_wide_products(kind):
    a, b, c = columns(kind, 2, WIDE[kind])
    check("mul", f"wide.{kind}", kind, [a, b], lambda x, y: x * y, WIDE[kind])
    expected = [
        pattern(value(x, kind) * value(y, kind) + value(z, WIDE[kind]), WIDE[kind]) for x, y, z in zip(a, b, c, strict=True)
    ]
    assert run("mad", f"wide.{kind}", a, b, c) == expected


def test_saturation():
    a, b, c = columns("s32", 3)
    rows = [[value(x, "s32") for x in row] for row in zip(a, b, c, strict=True)]
    assert run("add", "sat.s32", a, b) == [clamped(x + y, "s32") for x, y, _ in rows]
    assert run("sub", "sat.s32", a, b) == [clamped(x - y, "s32") for x, y, _ in rows]
    assert run("mad", "hi.sat.s32", a, b, c) == [clamped((x * y >> 32) + z, "s32") for x, y, z in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_division_rounds_toward_zero(kind):
    a, b = columns(kind, 2)
    rows = [(x, y) for x, y in zip(a, b, strict=True) if y]
    given = [list(column) for column in zip(*rows, strict=True)]

    def quotient(x: int, y: int) -> int:
        size = abs(x) // abs(y)
        return size if (x < 0) == (y < 0) else -size

    check("div", kind, kind, given, quotient)
    check("rem", kind, kind, given, lambda x, y: x - quotient(x, y) * y)


@pytest.mark.parametrize("kind", KINDS)
def test_division_by_zero_is_what_the_rules_say(kind):
    assert run("div", kind, [5], [0]) == [(1 << width(kind)) - 1]
    assert run("rem", kind, [5], [0]) == [5]


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_abs_and_neg(kind):
    (a,) = columns(kind, 1)
    check("abs", kind, kind, [a], abs)
    check("neg", kind, kind, [a], lambda x: -x)


@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_24_bits(kind):
    a, b, c = columns(kind, 3)

    def low24(x: int) -> int:
        x &= 0xFF_FFFF
        return x - (1 << 24) if kind == "s32" and x >> 23 else x

    check("mul24", f"lo.{kind}", kind, [a, b], lambda x, y: low24(x) * low24(y))
    check("mul24", f"hi.{kind}", kind, [a, b], lambda x, y: low24(x) * low24(y) >> 16)
    check("mad24", f"lo.{kind}", kind, [a, b, c], lambda x, y, z: low24(x) * low24(y) + z)
    check("mad24", f"hi.{kind}", kind, [a, b, c], lambda x, y, z: (low24(x) * low24(y) >> 16) + z)
    if kind == "s32":
        rows = [[value(x, "s32") for x in row] for row in zip(a, b, c, strict=True)]
        expected = [clamped(pattern_s32(low24(x) * low24(y) >> 16) + z, "s32") for x, y, z in rows]
        assert run("mad24", "hi.sat.s32", a, b, c) == expected


def pattern_s32(number: int) -> int:
    return value(pattern(number, "s32"), "s32")


@pytest.mark.parametrize("sign", ["s", "u"])
def test_packed_halves(sign):
    a, b = columns("u32", 2)
    kind = f"{sign}16"
    for opcode, function in (("add", lambda x, y: x + y), ("min", min), ("max", max)):
        expected = [
            pattern(function(value(x, kind), value(y, kind)), kind)
            | pattern(function(value(x >> 16, kind), value(y >> 16, kind)), kind) << 16
            for x, y in zip(a, b, strict=True)
        ]
        assert run(opcode, f"{kind}x2", a, b) == expected


def test_relu_makes_what_is_negative_zero():
    a, b = columns("s32", 2)
    check("max", "relu.s32", "s32", [a, b], lambda x, y: max(x, y, 0))
    check("min", "relu.s32", "s32", [a, b], lambda x, y: max(min(x, y), 0))
    assert run("min", "relu.s16x2", [0x0005_FFFF], [0x0003_0001]) == [0x0003_0000]


def bytes_of(word: int, kind: str, bits: int) -> list[int]:
    return [value(word >> at, f"{kind[0]}{bits}") for at in range(0, 32, bits)]


@pytest.mark.parametrize(("a_kind", "b_kind"), list(itertools.product(["s32", "u32"], repeat=2)))
def test_dot_products_of_bytes(a_kind, b_kind):
    a, b, c = columns("u32", 3)
    rows = list(zip(a, b, c, strict=True))
    four = [
        (z + sum(p * q for p, q in zip(bytes_of(x, a_kind, 8), bytes_of(y, b_kind, 8), strict=True))) & 0xFFFF_FFFF
        for x, y, z in rows
    ]
    assert run("dp4a", f"{a_kind}.{b_kind}", a, b, c) == four
    for mode, first in (("lo", 0), ("hi", 2)):
        two = [
            (z + sum(p * q for p, q in zip(bytes_of(x, a_kind, 16), bytes_of(y, b_kind, 8)[first : first + 2], strict=True)))
            & 0xFFFF_FFFF
            for x, y, z in rows
        ]
        assert run("dp2a", f"{mode}.{a_kind}.{b_kind}", a, b, c) == two


@pytest.mark.parametrize(
    ("opcode", "modifiers"),
    [
        ("add", "cc.s32"),
        ("addc", "u32"),
        ("mad", "lo.cc.u32"),
        ("add", "sat.u32"),
        ("mul", "s32"),
        ("mul", "wide.s64"),
        ("mad", "lo.sat.s32"),
        ("add", "b32"),
        ("abs", "u32"),
        ("min", "relu.u32"),
        ("sub", "s16x2.sat"),
        ("add", "s8"),
    ],
)
def test_forms_that_ptx_has_not_are_unknown(opcode, modifiers):
    with pytest.raises(Unknown):
        operation(opcode, tuple(modifiers.split(".")))
