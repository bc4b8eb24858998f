"""The approximate functions, and div, rcp and sqrt whichever way they are rounded.

What PTX leaves open within an error bound is computed in float64 and rounded to nearest: one legal result, not the GPU's bits.
Special values are those of the tables in the PTX ISA.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.floats import ieee_division
from impls.cuda.emulator.arithmetic.formats import BF16, F16, F32, F64, decorated, flushed, settled16, settled32, settled64
from impls.cuda.emulator.arithmetic.forms import Array, Builder, Form, Function, Operation
from impls.cuda.emulator.arithmetic.half import bf16, f16
from impls.cuda.emulator.arithmetic.packed import packed
from impls.cuda.emulator.arithmetic.rounding import MODES, to_bf16
from impls.cuda.emulator.arithmetic.single import f32, wide32

APPROXIMATE: dict[str, tuple[str, float]] = {
    "div.approx.f32": ("ulp", 2),  # for a divisor of 2^-126 to 2^126
    "div.full.f32": ("ulp", 2),
    "rcp.approx.f32": ("ulp", 1),
    "sqrt.approx.f32": ("relative", 2.0**-23),
    "rsqrt.approx.f32": ("relative", 2.0**-22.9),
    "sin.approx.f32": ("absolute", 2.0**-20.5),  # from -2 pi to 2 pi
    "cos.approx.f32": ("absolute", 2.0**-20.5),  # from -2 pi to 2 pi
    "lg2.approx.f32": ("relative", 2.0**-22),  # between 0.5 and 2: absolute
    "ex2.approx.f32": ("ulp", 2),
    "ex2.approx.f16": ("relative", 2.0**-9.9),
    "ex2.approx.bf16": ("relative", 2.0**-7),
    "tanh.approx.f32": ("relative", 2.0**-11),
    "tanh.approx.f16": ("absolute", 2.0**-10.987),
    "tanh.approx.bf16": ("absolute", 2.0**-8),
}
"""Documented error of each, as (kind, bound), in normal numbers."""


def _in_double(ufunc: Any) -> Function:
    return lambda a: settled32(ufunc(wide32(a)).astype(np.float32))


def _reciprocal(x: Array) -> Array:
    return 1 / x


def _reciprocal_root(x: Array) -> Array:
    return 1 / np.sqrt(x)


_UNARY: dict[str, Any] = {
    "rcp": _reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": _reciprocal_root,
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


def _divide(a: Array, b: Array) -> Array:
    return settled32(f32(a) / f32(b))


def _divide_approximately(a: Array, b: Array) -> Array:
    """div.approx is a * (1/b), and 1/b is zero for b above 2^126. Elsewhere this is the quotient, rounded once: its error is
    what an H200's is counted from, and rounding 1/b as well would be one of its own."""
    dividend, divisor = f32(a), f32(b)
    quotient = dividend / divisor
    large = np.abs(divisor) > np.float32(2.0**126)
    if np.count_nonzero(large):
        quotient = np.where(large, dividend * np.copysign(np.float32(0), divisor), quotient)
    return settled32(quotient)


def _div(form: Form) -> Operation:
    how = form.maybe("approx", "full")
    if not how:
        return ieee_division(form)
    flush = form.has("ftz")
    form.one("f32")
    function = _divide_approximately if how == "approx" else _divide
    return form.done(("f32",), ("f32", "f32"), decorated(function, F32, flush=flush, after=None), "approximation")


def _approximate(form: Form) -> Operation:
    name = form.opcode
    if name in ("rcp", "sqrt") and form.has_any(MODES):
        return ieee_division(form)
    form.one("approx")
    flush = form.has("ftz")
    kinds = {"ex2": ("f32", "f16", "f16x2", "bf16", "bf16x2"), "tanh": ("f32", "f16", "f16x2", "bf16", "bf16x2")}
    kind = form.one(*kinds.get(name, ("f32", "f64") if name in ("rcp", "rsqrt") else ("f32",)))
    ufunc = _UNARY[name]
    if kind == "f64":
        if name == "rcp" and not flush:
            raise form.refuse("is without .ftz")
        return form.done((kind,), (kind,), _coarse64(ufunc) if flush else _in_64_bits(ufunc), "approximation f64")
    if kind == "f32":
        if name == "tanh" and flush:
            raise form.refuse("has .ftz where there is none")
        function = _in_double(ufunc)
        return form.done((kind,), (kind,), decorated(function, F32, flush=flush, after=None), "approximation")
    each = kind.removesuffix("x2")
    if flush != (name == "ex2" and each == "bf16"):
        raise form.refuse("has or lacks .ftz against its type")
    function = decorated(_in_16_bits(ufunc, each), BF16 if each == "bf16" else F16, flush=flush, after=None)
    return form.done((kind,), (kind,), packed(function, 16) if kind != each else function, "approximation 16 bits")


def _in_16_bits(ufunc: Any, kind: str) -> Function:
    if kind == "f16":
        return lambda a: settled16(ufunc(f16(a).astype(np.float64)).astype(np.float16).view(np.uint16), F16)
    return lambda a: to_bf16(ufunc(bf16(a).astype(np.float64)).astype(np.float32), "rn")


def _in_64_bits(ufunc: Any) -> Function:
    return lambda a: settled64(ufunc(a.view(np.float64)))


def _coarse64(ufunc: Any) -> Function:
    """rcp and rsqrt .approx.ftz.f64: the upper 32 bits of the operand decide the upper 32 bits of the result."""
    upper = np.uint64(0xFFFF_FFFF_0000_0000)

    def function(a: Array) -> Array:
        x = flushed(a & upper, F64).view(np.float64)
        result = ufunc(x)
        bits = flushed(result.view(np.uint64) & upper, F64)
        return np.where(result != result, np.uint64(0x7FFF_FFFF_0000_0000), bits)

    return function


BUILDERS: dict[str, Builder] = {"div": _div, **dict.fromkeys(_UNARY, _approximate)}
