"""The floating-point formats that arithmetic is done in: what a result becomes before it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array, Function


@dataclass(frozen=True)
class Format:
    """One binary format as bit patterns."""

    bits: type[np.unsignedinteger[Any]]
    sign: int
    infinity: int
    least_normal: int
    nan: int
    """The NaN that every operation makes. PTX names it for 16-bit formats, min and max; elsewhere it is what GPUs give."""
    one: int


F16 = Format(np.uint16, 0x8000, 0x7C00, 0x0400, 0x7FFF, 0x3C00)
BF16 = Format(np.uint16, 0x8000, 0x7F80, 0x0080, 0x7FFF, 0x3F80)
F32 = Format(np.uint32, 0x8000_0000, 0x7F80_0000, 0x0080_0000, 0x7FFF_FFFF, 0x3F80_0000)
F64 = Format(np.uint64, 1 << 63, 0x7FF << 52, 1 << 52, 0x7FF8 << 48, 0x3FF << 52)
UFUNC: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt}
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def settled32(x: Array) -> Array:
    """float32 results as registers, every NaN canonical."""
    nan = x != x
    bits = x.view(np.uint32)
    return np.where(nan, np.uint32(F32.nan), bits) if np.count_nonzero(nan) else bits


def settled64(x: Array) -> Array:
    """float64 results as registers, every NaN canonical."""
    return np.where(x != x, np.uint64(F64.nan), x.view(np.uint64))


def settled16(bits: Array, form: Format) -> Array:
    """16-bit results, every NaN canonical."""
    nan = (bits & np.uint16(0x7FFF)) > np.uint16(form.infinity)
    return np.where(nan, np.uint16(form.nan), bits) if np.count_nonzero(nan) else bits


def flushed(bits: Array, form: Format) -> Array:
    """Subnormal numbers replaced by zeros of their sign."""
    kind = form.bits
    # Without the sign, zero wraps round to the largest, so one comparison finds the subnormal numbers.
    tiny = (bits + bits) - kind(1) < kind(2 * form.least_normal - 1)
    return np.where(tiny, bits & kind(form.sign), bits) if np.count_nonzero(tiny) else bits


def saturated(bits: Array, form: Format) -> Array:
    """Clamped to [+0, 1]; a NaN becomes +0."""
    kind = form.bits
    above = np.minimum(bits, kind(form.one))
    return np.where(bits > kind(form.infinity), kind(0), above)


def rectified(bits: Array, form: Format) -> Array:
    """Negative numbers and -0 become +0; a NaN becomes canonical."""
    kind = form.bits
    return np.where(bits >= kind(form.sign), np.where(bits > kind(form.sign | form.infinity), kind(form.nan), kind(0)), bits)


def decorated(
    function: Function, form: Format, *, flush: bool = False, after: Callable[[Array, Format], Array] | None
) -> Function:
    """`function` on bit patterns with subnormal inputs and results flushed, then `after` (saturated or rectified)."""

    def flushing(*arrays: Array) -> Array:
        return flushed(function(*(flushed(a, form) for a in arrays)), form)

    whole = flushing if flush else function
    return whole if after is None else lambda *arrays: after(whole(*arrays), form)
