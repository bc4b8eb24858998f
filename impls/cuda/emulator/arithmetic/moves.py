"""Moves and selections: bits go through unchanged."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array, Builder, Form, Operation

_TYPES = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")
_UNSIGNED = {8: np.uint16, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def pack(width: int, parts: tuple[Array, ...]) -> Array:
    """`mov.b<width> d, {parts}`: the first part is the lowest bits."""
    each = width // len(parts)
    kind = _UNSIGNED[width]
    packed = parts[0].astype(kind)
    for place, part in enumerate(parts[1:], 1):
        packed = packed | (part.astype(kind) << kind(each * place))
    return packed


def unpack(width: int, count: int, value: Array) -> tuple[Array, ...]:
    """`mov.b<width> {count parts}, value`: the lowest bits are the first part."""
    each = width // count
    kind = _UNSIGNED[each]
    parts = tuple((value >> value.dtype.type(each * place)).astype(kind) for place in range(count))
    return parts if each != 8 else tuple(part & kind(0xFF) for part in parts)


def _same(a: Array) -> Array:
    return a


def _mov(form: Form) -> Operation:
    kind = form.one(*_TYPES, "pred")
    return form.done((kind,), (kind,), _same, "bits")


def _selected(a: Array, b: Array, chosen: Array) -> Array:
    return np.where(chosen, a, b)


def _selp(form: Form) -> Operation:
    kind = form.one(*_TYPES)
    return form.done((kind,), (kind, kind, "pred"), _selected, "bits")


def _slct(form: Form) -> Operation:
    flush = form.has("ftz")
    kind = form.one(*_TYPES)
    by = form.one("s32", "f32")
    if by == "s32":
        if flush:
            raise form.refuse("flushes a comparison of integers")
        return form.done((kind,), (kind, kind, by), lambda a, b, c: np.where(c.view(np.int32) >= 0, a, b), "bits")
    # A subnormal number flushed to -0.0 is not below zero.
    least = np.float32(-(2.0**-126)) if flush else np.float32(0)
    compare = np.greater if flush else np.greater_equal
    return form.done((kind,), (kind, kind, by), lambda a, b, c: np.where(compare(c.view(np.float32), least), a, b), "bits")


BUILDERS: dict[str, Builder] = {"mov": _mov, "selp": _selp, "slct": _slct}
