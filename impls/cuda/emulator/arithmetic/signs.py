"""abs, neg, copysign and testp: the sign bit and the kind of a floating-point number, by its bits."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.formats import F64, FORMATS, Format, flushed, settled16, settled32
from impls.cuda.emulator.arithmetic.forms import Array, Builder, Form, Function, Operation
from impls.cuda.emulator.arithmetic.packed import packed


def _settled(change: Function, form: Format) -> Function:
    """`change` of all numbers; a NaN becomes the canonical one, in f64 it becomes quiet and keeps its sign."""
    if form.bits is np.uint32:
        return lambda a: settled32(change(a).view(np.float32))
    if form.bits is np.uint16:
        return lambda a: settled16(change(a), form)

    def of_double(a: Array) -> Array:
        x = a.view(np.float64)
        nan = x != x
        return np.where(nan, a | np.uint64(F64.quiet), change(a)) if np.count_nonzero(nan) else change(a)

    return of_double


def _sign(form: Form) -> Operation:
    """abs and neg: the sign bit of numbers. Which NaN comes of a NaN PTX ISA leaves open.

    On an H200 they are additions to zero, and NaNs are those of add. For f64, whose abs and neg no probe executes, that is what
    ptxas makes of them.
    """
    flush = form.has("ftz")
    kind = form.one("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
    each = kind.removesuffix("x2")
    if flush and each not in ("f32", "f16"):
        raise form.refuse("flushes a type that has no .ftz")
    within = FORMATS[each]
    mask = within.bits(within.sign)
    change: Function = (lambda a: a ^ mask) if form.opcode == "neg" else (lambda a: a & ~mask)
    settled = _settled(change, within)
    whole: Function = (lambda a: settled(flushed(a, within))) if flush else settled
    return form.done((kind,), (kind,), packed(whole, 16) if kind != each else whole, "float sign")


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


BUILDERS: dict[str, Builder] = {"abs": _sign, "neg": _sign, "copysign": _copysign, "testp": _testp}
