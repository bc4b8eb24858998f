"""Logic, shifts, bit fields and permutation, bit by bit as the pseudo-code of the PTX ISA says."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from impls.cuda.emulator.arithmetic import operation
from impls.cuda.emulator.errors import Unknown
from tests.cuda.emulator.arithmetic.oracle import run

ALL32 = 0xFFFF_FFFF


def words(bits: int, count: int = 150, seed: int = 0) -> list[int]:
    random_ = random.Random(f"{bits}{seed}")
    corners = [0, 1, 1 << bits - 1, (1 << bits) - 1, (1 << bits - 1) - 1]
    return corners + [random_.getrandbits(random_.randint(1, bits)) for _ in range(count - 5)]


def bit(word: int, at: int) -> int:
    return word >> at & 1


def from_bits(bits) -> int:
    return sum(b << i for i, b in enumerate(bits))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_bitwise(bits):
    a, b = words(bits), words(bits, seed=1)
    mask = (1 << bits) - 1
    assert run("and", f"b{bits}", a, b) == [x & y for x, y in zip(a, b, strict=True)]
    assert run("or", f"b{bits}", a, b) == [x | y for x, y in zip(a, b, strict=True)]
    assert run("xor", f"b{bits}", a, b) == [x ^ y for x, y in zip(a, b, strict=True)]
    assert run("not", f"b{bits}", a) == [x ^ mask for x in a]
    assert run("cnot", f"b{bits}", a) == [int(x == 0) for x in a]


def test_predicates():
    a, b = [False, False, True, True], [False, True, False, True]
    assert run("and", "pred", a, b) == [0, 0, 0, 1]
    assert run("or", "pred", a, b) == [0, 1, 1, 1]
    assert run("xor", "pred", a, b) == [0, 1, 1, 0]
    assert run("not", "pred", a) == [1, 1, 0, 0]


def test_lop3_of_all_tables():
    a, b, c = 0b11110000, 0b11001100, 0b10101010  # all eight combinations, in the order of the table
    for table in range(256):
        found = run("lop3", "b32", [a], [b], [c], [table])[0]
        assert found & 0xFF == table
        assert found == from_bits(bit(table, bit(a, i) << 2 | bit(b, i) << 1 | bit(c, i)) for i in range(32))


def test_lop3_of_immediates_alone():
    table, word = np.array(0, np.uint32), np.array(7, np.uint32)
    assert int(operation("lop3", ("b32",)).function(word, word, word, table)) == 0


def test_lop3_with_a_predicate():
    op = operation("lop3", ("or", "b32"), results=2, operands=5)
    word, table = np.array([0, 4, 0], np.uint32), np.array(0xF0, np.uint32)
    d, p = op.function(word, word, word, table, np.array([False, False, True]))
    assert (d.tolist(), p.tolist()) == ([0, 4, 0], [False, True, True])


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_clamp_the_amount(bits):
    rows = list(itertools.product(words(bits, 12), [0, 1, 7, bits - 1, bits, bits + 1, 64, 100, 1 << 31, ALL32]))
    a, n = ([row[i] for row in rows] for i in (0, 1))
    mask = (1 << bits) - 1
    assert run("shl", f"b{bits}", a, n) == [x << min(y, bits) & mask for x, y in rows]
    assert run("shr", f"u{bits}", a, n) == [x >> min(y, bits) for x, y in rows]
    assert run("shr", f"b{bits}", a, n) == [x >> min(y, bits) for x, y in rows]
    signed = [x - (1 << bits) if bit(x, bits - 1) else x for x in a]
    assert run("shr", f"s{bits}", a, n) == [x >> min(y, bits) & mask for x, y in zip(signed, n, strict=True)]


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shifts(mode):
    rows = list(itertools.product(words(32, 9), words(32, 9, 1), [0, 1, 15, 31, 32, 33, 64, ALL32]))
    a, b, c = ([row[i] for row in rows] for i in range(3))
    amounts = [min(n, 32) if mode == "clamp" else n & 31 for n in c]
    whole = [y << 32 | x for x, y, _ in rows]
    assert run("shf", f"l.{mode}.b32", a, b, c) == [w << n >> 32 & ALL32 for w, n in zip(whole, amounts, strict=True)]
    assert run("shf", f"r.{mode}.b32", a, b, c) == [w >> n & ALL32 for w, n in zip(whole, amounts, strict=True)]


FIELDS = list(itertools.product([0, 1, 5, 31, 32, 40, 63, 64, 255, 256 + 3], [0, 1, 4, 31, 32, 33, 63, 64, 255, 256 + 4]))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bfe(kind):
    bits = int(kind[1:])
    rows = [(a, at, length) for a in words(bits, 14) for at, length in FIELDS]

    def extract(a: int, at: int, length: int) -> int:
        at, length = at & 0xFF, length & 0xFF
        sign = 0 if kind[0] == "u" or length == 0 else bit(a, min(at + length - 1, bits - 1))
        return from_bits(bit(a, at + i) if i < length and at + i < bits else sign for i in range(bits))

    assert run("bfe", kind, *map(list, zip(*rows, strict=True))) == [extract(*row) for row in rows]


@pytest.mark.parametrize("bits", [32, 64])
def test_bfi(bits):
    rows = [(a, b, at, length) for a, b in zip(words(bits, 14), words(bits, 14, 1), strict=True) for at, length in FIELDS]

    def insert(a: int, b: int, at: int, length: int) -> int:
        at, length = at & 0xFF, length & 0xFF
        return from_bits(bit(a, i - at) if at <= i < at + length else bit(b, i) for i in range(bits))

    assert run("bfi", f"b{bits}", *map(list, zip(*rows, strict=True))) == [insert(*row) for row in rows]


AMOUNTS = [0, 1, 5, 16, 31, 32, 33, 63, 64, ALL32]


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_bmsk(mode):
    rows = list(itertools.product(AMOUNTS, repeat=2))

    def mask(a: int, b: int) -> int:
        at, length = a & 31, b & 31
        lower = ALL32 << at & ALL32
        upper = ALL32 << at + length & ALL32
        overflow = at + length >= 32
        if mode == "clamp":
            lower = 0 if a >= 32 else lower
            overflow = overflow or a >= 32 or b >= 32
        if overflow:
            upper = 0
        elif length == 0:
            upper = ALL32
        return lower & ~upper & ALL32

    assert run("bmsk", f"{mode}.b32", *map(list, zip(*rows, strict=True))) == [mask(*row) for row in rows]


@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_szext(mode, kind):
    rows = list(itertools.product(words(32, 20), AMOUNTS))

    def extend(a: int, b: int) -> int:
        length = b & 31
        too_large = b >= 32 and mode == "clamp"
        mask = 0 if too_large else ALL32 << length & ALL32
        sign = 0 if length == 0 or too_large or kind == "u32" else bit(a, length - 1)
        return (a & ~mask) | (mask if sign else 0)

    assert run("szext", f"{mode}.{kind}", *map(list, zip(*rows, strict=True))) == [extend(*row) for row in rows]


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_and_reversing(bits):
    a = words(bits) + [1 << i for i in range(bits)]
    assert run("popc", f"b{bits}", a) == [x.bit_count() for x in a]
    assert run("clz", f"b{bits}", a) == [bits - x.bit_length() for x in a]
    assert run("brev", f"b{bits}", a) == [from_bits(bit(x, bits - 1 - i) for i in range(bits)) for x in a]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bfind(kind):
    bits = int(kind[1:])
    a = words(bits)
    flipped = [x ^ ((1 << bits) - 1) if kind[0] == "s" and bit(x, bits - 1) else x for x in a]
    assert run("bfind", kind, a) == [(x.bit_length() - 1) & ALL32 for x in flipped]
    assert run("bfind", f"shiftamt.{kind}", a) == [bits - x.bit_length() if x else ALL32 for x in flipped]


def select(a: int, b: int, selector: int) -> int:
    """The default mode: a nibble names a byte of {b, a}, and with its high bit the sign of that byte."""
    both = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for place in range(4):
        nibble = selector >> 4 * place & 0xF
        byte = both[nibble & 7]
        if nibble & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * place
    return result


def test_prmt_by_a_selector_of_each_lane():
    a, b, c = words(32, 600), words(32, 600, 1), words(32, 600, 2)
    assert run("prmt", "b32", a, b, c) == [select(*row) for row in zip(a, b, c, strict=True)]


def test_prmt_by_one_selector():
    random_ = random.Random(4)
    a, b = np.array(words(32, 8), np.uint32), np.array(words(32, 8, 1), np.uint32)
    permute = operation("prmt", ("b32",)).function
    chosen = [0x5410, 0x7632, 0x3210, 0x0123, 0x7777, 0x4040, 0x6240, 0x8888, 0xF3B1, 0x1_5410]
    for selector in chosen + [random_.getrandbits(16) for _ in range(200)]:
        found = permute(a, b, np.array(selector, np.uint32)).tolist()
        assert found == [select(int(x), int(y), selector) for x, y in zip(a, b, strict=True)]


MODES = {
    # PTX ISA, prmt: bytes of the result from the highest to the lowest, by the two low bits of c
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}


@pytest.mark.parametrize("mode", MODES)
def test_prmt_modes(mode):
    for low, digits in enumerate(MODES[mode]):
        expected = select(0x8382_8180, 0x8786_8584, int(digits, 16))
        assert run("prmt", f"b32.{mode}", [0x8382_8180] * 2, [0x8786_8584] * 2, [low, low | 4]) == [expected] * 2


@pytest.mark.parametrize(
    ("opcode", "modifiers"),
    [("and", "u32"), ("lop3", "b64"), ("shl", "u32"), ("shf", "l.b32"), ("prmt", "b32.f8e"), ("bfe", "b32"), ("fns", "b32")],
)
def test_forms_that_ptx_has_not_or_nobody_wrote_are_unknown(opcode, modifiers):
    with pytest.raises(Unknown):
        operation(opcode, tuple(modifiers.split(".")))
