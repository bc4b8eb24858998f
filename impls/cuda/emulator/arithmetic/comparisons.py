"""setp and set: comparison of integers and of floating-point numbers, ordered or not, combined with a predicate."""

from __future__ import annotations

from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.formats import FORMATS, flushed
from impls.cuda.emulator.arithmetic.forms import Array, Builder, Form, Function, Operation, register, signed_register
from impls.cuda.emulator.arithmetic.half import bf16, f16
from impls.cuda.emulator.arithmetic.packed import halves, joined

_ORDER: dict[str, Any] = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_INTEGERS = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
_FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
_COMPARISONS = ("eq", "ne", *_ORDER, *_UNSIGNED, "equ", "neu", *(f"{name}u" for name in _ORDER), "num", "nan")
_NUMBER: dict[str, Function] = {
    "f32": lambda a: a.view(np.float32),
    "f64": lambda a: a.view(np.float64),
    "f16": f16,
    "bf16": bf16,
}
"""Registers of a floating-point type as float32 or float64."""
_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _integer(form: Form, comparison: str, kind: str) -> Function:
    if comparison in ("eq", "ne"):
        return np.equal if comparison == "eq" else np.not_equal
    if kind[0] == "b":
        raise form.refuse("orders a type without a sign")
    if kind[0] == "u":
        comparison = _UNSIGNED.get(comparison, comparison)
    if comparison not in _ORDER:
        raise form.refuse(f"has a comparison that .{kind} has not")
    ufunc = _ORDER[comparison]
    if kind[0] == "u":
        return ufunc
    signed = signed_register(kind)
    return lambda a, b: ufunc(a.view(signed), b.view(signed))


def _of_numbers(form: Form, comparison: str) -> Function:
    """On float arrays."""
    if comparison in _ORDER or comparison == "eq":
        return _ORDER.get(comparison, np.equal)
    if comparison == "neu":
        return np.not_equal
    if comparison == "num":
        return lambda a, b: (a == a) & (b == b)
    if comparison == "nan":
        return lambda a, b: (a != a) | (b != b)
    if comparison == "ne":
        return lambda a, b: (a < b) | (a > b)
    if comparison == "equ":
        return lambda a, b: ~((a < b) | (a > b))
    if comparison.removesuffix("u") in _ORDER:
        ufunc = _ORDER[_OPPOSITE[comparison.removesuffix("u")]]
        return lambda a, b: ~ufunc(a, b)
    raise form.refuse("compares floating-point numbers as unsigned integers")


def _float(form: Form, comparison: str, kind: str, flush: bool) -> Function:
    each = kind.removesuffix("x2")
    if flush and each not in ("f32", "f16"):
        raise form.refuse("flushes a type that has no .ftz")
    compare = _of_numbers(form, comparison)
    number = _NUMBER[each]
    if not flush:
        return lambda a, b: compare(number(a), number(b))
    within = FORMATS[each]
    return lambda a, b: compare(number(flushed(a, within)), number(flushed(b, within)))


def _compared(form: Form, comparison: str, kind: str, flush: bool) -> Function:
    if kind in _FLOATS:
        return _float(form, comparison, kind, flush)
    if flush:
        raise form.refuse("flushes integers")
    return _integer(form, comparison, kind)


def _setp(form: Form) -> Operation:
    comparison = form.one(*_COMPARISONS)
    combine = form.maybe(*_COMBINE)
    flush = form.has("ftz")
    kind = form.one(*_INTEGERS, *_FLOATS)
    compare = _compared(form, comparison, kind, flush)
    operands = (kind, kind, "pred") if combine else (kind, kind)
    rule = "float comparison" if kind in _FLOATS else "integer comparison"
    join = _COMBINE.get(combine)
    if kind.endswith("x2"):  # one predicate for each half, the lower first

        def pair(a: Array, b: Array, *p: Array) -> tuple[Array, Array]:
            held = compare(halves(a, 16), halves(b, 16))
            low, high = held[..., 0], held[..., 1]
            return (join(low, *p), join(high, *p)) if join else (low, high)

        return form.done(("pred", "pred"), operands, pair, rule)
    if form.results == 2:  # the second is of the opposite comparison

        def both(a: Array, b: Array, *p: Array) -> tuple[Array, Array]:
            held = compare(a, b)
            return (join(held, *p), join(~held, *p)) if join else (held, ~held)

        return form.done(("pred", "pred"), operands, both, rule)
    function = (lambda a, b, p: join(compare(a, b), p)) if join else compare
    return form.done(("pred",), operands, function, rule)


def _set(form: Form) -> Operation:
    comparison = form.one(*_COMPARISONS)
    combine = form.maybe(*_COMBINE)
    flush = form.has("ftz")
    result = form.one("u32", "s32", "u16", "s16", "f32", "f16", "bf16", "f16x2", "bf16x2")
    kind = form.one(*_INTEGERS, *_FLOATS)
    each = result.removesuffix("x2")
    if kind.endswith("x2") and result != kind and result not in ("u32", "s32"):
        raise form.refuse("has a result that its operands do not give")
    compare = _compared(form, comparison, kind, flush)
    join = _COMBINE.get(combine)
    pairs = kind.endswith("x2")
    bits: Any = np.uint16 if pairs else register(result)
    true = bits(FORMATS[each].one) if each in FORMATS else ~bits(0)
    operands = (kind, kind, "pred") if combine else (kind, kind)

    def value(a: Array, b: Array, *p: Array) -> Array:
        held = compare(halves(a, 16), halves(b, 16)) if pairs else compare(a, b)
        if join:
            held = join(held, *(x[..., None] if pairs else x for x in p))
        chosen = np.where(held, true, bits(0))
        return joined(chosen, 16) if pairs else chosen

    return form.done((result,), operands, value, "float comparison" if kind in _FLOATS else "integer comparison")


BUILDERS: dict[str, Builder] = {"setp": _setp, "set": _set}
