"""Moves, selections, and the packing of vectors into registers."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.arithmetic import operation, pack, unpack
from impls.cuda.emulator.errors import Unknown
from tests.cuda.emulator.arithmetic.oracle import run


@pytest.mark.parametrize("kind", ["b16", "u16", "b32", "f32", "s32", "b64", "f64", "pred"])
def test_mov_keeps_bits(kind):
    column = [True, False] if kind == "pred" else [0x7F81, 0x8000]
    assert run("mov", kind, column) == column


def test_selp_takes_the_first_where_the_predicate_holds():
    assert run("selp", "f32", [0x7FA0_0000, 1], [2, 0x7FA0_0001], [True, False]) == [0x7FA0_0000, 0x7FA0_0001]
    assert run("selp", "b16", [1, 2], [3, 4], [False, True]) == [3, 2]


def test_slct_takes_the_second_below_zero_and_for_nan():
    signs = [0, 1, 0x8000_0000, 0xFFFF_FFFF]
    assert run("slct", "u32.s32", [1] * 4, [2] * 4, signs) == [1, 1, 2, 2]
    numbers = [0, 0x8000_0000, 0xBF80_0000, 0x7FC0_0000, 0x8000_0001, 0x8080_0000, 0x7F80_0000]
    assert run("slct", "b64.f32", [1] * 7, [2] * 7, numbers) == [1, 1, 2, 2, 2, 2, 1]
    assert run("slct", "ftz.b64.f32", [1] * 7, [2] * 7, numbers) == [1, 1, 2, 2, 1, 2, 1]


@pytest.mark.parametrize(("width", "count"), [(64, 2), (64, 4), (32, 2), (32, 4), (16, 2), (64, 8)])
def test_the_first_part_of_a_vector_is_the_lowest_bits(width, count):
    whole = 0xFEDC_BA98_7654_3210 & ((1 << width) - 1)
    each = width // count
    value = np.full((2, 3), whole, {16: np.uint16, 32: np.uint32, 64: np.uint64}[width])
    parts = unpack(width, count, value)
    assert [int(part[1, 2]) for part in parts] == [whole >> each * i & ((1 << each) - 1) for i in range(count)]
    assert all(part.dtype.itemsize == max(each // 8, 2) for part in parts)
    packed = pack(width, parts)
    assert packed.dtype == value.dtype and np.array_equal(packed, value)


def test_pack_mixes_registers_and_immediates():
    assert pack(32, (np.array([1, 2], np.uint16), np.array(3, np.uint16))).tolist() == [0x3_0001, 0x3_0002]


@pytest.mark.parametrize(("opcode", "modifiers"), [("mov", "b128"), ("mov", "s8"), ("selp", "pred"), ("slct", "ftz.b32.s32")])
def test_forms_that_ptx_has_not_or_nobody_wrote_are_unknown(opcode, modifiers):
    with pytest.raises(Unknown):
        operation(opcode, tuple(modifiers.split(".")))
