"""Floating-point min and max of two or three numbers: -0 is below +0, and a NaN counts as missing unless `.NaN` is given.

Two NaNs are the canonical one, in f64 the second, made quiet: PTX ISA says canonical NaN of all types, an H200 does this.
"""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.formats import F32, F64, FORMATS, Format, flushed
from impls.cuda.emulator.arithmetic.forms import Array, Builder, Form, Function, Operation
from impls.cuda.emulator.arithmetic.packed import packed

_SIGNED = {np.uint16: np.int16, np.uint32: np.int32, np.uint64: np.int64}


def _ordered(largest: bool, propagate: bool, form: Format) -> Function:
    """By the bit patterns as sign and magnitude, which order all numbers and both zeros."""
    kind, signed = form.bits, _SIGNED[form.bits]
    size = kind(form.sign - 1)
    infinity = kind(form.infinity)
    shift = signed(8 * kind(0).itemsize - 1)
    pick = np.maximum if largest else np.minimum

    def key(a: Array) -> Array:
        number = a.view(signed)
        return number ^ ((number >> shift) & size.view(signed))

    def choose(a: Array, b: Array) -> Array:
        found = pick(key(a), key(b))
        result = (found ^ ((found >> shift) & size.view(signed))).view(kind)
        a_nan, b_nan = (a & size) > infinity, (b & size) > infinity
        if not (np.count_nonzero(a_nan) or np.count_nonzero(b_nan)):
            return result
        if propagate:
            return np.where(a_nan | b_nan, kind(form.nan), result)
        of_both = b | kind(form.quiet) if form is F64 else kind(form.nan)
        return np.where(a_nan, np.where(b_nan, of_both, b), np.where(b_nan, a, result))

    return choose


def _float32(largest: bool, propagate: bool) -> Function:
    """The same on float32, where NumPy's own functions differ only in the sign of zero and the bits of a NaN."""
    ufunc = (np.maximum if largest else np.minimum) if propagate else (np.fmax if largest else np.fmin)
    exactly = _ordered(largest, propagate, F32)

    def choose(a: Array, b: Array) -> Array:
        found = ufunc(a.view(np.float32), b.view(np.float32))
        if np.count_nonzero(found) != found.size or np.count_nonzero(found != found):
            return exactly(a, b)
        return found.view(np.uint32)

    return choose


def _with_signs(choose: Function, form: Format) -> Function:
    """.xorsign.abs: the magnitudes decide, the sign is the product's; a NaN stays as it is."""
    sign, size, nan = form.bits(form.sign), form.bits(form.sign - 1), form.bits(form.nan)

    def chosen(a: Array, b: Array) -> Array:
        found = choose(a & size, b & size)
        return np.where(found == nan, found, found | ((a ^ b) & sign))

    return chosen


def _extreme(form: Form) -> Operation:
    flush, propagate, xorsign, magnitude = (form.has(name) for name in ("ftz", "NaN", "xorsign", "abs"))
    kind = form.one("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
    each = kind.removesuffix("x2")
    within = FORMATS[each]
    count = 3 if form.operands == 3 else 2
    if each == "f64" and (flush or propagate or xorsign or magnitude):
        raise form.refuse("has a modifier that no f64 form has")
    if flush and each == "bf16":
        raise form.refuse("flushes a type that has no .ftz")
    if (count == 3 and (kind != "f32" or xorsign)) or (count == 2 and xorsign != magnitude):
        raise form.refuse(f"with {count} operands is not a form that the emulator knows")
    largest = form.opcode == "max"
    two = _float32(largest, propagate) if kind == "f32" else _ordered(largest, propagate, within)
    if xorsign:
        two = _with_signs(two, within)
    size = within.bits(within.sign - 1)

    def choose(*arrays: Array) -> Array:
        if flush:
            arrays = tuple(flushed(a, within) for a in arrays)
        if count == 3 and magnitude:
            arrays = tuple(a & size for a in arrays)
        found = two(arrays[0], arrays[1])
        return two(found, arrays[2]) if count == 3 else found

    function = choose if flush or count == 3 else two
    return form.done((kind,), (kind,) * count, packed(function, 16) if kind != each else function, "float min and max")


BUILDERS: dict[str, Builder] = {"min": _extreme, "max": _extreme}
