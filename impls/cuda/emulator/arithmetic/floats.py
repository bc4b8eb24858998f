"""Floating-point add, sub, mul, fma and mad, and div, rcp and sqrt with an IEEE rounding: what their names say."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.double import arithmetic64
from impls.cuda.emulator.arithmetic.formats import F32, FORMATS, decorated, rectified, saturated
from impls.cuda.emulator.arithmetic.forms import Builder, Form, Function, Operation
from impls.cuda.emulator.arithmetic.half import arithmetic_bf16, arithmetic_bf16x2, arithmetic_f16, bf16, exact_f16, f16
from impls.cuda.emulator.arithmetic.packed import packed
from impls.cuda.emulator.arithmetic.rounding import MODES
from impls.cuda.emulator.arithmetic.single import arithmetic32, exact32

_OPERANDS = {"fma": 3, "mad": 3, "sqrt": 1, "rcp": 1}


def _arithmetic(name: str, kind: str, mode: str) -> Function:
    match kind:
        case "f32":
            return arithmetic32(name, mode)
        case "f64":
            return arithmetic64(name, mode)
        case "f16":
            return arithmetic_f16(name)
    return arithmetic_bf16(name)


def _rule(name: str, kind: str) -> str:
    return f"{'fma' if name == 'fma' else 'float'} {kind}"


def _basic(form: Form) -> Operation:
    """add, sub, mul, fma and mad."""
    name = "fma" if form.opcode == "mad" else form.opcode
    mode = form.maybe(*MODES)
    if not mode:
        if name == "fma":
            raise form.refuse("names no rounding")
        mode = "rn"
    flush, saturate, relu = form.has("ftz"), form.has("sat"), form.has("relu")
    kind = form.one("f32", "f32x2", "f64", "f16", "f16x2", "bf16", "bf16x2")
    mixed = form.maybe("f16", "bf16") if kind == "f32" and name != "mul" else ""
    each = kind.removesuffix("x2")
    count = _OPERANDS.get(name, 2)
    if mixed:
        if flush or relu:
            raise form.refuse("has .ftz or .relu, which mixed precision has not")
        return _mixed(form, name, mode, mixed, saturate)
    if form.opcode == "mad" and each not in ("f32", "f64"):
        raise form.refuse("is a 16-bit mad")
    if mode != "rn" and each in ("f16", "bf16"):
        raise form.refuse("rounds 16-bit numbers another way than .rn")
    if relu and (name != "fma" or each not in ("f16", "bf16") or saturate):
        raise form.refuse("has .relu where only a 16-bit fma may")
    if (flush and each in ("f64", "bf16")) or (saturate and each in ("f64", "bf16")) or (saturate and kind == "f32x2"):
        raise form.refuse("has .ftz or .sat on a type that has none")
    after = saturated if saturate else rectified if relu else None
    if kind == "bf16x2" and after is None:
        return form.done((kind,), (kind,) * count, arithmetic_bf16x2(name), _rule(name, each))
    exact = (exact_f16(name) if each == "f16" else exact32(name)) if flush else None
    function = decorated(_arithmetic(name, each, mode), FORMATS[each], flush=flush, exact=exact, mode=mode, after=after)
    if kind != each:
        function = packed(function, 32 if each == "f32" else 16)
    return form.done((kind,), (kind,) * count, function, _rule(name, each))


def _mixed(form: Form, name: str, mode: str, narrow: str, saturate: bool) -> Operation:
    """add, sub and fma of float32 with 16-bit factors or first operand, which are widened exactly."""
    widen = f16 if narrow == "f16" else bf16
    function = arithmetic32(name, mode)
    operands = (narrow, narrow, "f32") if name == "fma" else (narrow, "f32")
    whole = decorated(
        lambda *arrays: function(*(widen(a).view(np.uint32) for a in arrays[:-1]), arrays[-1]),
        F32,
        after=saturated if saturate else None,
    )
    return form.done(("f32",), operands, whole, "mixed precision")


def ieee_division(form: Form) -> Operation:
    """div, rcp and sqrt with an IEEE rounding; they share their opcodes with the approximations."""
    mode = form.one(*MODES)
    flush = form.has("ftz")
    kind = form.one("f32") if flush else form.one("f32", "f64")
    function = arithmetic32(form.opcode, mode) if kind == "f32" else arithmetic64(form.opcode, mode)
    count = _OPERANDS.get(form.opcode, 2)
    exact = exact32(form.opcode) if flush else None
    whole = decorated(function, FORMATS[kind], flush=flush, exact=exact, mode=mode, after=None)
    return form.done((kind,), (kind,) * count, whole, "IEEE division and root")


BUILDERS: dict[str, Builder] = dict.fromkeys(("add", "sub", "mul", "fma", "mad"), _basic)
