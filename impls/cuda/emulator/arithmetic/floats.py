"""Floating-point add, sub, mul, fma, div, rcp and sqrt, each rounded once; abs, neg, copysign and testp."""

from __future__ import annotations

from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.exact import exact64
from impls.cuda.emulator.arithmetic.formats import (
    F16,
    F32,
    F64,
    FORMATS,
    Format,
    decorated,
    flushed,
    rectified,
    saturated,
    settled16,
    settled32,
    settled64,
)
from impls.cuda.emulator.arithmetic.forms import Array, Builder, Form, Function, Operation
from impls.cuda.emulator.arithmetic.packed import packed
from impls.cuda.emulator.arithmetic.rounding import MODES, narrowed, odd_sum, to_bf16

_UFUNC: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt}
_OPERANDS = {"fma": 3, "mad": 3, "sqrt": 1, "rcp": 1}
_U32 = np.uint32
_U64 = np.uint64


def f32(a: Array) -> Array:
    """Registers as float32."""
    return a.view(np.float32)


def wide32(a: Array) -> Array:
    """Registers of float32 as float64, which holds every one."""
    return a.view(np.float32).astype(np.float64)


# float32


def _fma32(a: Array, b: Array, c: Array) -> Array:
    """fma.rn.f32. The product is exact in float64; only the sum may round before it is rounded again."""
    product = np.multiply(a.view(np.float32), b.view(np.float32), dtype=np.float64)
    addend = c.view(np.float32)
    total = product + addend
    bits = total.view(np.uint64)
    # Rounding twice goes wrong only from a sum that lies on the midpoint of two float32, which has 29 bits less; below
    # the normal numbers midpoints have other bits.
    doubtful = np.count_nonzero((bits & _U64(0x1FFF_FFFF)) == _U64(0x1000_0000)) or np.count_nonzero(
        (bits + bits) - _U64(1) < _U64((2 * 897 << 52) - 1)
    )
    if doubtful:
        total = odd_sum(product, addend.astype(np.float64))
    return settled32(total.astype(np.float32))


def _directed_sum(a: Array, b: Array, mode: str) -> Array:
    """a + b, of float64, rounded once to float32."""
    rounded = narrowed(odd_sum(a, b), np.float32, mode)
    if mode == "rm":  # an exact zero sum is -0, unless it is of two positive zeros
        negative = np.signbit(a) | np.signbit(b)
        rounded = np.where((a + b == 0) & negative, np.float32(-0.0), rounded)
    return settled32(rounded)


def _directed32(name: str, mode: str) -> Function:
    # A quotient or root of two float32 that is no float32 and no midpoint of two is never as near to one as float64 rounds.
    match name:
        case "add":
            return lambda a, b: _directed_sum(wide32(a), wide32(b), mode)
        case "sub":
            return lambda a, b: _directed_sum(wide32(a), -wide32(b), mode)
        case "fma":
            return lambda a, b, c: _directed_sum(wide32(a) * wide32(b), wide32(c), mode)
        case "rcp":
            return lambda a: settled32(narrowed(1 / wide32(a), np.float32, mode))
    ufunc = _UFUNC[name]
    return lambda *arrays: settled32(narrowed(ufunc(*map(wide32, arrays)), np.float32, mode))


def _arithmetic32(name: str, mode: str) -> Function:
    if mode != "rn":
        return _directed32(name, mode)
    if name == "fma":
        return _fma32
    if name == "rcp":
        return lambda a: settled32(np.divide(np.float32(1), f32(a)))
    ufunc = _UFUNC[name]
    if name == "sqrt":
        return lambda a: settled32(ufunc(f32(a)))
    return lambda a, b: settled32(ufunc(a.view(np.float32), b.view(np.float32)))


# float64


def _arithmetic64(name: str, mode: str) -> Function:
    def f64(a: Array) -> Array:
        return a.view(np.float64)

    if name == "rcp":
        divide = _arithmetic64("div", mode)
        one = np.array(F64.one, _U64)
        return lambda a: divide(one, a)
    if mode == "rn" and name != "fma":
        ufunc = _UFUNC[name]
        return lambda *arrays: settled64(ufunc(*map(f64, arrays)))
    if name == "sub":
        add = exact64("add", mode)
        return lambda a, b: settled64(add(f64(a), -f64(b)))
    function = exact64(name, mode)
    return lambda *arrays: settled64(function(*map(f64, arrays)))


# 16 bits


def f16(a: Array) -> Array:
    """Registers of f16 as float32."""
    return a.view(np.float16).astype(np.float32)


def bf16(a: Array) -> Array:
    """Registers of bf16 as float32."""
    return (a.astype(_U32) << _U32(16)).view(np.float32)


def _arithmetic_f16(name: str) -> Function:
    if name == "fma":
        # The product has 22 bits and is exact in float32; the sum is rounded to odd there.
        return lambda a, b, c: settled16(odd_sum(f16(a) * f16(b), f16(c)).astype(np.float16).view(np.uint16), F16)
    ufunc = _UFUNC[name]
    # float32 has the 2 * 11 + 2 bits with which rounding twice gives the same as rounding once.
    return lambda a, b: settled16(ufunc(f16(a), f16(b)).astype(np.float16).view(np.uint16), F16)


