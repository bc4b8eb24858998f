"""Integer arithmetic: wraps around at the width of its type unless `.sat` says otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.forms import (
    BITS,
    SIGNED,
    Array,
    Builder,
    Form,
    Function,
    Operation,
    register,
    signed_register,
)
from impls.cuda.emulator.arithmetic.packed import packed

_WIDE = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}
_SCALAR = ("s16", "u16", "s32", "u32", "s64", "u64")
_PAIRS = ("s16x2", "u16x2")


def _as_signed(kind: str, function: Function) -> Function:
    """`function` on the signed integers that the registers of `kind` hold."""
    signed, bits = signed_register(kind), register(kind)
    return lambda *arrays: function(*(a.view(signed) for a in arrays)).view(bits)


def _typed(kind: str, function: Function) -> Function:
    return _as_signed(kind, function) if kind in SIGNED else function


def _saturated(exact: Array) -> Array:
    """64-bit sums as 32-bit registers, clamped to the range of s32."""
    return np.clip(exact, -(2**31), 2**31 - 1).astype(np.int32).view(np.uint32)


def _wide(a: Array) -> Array:
    return a.view(np.int32).astype(np.int64)


def _add(form: Form) -> Operation:
    ufunc = np.add if form.opcode == "add" else np.subtract
    if form.has("sat"):
        form.one("s32")
        return form.done(("s32",), ("s32", "s32"), lambda a, b: _saturated(ufunc(_wide(a), _wide(b))), "integer saturation")
    kind = form.one(*_SCALAR, *_PAIRS)
    function = packed(ufunc, 16) if kind in _PAIRS else ufunc
    return form.done((kind,), (kind, kind), function, "integer")


def _high64(a: Array, b: Array) -> Array:
    """Upper half of the 128-bit product of unsigned numbers, from products of their 32-bit halves."""
    half, low = np.uint64(32), np.uint64(0xFFFF_FFFF)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = a_high * b_low + (a_low * b_low >> half)
    carried = a_low * b_high + (middle & low)
    return a_high * b_high + (middle >> half) + (carried >> half)


def _high64_signed(a: Array, b: Array) -> Array:
    sign = np.uint64(63)
    return _high64(a, b) - (a >> sign) * b - (b >> sign) * a


def _product(part: str, kind: str) -> Function:
    """mul.part.kind."""
    if part == "lo":
        return np.multiply
    if BITS[kind] == 64:
        return _high64_signed if kind in SIGNED else _high64
    wide = _WIDE[kind]
    if part == "wide":
        return _widened(np.multiply, kind, wide)
    bits, up = register(kind), register(wide)
    whole = _widened(np.multiply, kind, wide)
    return lambda a, b: (whole(a, b) >> up(BITS[kind])).astype(bits)


def _widened(ufunc: Function, kind: str, wide: str) -> Function:
    """A ufunc of operands of `kind`, in the arithmetic of `wide`."""
    result = register(wide)
    if kind not in SIGNED:
        return lambda a, b: ufunc(a, b, dtype=result)
    narrow, up = signed_register(kind), signed_register(wide)
    return lambda a, b: ufunc(a.view(narrow), b.view(narrow), dtype=up).view(result)


def _mul(form: Form) -> Operation:
    part = form.one("lo", "hi", "wide")
    kind = form.one(*(_WIDE if part == "wide" else _SCALAR))
    return form.done((_WIDE[kind] if part == "wide" else kind,), (kind, kind), _product(part, kind), "integer")


def _mad(form: Form) -> Operation:
    part = form.one("lo", "hi", "wide")
    if form.has("sat"):
        form.one("s32")
        if part != "hi":
            raise form.refuse("saturates another part than .hi")
        high = _product("hi", "s32")
        return form.done(("s32",), ("s32",) * 3, lambda a, b, c: _saturated(_wide(high(a, b)) + _wide(c)), "integer saturation")
    kind = form.one(*(_WIDE if part == "wide" else _SCALAR))
    product = _product(part, kind)
    result = _WIDE[kind] if part == "wide" else kind
    return form.done((result,), (kind, kind, result), lambda a, b, c: product(a, b) + c, "integer")


def _product24(part: str, kind: str) -> Function:
    """Bits 0 to 31 (`lo`) or 16 to 47 (`hi`) of the product of the lower 24 bits."""
    if kind == "s32":
        up: Any = np.int64

        def factor(a: Array) -> Array:
            return (a << np.uint32(8)).view(np.int32) >> np.int32(8)
    else:
        up = np.uint64

        def factor(a: Array) -> Array:
            return a & np.uint32(0xFF_FFFF)

    shift = up(0 if part == "lo" else 16)
    return lambda a, b: (np.multiply(factor(a), factor(b), dtype=up) >> shift).astype(np.uint32)


def _mul24(form: Form) -> Operation:
    product = _product24(form.one("lo", "hi"), kind := form.one("s32", "u32"))
    return form.done((kind,), (kind, kind), product, "integer 24 bits")


def _mad24(form: Form) -> Operation:
    part = form.one("lo", "hi")
    saturate = form.has("sat")
    kind = form.one("s32", "u32")
    product = _product24(part, kind)
    if not saturate:
        return form.done((kind,), (kind,) * 3, lambda a, b, c: product(a, b) + c, "integer 24 bits")
    if (part, kind) != ("hi", "s32"):
        raise form.refuse("saturates another form than .hi.s32")
    return form.done((kind,), (kind,) * 3, lambda a, b, c: _saturated(_wide(product(a, b)) + _wide(c)), "integer saturation")


def _sad(form: Form) -> Operation:
    kind = form.one(*_SCALAR)
    largest, smallest = _typed(kind, np.maximum), _typed(kind, np.minimum)
    return form.done((kind,), (kind,) * 3, lambda a, b, c: largest(a, b) - smallest(a, b) + c, "integer")


def _quotient(a: Array, b: Array) -> Array:
    """Unsigned; all ones where the divisor is zero."""
    zero = b == 0
    return np.floor_divide(a, b | zero) | np.negative(zero.astype(a.dtype))


def _remainder(a: Array, b: Array) -> Array:
    """Unsigned; the dividend where the divisor is zero."""
    zero = b == 0
    return np.where(zero, a, np.remainder(a, b | zero))


def _signed_division(kind: str, remainder: bool) -> Function:
    """Toward zero, by way of the magnitudes: those of the least number and of -1 fit unsigned."""
    signed, bits = signed_register(kind), register(kind)

    def divide(a: Array, b: Array) -> Array:
        x, y = a.view(signed), b.view(signed)
        size = np.floor_divide(np.abs(x).view(bits), np.abs(y).view(bits) | (b == 0))
        whole = np.where((x ^ y) < 0, np.negative(size), size)
        if remainder:
            return np.where(b == 0, a, a - whole * b)
        return np.where(b == 0, bits(~bits(0)), whole)

    return divide


def _div(form: Form) -> Operation:
    remainder = form.opcode == "rem"
    kind = form.one(*_SCALAR)
    unsigned = _remainder if remainder else _quotient
    function = _signed_division(kind, remainder) if kind in SIGNED else unsigned
    return form.done((kind,), (kind, kind), function, "integer division")


def _abs(form: Form) -> Operation:
    kind = form.one("s16", "s32", "s64")
    return form.done((kind,), (kind,), _as_signed(kind, np.abs), "integer")


def _neg(form: Form) -> Operation:
    kind = form.one("s16", "s32", "s64")
    return form.done((kind,), (kind,), np.negative, "integer")


def _extreme(form: Form) -> Operation:
    """min and max."""
    ufunc = np.minimum if form.opcode == "min" else np.maximum
    relu = form.has("relu")
    kind = form.one("s32", "s16x2") if relu else form.one(*_SCALAR, *_PAIRS)
    each = kind.removesuffix("x2")
    function = _as_signed(each, lambda a, b: np.maximum(ufunc(a, b), 0)) if relu else _typed(each, ufunc)
    if kind in _PAIRS:
        function = packed(function, 16)
    return form.done((kind,), (kind, kind), function, "integer")


def _dot(form: Form) -> Operation:
    """dp4a and dp2a: products of bytes, or of 16-bit numbers and bytes, summed with the third operand."""
    four = form.opcode == "dp4a"
    upper = not four and form.one("lo", "hi") == "hi"
    a_kind, b_kind = form.one("u32", "s32"), form.one("u32", "s32")
    result = "u32" if a_kind == b_kind == "u32" else "s32"
    count, a_bits = (4, 8) if four else (2, 16)
    first = 2 if upper else 0

    def element(a: Array, kind: str, bits: int, place: int) -> Array:
        raised = a << np.uint32(32 - bits * (place + 1))
        down = np.uint32(32 - bits)
        return (raised.view(np.int32) >> down.view(np.int32)).view(np.uint32) if kind == "s32" else raised >> down

    def dot(a: Array, b: Array, c: Array) -> Array:
        total = c
        for place in range(count):
            total = total + element(a, a_kind, a_bits, place) * element(b, b_kind, 8, first + place)
        return total

    return form.done((result,), (a_kind, b_kind, result), dot, "dot product of bytes")


BUILDERS: dict[str, Builder] = {
    "add": _add,
    "sub": _add,
    "mul": _mul,
    "mad": _mad,
    "mul24": _mul24,
    "mad24": _mad24,
    "sad": _sad,
    "div": _div,
    "rem": _div,
    "abs": _abs,
    "neg": _neg,
    "min": _extreme,
    "max": _extreme,
    "dp4a": _dot,
    "dp2a": _dot,
}
