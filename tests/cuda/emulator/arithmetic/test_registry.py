"""What `operation` promises for every instruction: types, rules, sentences, and registers of any shape."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.arithmetic import APPROXIMATE, RULES, operation, register
from impls.cuda.emulator.errors import Unknown

_TEXT = """
add.f32 sub.rn.f32 mul.f32 fma.rn.f32 fma.rn.ftz.f32 fma.rp.f32 div.rn.f32 div.full.f32 rcp.rn.f32 sqrt.rn.f32
add.f32x2 fma.rn.f32x2 mul.f64 fma.rn.f64 add.f16 mul.rn.f16x2 fma.rn.bf16x2 fma.rn.relu.bf16x2 fma.rn.bf16 add.bf16x2
add.f32.bf16 fma.rz.f32.f16 max.f32 max.NaN.f32 min.f16x2 max.bf16 abs.f32 neg.f32 copysign.f32 testp.finite.f32
ex2.approx.ftz.f32 ex2.approx.f16x2 ex2.approx.ftz.bf16 tanh.approx.f32 rsqrt.approx.f32 rcp.approx.ftz.f64 add.s32
add.s64 sub.s16 add.s16x2 add.sat.s32 mul.lo.s32 mul.hi.u64 mul.wide.u16 mad.lo.s64 mad.wide.u32 mul24.hi.s32 sad.u32
div.s32 rem.u64 abs.s32 min.s32 max.u32 dp4a.s32.u32 dp2a.lo.u32.u32 popc.b64 clz.b32 bfind.s32 brev.b32 bfe.u32
bfe.s64 bfi.b32 bmsk.clamp.b32 szext.wrap.s32 and.b32 or.pred not.pred not.b16 cnot.b32 shl.b16 shl.b64 shr.s32
shr.s16 shr.u64 shf.l.wrap.b32 setp.lt.s32 setp.num.f32 setp.eq.and.b32 set.lt.u32.f32 selp.b32 slct.b32.f32 mov.b32
mov.pred cvt.u32.u16 cvt.s8.s32 cvt.sat.u8.s32 cvt.rni.s32.f32 cvt.rzi.u64.f64 cvt.rn.f32.s32 cvt.rz.f32.u64
cvt.f32.f16 cvt.rn.bf16.f32 cvt.rn.f16x2.f32 cvt.rn.bf16x2.f32 cvt.rna.tf32.f32 cvt.rn.satfinite.e4m3x2.f32
cvt.rn.satfinite.e2m1x2.f32 cvt.rn.satfinite.e4m3x2.f16x2 cvt.rn.f16x2.e4m3x2 cvt.rn.f16x2.e2m1x2 cvt.rp.ue8m0x2.f32
cvt.rn.bf16x2.ue8m0x2 cvt.pack.sat.s16.s32 cvt.pack.sat.u8.s32.b32 prmt.b32 prmt.b32.rc16 lop3.b32
"""
NAMES = _TEXT.split()


@pytest.mark.parametrize("name", NAMES)
def test_registers_of_any_shape_give_registers_of_that_shape(name):
    opcode, *modifiers = name.split(".")
    op = operation(opcode, tuple(modifiers))
    assert op.rule in RULES
    random_ = np.random.default_rng(0)
    whole = [random_.integers(0, 2, (2, 3, 32)) * random_.integers(0, 1 << 16, (2, 3, 32)) for _ in op.operands]
    arrays = [x.astype(register(kind)) for x, kind in zip(whole, op.operands, strict=True)]
    if opcode == "lop3":
        arrays[3] = np.array(0x96, np.uint32)
    with np.errstate(all="ignore"):
        found = op.function(*arrays)
        assert found.dtype == register(op.results[0]) and found.shape == (2, 3, 32)
        flat = op.function(*(a if a.ndim == 0 else a[1, 2] for a in arrays))
        assert np.array_equal(flat, found[1, 2])
        strided = op.function(*(a if a.ndim == 0 else a[:, ::2, ::3] for a in arrays))
        assert np.array_equal(strided, found[:, ::2, ::3])
        # the last operand as an immediate
        one = arrays[-1] if arrays[-1].ndim == 0 else arrays[-1][1, 2, 5]
        immediate = np.array(one, arrays[-1].dtype)
        filled = np.full((2, 3, 32), immediate) if opcode != "lop3" else arrays[-1]
        if len(arrays) > 1:
            assert np.array_equal(op.function(*arrays[:-1], immediate), op.function(*arrays[:-1], filled))
        # operands are left as they were
        for a, x, kind in zip(arrays, whole, op.operands, strict=True):
            assert a.ndim == 0 or np.array_equal(a, x.astype(register(kind)))


def test_an_operation_is_found_once():
    assert operation("add", ("s32",)) is operation("add", ("s32",))


@pytest.mark.parametrize("opcode", ["ld", "mma", "frobnicate"])
def test_an_unknown_instruction_is_named_in_one_sentence(opcode):
    with pytest.raises(Unknown, match=rf"^[A-Z][^.]*{opcode}\.b32\.$"):
        operation(opcode, ("b32",))


def test_an_unknown_modifier_is_named():
    with pytest.raises(Unknown, match=r"add\.fast\.f32.*\.fast"):
        operation("add", ("fast", "f32"))


def test_counts_of_operands_and_results_are_checked():
    assert operation("max", ("f32",), operands=3).operands == ("f32",) * 3
    with pytest.raises(Unknown, match="3 operands"):
        operation("add", ("f32",), operands=3)
    with pytest.raises(Unknown, match="2 results"):
        operation("add", ("f32",), results=2)


def test_rules_say_where_they_are_written():
    assert all("PTX ISA 9.1" in rule.source for rule in RULES.values())
    assert all(rule.status in ("independent compiler", "documented only") for rule in RULES.values())


def test_bounds_belong_to_instructions():
    for name in APPROXIMATE:
        opcode, *modifiers = name.split(".")
        if name == "ex2.approx.bf16":
            modifiers = ["approx", "ftz", "bf16"]
        assert operation(opcode, tuple(modifiers)).rule.startswith("approximation")
