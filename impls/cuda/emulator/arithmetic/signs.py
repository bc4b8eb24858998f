"""abs, neg, copysign and testp: the sign bit and the kind of a floating-point number, by its bits."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.formats import FORMATS, Format, flushed
from impls.cuda.emulator.arithmetic.forms import Builder, Form, Function, Operation, chain
from impls.cuda.emulator.arithmetic.packed import packed


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
    within = FORMATS[each]
    change: Function = (lambda a: a ^ mask) if form.opcode == "neg" else (lambda a: a & ~mask)
    if flush and kind != each:
        change = chain(packed(lambda a: flushed(a, within), 16), change)
    elif flush:
        change = chain(lambda a: flushed(a, within), change)
    return form.done((kind,), (kind,), change, "float sign")


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
