"""cvt and cvt.pack, between all integer and floating-point types and the packed narrow ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.exact import directed64
from impls.cuda.emulator.arithmetic.formats import (
    F32,
    F64,
    FORMATS,
    Format,
    flushed,
    flushed_result,
    rectified,
    saturated,
    settled16,
    settled32,
    settled64,
)
from impls.cuda.emulator.arithmetic.forms import (
    BITS,
    SIGNED,
    Array,
    Builder,
    Form,
    Function,
    Operation,
    chain,
    register,
    signed_register,
)
from impls.cuda.emulator.arithmetic.half import bf16, f16
from impls.cuda.emulator.arithmetic.narrow import PAIRS, coder, pair_table, scale_codes, scale_pair_table
from impls.cuda.emulator.arithmetic.rounding import MODES, narrowed, odd_sum, to_bf16, upper_half

_INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")
_SCALARS = ("f16", "bf16", "f32", "f64")
_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_ROUNDING = (*MODES, "rna", *_TO_INTEGER)
_U32 = np.uint32


def _limits(kind: str) -> tuple[int, int]:
    bits = BITS[kind]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind in SIGNED else (0, (1 << bits) - 1)


def _number(kind: str) -> Function:
    """Registers of an integer type as NumPy integers of its sign; of wider registers the low bits count."""
    bits = BITS[kind]
    if kind not in SIGNED:
        if bits == 8:
            return lambda a: a & a.dtype.type(0xFF)
        unsigned = register(kind)
        return lambda a: a.astype(unsigned, copy=False)
    narrow: Any = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[bits]
    return lambda a: a.astype(narrow)


def _integer_to_integer(source: str, target: str, saturate: bool) -> Function:
    number = _number(source)
    (least, most), (lowest, highest) = _limits(target), _limits(source)
    signed, bits = signed_register(target), register(target)

    def convert(a: Array) -> Array:
        x = number(a)
        if saturate:
            x = np.clip(x, max(least, lowest), min(most, highest))
        if BITS[target] == 8:
            return (
                x.astype(np.int8).astype(np.int16).view(np.uint16) if target in SIGNED else x.astype(np.uint8).astype(np.uint16)
            )
        return x.astype(signed).view(bits) if target in SIGNED else x.astype(bits)

    return convert


def _wide(kind: str) -> Function:
    """Registers of a floating-point type as float32, of f64 as float64."""
    return {
        "f16": f16,
        "bf16": bf16,
        "f32": lambda a: a.view(np.float32),
        "f64": lambda a: a.view(np.float64),
    }[kind]


def _float_to_integer(source: str, target: str, rounding: str, flush: bool) -> Function:
    wide, whole = _wide(source), _TO_INTEGER[rounding]
    least, most = _limits(target)
    signed, bits = signed_register(target), register(target)
    of_nan = 1 << BITS[target] - 1 if source == "f64" or BITS[target] == 64 else 0
    if target in SIGNED and of_nan:
        of_nan = least

    def convert(a: Array) -> Array:
        x = wide(flushed(a, F32) if flush else a)
        x = whole(x.astype(np.float64))
        nan, above = x != x, x >= most + 1
        # float64 holds the least integer and one more than the greatest of every type, so these tests are exact.
        inside = np.where(nan | above | (x <= least), 0, x)
        if target in SIGNED:
            value = np.where(x <= least, least, inside.astype(signed))
            value = np.where(above, most, np.where(nan, of_nan, value))
            return value.astype(signed).view(bits)
        result = inside.astype(np.uint64).astype(bits)
        return np.where(above, bits(most), np.where(nan, bits(of_nan), result))

    return convert


def _integer_parts(source: str) -> Function:
    """An integer as two float64 numbers whose sum it is exactly."""
    number = _number(source)

    def parts(a: Array) -> tuple[Array, Array]:
        x = number(a)
        if BITS[source] < 64:
            return x.astype(np.float64), np.float64(0) * x
        low = x & x.dtype.type(0xFFFF_FFFF)
        return (x - low).astype(np.float64), low.astype(np.float64)

    return parts


def _integer_to_float(source: str, target: str, mode: str) -> Function:
    parts = _integer_parts(source)
    if target == "f64":
        if mode == "rn" or BITS[source] < 64:
            number = _number(source)
            return lambda a: number(a).astype(np.float64).view(np.uint64)
        return lambda a: directed64(parts(a), mode).view(np.uint64)
    if target == "f32":
        if mode == "rn":
            number = _number(source)
            return lambda a: number(a).astype(np.float32).view(_U32)
        return lambda a: narrowed(odd_sum(*parts(a)), np.float32, mode).view(_U32)
    narrow = _from_float32(target, mode)
    return lambda a: narrow(narrowed(odd_sum(*parts(a)), np.float32, "odd"))


def _from_float32(target: str, mode: str) -> Function:
    """float32, exact or rounded to odd, to the registers of a floating-point type, not f64; any NaN becomes canonical."""
    if target == "f16":
        form = FORMATS["f16"]
        return lambda x: settled16(narrowed(x, np.float16, mode).view(np.uint16), form)
    if target == "bf16":
        return lambda x: to_bf16(x, mode)
    return settled32


def _to_double(x: Array) -> Array:
    """float32 as registers of f64. A NaN keeps its sign and payload and becomes quiet: left open by PTX, done by an H200."""
    bits = x.astype(np.float64).view(np.uint64)
    nan = x != x
    if not np.count_nonzero(nan):
        return bits
    given = x.view(_U32).astype(np.uint64)
    sign, payload = given >> np.uint64(31) << np.uint64(63), (given & np.uint64(0x7F_FFFF)) << np.uint64(29)
    return np.where(nan, sign | np.uint64(F64.infinity | F64.quiet) | payload, bits)


def _to_single(a: Array, mode: str) -> Array:
    """Registers of f64 as those of f32. A NaN keeps its sign and upper payload and becomes quiet, as in `_to_double`."""
    x = a.view(np.float64)
    bits = narrowed(x, np.float32, mode).view(_U32)
    nan = x != x
    if not np.count_nonzero(nan):
        return bits
    sign, payload = (a >> np.uint64(63)).astype(_U32) << _U32(31), (a >> np.uint64(29)).astype(_U32) & _U32(0x7F_FFFF)
    return np.where(nan, sign | _U32(F32.infinity | F32.quiet) | payload, bits)


def _float_to_float(source: str, target: str, rounding: str) -> Function:
    wide = _wide(source)
    if rounding in _TO_INTEGER:
        whole = _TO_INTEGER[rounding]
        if target == "f64":
            return lambda a: settled64(whole(wide(a)))
        back = _from_float32(target, "rn")
        return lambda a: back(whole(wide(a)))
    mode = rounding or "rn"
    if source != "f64":
        if target == "f64":
            return lambda a: _to_double(wide(a))
        if (source, target) == ("bf16", "f32"):  # a shift on an H200, of NaNs as well
            return lambda a: wide(a).view(_U32)
        narrow = _from_float32(target, mode)
        return lambda a: narrow(wide(a))
    if target == "f64":
        return lambda a: settled64(wide(a))
    if target == "f32":
        return lambda a: _to_single(a, mode)
    narrow = _from_float32(target, mode)
    return lambda a: narrow(narrowed(wide(a), np.float32, "odd"))


def _finite(form: Format) -> Function:
    """.satfinite: infinity, and what rounded to it, becomes the largest number."""
    kind = form.bits
    largest, size, infinity = kind(form.infinity - 1), kind(form.sign - 1), kind(form.infinity)
    return lambda a: np.where(a & size == infinity, (a & kind(form.sign)) | largest, a)


def _tf32(mode: str) -> Function:
    """float32 with 10 bits of mantissa; the others are zero. PTX ISA does not say what becomes of a NaN.

    On an H200 that is the upper bits of the canonical NaN, with .rna the upper bits of the NaN itself: ptxas makes .rna of
    integer instructions. Such a NaN becomes infinity if only its lower bits said that it was none.
    """
    dropped = _U32(0x1FFF)

    def convert(a: Array) -> Array:
        size = a & _U32(0x7FFF_FFFF)
        nan = size > _U32(F32.infinity)
        if mode == "rz":
            cut = a & ~dropped
        else:
            half = _U32(0x1000) if mode == "rna" else _U32(0xFFF) + ((a >> _U32(13)) & _U32(1))
            cut = (a + half) & ~dropped
        return np.where(nan, a & ~dropped if mode == "rna" else _U32(F32.nan) & ~dropped, cut)

    return convert


def _scalar_cvt(form: Form, target: str, source: str, rounding: str) -> Operation:
    """One value to one value."""
    flush, saturate, relu, finite = (form.has(name) for name in ("ftz", "sat", "relu", "satfinite"))
    if flush and "f32" not in (source, target):
        raise form.refuse("has .ftz and no .f32")
    if target in _INTEGERS and source in _INTEGERS:
        if rounding or flush or relu or finite:
            raise form.refuse("rounds or clamps as if it had a floating-point type")
        return form.done((target,), (source,), _integer_to_integer(source, target, saturate), "cvt integer")
    if target in _INTEGERS:
        if rounding not in _TO_INTEGER or relu or finite:
            raise form.refuse("names no rounding to an integer")
        return form.done(
            (target,), (source,), _float_to_integer(source, target, rounding, flush and source == "f32"), "cvt float to integer"
        )
    within = FORMATS[target]
    if source in _INTEGERS:
        if rounding not in MODES or relu or finite:
            raise form.refuse("names no rounding of a floating-point number")
        function = _integer_to_float(source, target, rounding)
        rule = "cvt integer to float"
    else:
        order = (16, 32, 64)
        narrows = order.index(BITS[target]) < order.index(BITS[source]) or {source, target} == {"f16", "bf16"}
        known = MODES if narrows else ("",)
        if rounding not in (tuple(_TO_INTEGER) + known if target == source else known):
            raise form.refuse("has no such rounding between these types")
        if (relu or finite) and not (source == "f32" and target in ("f16", "bf16")):
            raise form.refuse("has .relu or .satfinite between types that have neither")
        function = _float_to_float(source, target, rounding)
        rule = "cvt float"
        if flush and source == "f32" and target != "f16":  # an H200 reads subnormal numbers as they are for f16, .ftz or not
            function = chain(_multiplied32 if target == "f64" else _flushed32, function)
    steps: list[Function] = []
    if finite:
        steps.append(_finite(within))
    if flush and target == "f32" and source == "f64":
        function = _flushed_single(function, rounding)
    elif flush and target == "f32":
        steps.append(_flushed32)
    if saturate:
        if target == "bf16":
            raise form.refuse("saturates a type that has no .sat")
        steps.append(lambda a: saturated(a, within))
    if relu:
        steps.append(lambda a: rectified(a, within))
    return form.done((target,), (source,), chain(function, *steps), rule)


def _flushed32(a: Array) -> Array:
    return flushed(a, F32)


def _multiplied32(a: Array) -> Array:
    """.ftz from f32 to f64 on an H200: a product with 1, which flushes subnormal numbers and makes NaNs canonical."""
    return settled32(flushed(a, F32).view(np.float32))


def _flushed_single(function: Function, mode: str) -> Function:
    """.ftz from f64 to f32."""
    return lambda a: flushed_result(function(a), F32, lambda: a.view(np.float64), mode)


def _cvt_tf32(form: Form, rounding: str) -> Operation:
    form.one("f32")
    relu, finite = form.has("relu"), form.has("satfinite")
    if rounding not in ("rna", "rn", "rz") or (relu and rounding == "rna"):
        raise form.refuse("has no such rounding")
    steps: list[Function] = []
    if finite:
        steps.append(_finite_tf32)
    if relu:
        steps.append(lambda a: rectified(a, F32))
    return form.done(("b32",), ("f32",), chain(_tf32(rounding), *steps), "cvt tf32")


def _finite_tf32(a: Array) -> Array:
    infinite = a & _U32(0x7FFF_FFFF) == _U32(F32.infinity)
    return np.where(infinite, (a & _U32(F32.sign)) | _U32(0x7F7F_E000), a)


def _bf16_pair(mode: str) -> Function:
    def convert(a: Array, b: Array) -> Array:
        high, low = upper_half(a.view(np.float32), mode), upper_half(b.view(np.float32), mode)
        return (high & _U32(0xFFFF_0000)) | (low >> _U32(16))

    return convert


def _cvt_pair16(form: Form, target: str, rounding: str) -> Operation:
    """Two float32 to f16x2 or bf16x2: the first operand goes to the upper half."""
    relu, finite = form.has("relu"), form.has("satfinite")
    if rounding not in ("rn", "rz"):
        raise form.refuse("has no such rounding")
    each = target.removesuffix("x2")
    function = _float_to_float("f32", each, rounding)
    within = FORMATS[each]
    if finite:
        function = chain(function, _finite(within))

    if target == "bf16x2" and not (relu or finite):
        return form.done((target,), ("f32", "f32"), _bf16_pair(rounding), "cvt packed 16 bits")

    def convert(a: Array, b: Array) -> Array:
        high, low = function(a), function(b)
        if relu:
            high, low = rectified(high, within), rectified(low, within)
        return (high.astype(_U32) << _U32(16)) | low

    return form.done((target,), ("f32", "f32"), convert, "cvt packed 16 bits")


def _cvt_to_narrow(form: Form, target: str, rounding: str) -> Operation:
    relu = form.has("relu")
    source = form.one("f32", "f16x2", "bf16x2")
    if rounding != "rn" or not form.has("satfinite"):
        raise form.refuse("is without .rn.satfinite, the only form there is")
    to = PAIRS[target]
    shift = np.uint16(4 if target == "e2m1x2" else 8)
    codes = coder(to, source.removesuffix("x2"), relu)
    if source == "f32":
        return form.done((target,), ("f32", "f32"), lambda a, b: (codes(a) << shift) | codes(b), "cvt narrow")
    low = _U32(0xFFFF)
    return form.done((target,), (source,), lambda a: (codes(a >> _U32(16)) << shift) | codes(a & low), "cvt narrow")


def _cvt_from_narrow(form: Form, target: str, source: str, rounding: str) -> Operation:
    relu = form.has("relu")
    if rounding != "rn":
        raise form.refuse("is without .rn, the only rounding there is")
    table = pair_table(source, target, relu)
    return form.done((target,), (source,), table.take, "cvt narrow")


def _cvt_to_scale(form: Form, rounding: str) -> Operation:
    finite = form.has("satfinite")
    source = form.one("f32", "bf16x2")
    if rounding not in ("rz", "rp"):
        raise form.refuse("rounds a scale another way than .rz or .rp")
    up, byte = rounding == "rp", np.uint16(8)
    if source == "f32":

        def convert(a: Array, b: Array) -> Array:
            return (scale_codes(a, up, finite) << byte) | scale_codes(b, up, finite)

        return form.done(("ue8m0x2",), ("f32", "f32"), convert, "cvt ue8m0")

    def convert_pair(a: Array) -> Array:
        high, low = a & _U32(0xFFFF_0000), a << _U32(16)
        return (scale_codes(high, up, finite) << byte) | scale_codes(low, up, finite)

    return form.done(("ue8m0x2",), (source,), convert_pair, "cvt ue8m0")


def _cvt(form: Form) -> Operation:
    if form.has("pack"):
        return _pack(form)
    rounding = form.maybe(*_ROUNDING)
    target = form.one(*_INTEGERS, *_SCALARS, "tf32", "f16x2", "bf16x2", *PAIRS, "ue8m0x2")
    if target == "tf32":
        return _cvt_tf32(form, rounding)
    if target in PAIRS:
        return _cvt_to_narrow(form, target, rounding)
    if target == "ue8m0x2":
        return _cvt_to_scale(form, rounding)
    source = form.one(*_INTEGERS, *_SCALARS, *PAIRS, "ue8m0x2")
    if target == "bf16x2" and source == "ue8m0x2" and rounding == "rn":
        return form.done((target,), (source,), scale_pair_table().take, "cvt ue8m0")
    if target == "f16x2" and source in PAIRS:
        return _cvt_from_narrow(form, target, source, rounding)
    if target in ("f16x2", "bf16x2") and source == "f32":
        return _cvt_pair16(form, target, rounding)
    if target.endswith("x2") or source.endswith("x2"):
        raise form.refuse("converts between types that have no conversion")
    return _scalar_cvt(form, target, source, rounding)


def _pack(form: Form) -> Operation:
    """cvt.pack: two s32 saturated and packed below what of the third operand is shifted up."""
    form.one("sat")
    target = form.one("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2")
    form.one("s32")
    bits = int(target[1:])
    signed = target[0] == "s"
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    mask, shift = _U32((1 << bits) - 1), _U32(bits)

    def part(a: Array) -> Array:
        return np.clip(a.view(np.int32), least, most).view(_U32) & mask

    if bits == 16:
        return form.done(("b32",), ("s32", "s32"), lambda a, b: (part(a) << shift) | part(b), "cvt.pack")
    form.one("b32")
    return form.done(
        ("b32",),
        ("s32", "s32", "b32"),
        lambda a, b, c: (((c << shift) | part(a)) << shift) | part(b),
        "cvt.pack",
    )


BUILDERS: dict[str, Builder] = {"cvt": _cvt}