def _fma_bf16(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(bf16(a), bf16(b), dtype=np.float64)
    addend = bf16(c)
    total = (product + addend).astype(np.float32)
    if np.count_nonzero((total.view(_U32) & _U32(0xFFFF)) == _U32(0x8000)):  # maybe rounded onto a midpoint
        total = narrowed(odd_sum(product, addend.astype(np.float64)), np.float32, "odd")
    return to_bf16(total, "rn")


def _arithmetic_bf16(name: str) -> Function:
    if name == "fma":
        return _fma_bf16
    if name == "mul":  # float32 has not the range of the product, float64 has
        return lambda a, b: to_bf16(narrowed(np.multiply(bf16(a), bf16(b), dtype=np.float64), np.float32, "odd"), "rn")
    ufunc = _UFUNC[name]
    return lambda a, b: to_bf16(ufunc(bf16(a), bf16(b)), "rn")


# What the names say


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
        return _mixed(form, name, mode, mixed, saturate and not (flush or relu))
    if form.opcode == "mad" and each not in ("f32", "f64"):
        raise form.refuse("is a 16-bit mad")
    if mode != "rn" and each in ("f16", "bf16"):
        raise form.refuse("rounds 16-bit numbers another way than .rn")
    if relu and (name != "fma" or each not in ("f16", "bf16") or saturate):
        raise form.refuse("has .relu where only a 16-bit fma may")
    if (flush and each in ("f64", "bf16")) or (saturate and each in ("f64", "bf16")) or (saturate and kind == "f32x2"):
        raise form.refuse("has .ftz or .sat on a type that has none")
    function = {
        "f32": lambda: _arithmetic32(name, mode),
        "f64": lambda: _arithmetic64(name, mode),
        "f16": lambda: _arithmetic_f16(name),
        "bf16": lambda: _arithmetic_bf16(name),
    }[each]()
    after = saturated if saturate else rectified if relu else None
    function = decorated(function, FORMATS[each], flush=flush, after=after)
    if kind != each:
        function = packed(function, 32 if each == "f32" else 16)
    return form.done((kind,), (kind,) * count, function, f"{'fma' if count == 3 else 'float'} {each}")


def _mixed(form: Form, name: str, mode: str, narrow: str, saturate: bool) -> Operation:
    """add, sub and fma of float32 with 16-bit factors or first operand, which are widened exactly."""
    widen = f16 if narrow == "f16" else bf16
    function = _arithmetic32(name, mode)
    operands = (narrow, narrow, "f32") if name == "fma" else (narrow, "f32")
    whole = decorated(
        lambda *arrays: function(*(widen(a).view(_U32) for a in arrays[:-1]), arrays[-1]),
        F32,
        after=saturated if saturate else None,
    )
    return form.done(("f32",), operands, whole, "mixed precision")


def _division(form: Form) -> Operation:
    """div, rcp and sqrt with an IEEE rounding."""
    mode = form.one(*MODES)
    flush = form.has("ftz")
    kind = form.one("f32") if flush else form.one("f32", "f64")
    function = _arithmetic32(form.opcode, mode) if kind == "f32" else _arithmetic64(form.opcode, mode)
    count = _OPERANDS.get(form.opcode, 2)
    whole = decorated(function, FORMATS[kind], flush=flush, after=None)
    return form.done((kind,), (kind,) * count, whole, "IEEE division and root")


def _sign(form: Form) -> Operation:
    """abs and neg: the sign bit, of NaNs as well."""
    flush = form.has("ftz")
    kind = form.one("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
    each = kind.removesuffix("x2")
    if flush and each not in ("f32", "f16"):
        raise form.refuse("flushes a type that has no .ftz")
    bits, sign = FORMATS[each].bits, FORMATS[each].sign
    if kind != each:
        bits, sign = np.uint32, sign << 16 | sign
    mask = bits(sign)
    if form.opcode == "neg":
        function: Function = lambda a: a ^ mask  # noqa: E731
    else:
        function = lambda a: a & ~mask  # noqa: E731
    if flush:
        plain, within = function, FORMATS[each]
        flushing: Function = lambda a: flushed(a, within)  # noqa: E731
        if kind != each:
            flushing = packed(flushing, 16)
        function = lambda a: plain(flushing(a))  # noqa: E731
    return form.done((kind,), (kind,), function, "float sign")


def _copysign(form: Form) -> Operation:
    kind = form.one("f32", "f64")
    bits, sign = FORMATS[kind].bits, FORMATS[kind].bits(FORMATS[kind].sign)
    rest = bits(~sign)
    return form.done((kind,), (kind, kind), lambda a, b: (a & sign) | (b & rest), "float sign")


def _testp(form: Form) -> Operation:
    what = form.one("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    kind = form.one("f32", "f64")
    within: Format = FORMATS[kind]
    infinity, least, size = within.bits(within.infinity), within.bits(within.least_normal), within.bits(within.sign - 1)
    tests: dict[str, Function] = {
        "finite": lambda a: a < infinity,
        "infinite": lambda a: a == infinity,
        "number": lambda a: a <= infinity,
        "notanumber": lambda a: a > infinity,
        "normal": lambda a: ((a >= least) & (a < infinity)) | (a == 0),
        "subnormal": lambda a: (a < least) & (a != 0),
    }
    test = tests[what]
    return form.done(("pred",), (kind,), lambda a: test(a & size), "testp")


BUILDERS: dict[str, Builder] = {
    "add": _basic,
    "sub": _basic,
    "mul": _basic,
    "fma": _basic,
    "mad": _basic,
    "abs": _sign,
    "neg": _sign,
    "copysign": _copysign,
    "testp": _testp,
}
IEEE_DIVISION: Builder = _division
"""div, rcp and sqrt share their opcodes with the approximations."""
