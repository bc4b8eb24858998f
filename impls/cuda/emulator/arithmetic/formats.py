"""The floating-point formats that arithmetic is done in: what a result becomes before it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array, Function
from impls.cuda.emulator.arithmetic.rounding import narrowed


@dataclass(frozen=True)
class Format:
    """One binary format as bit patterns."""

    bits: type[np.unsignedinteger[Any]]
    sign: int
    infinity: int
    least_normal: int
    nan: int
    """The NaN that operations make, of NaNs too but in f64. PTX names it for 16-bit formats, min and max; elsewhere it is what
    an H200 gives."""
    one: int

    @property
    def quiet(self) -> int:
        """The bit that makes a NaN quiet."""
        return self.least_normal >> 1


F16 = Format(np.uint16, 0x8000, 0x7C00, 0x0400, 0x7FFF, 0x3C00)
BF16 = Format(np.uint16, 0x8000, 0x7F80, 0x0080, 0x7FFF, 0x3F80)
F32 = Format(np.uint32, 0x8000_0000, 0x7F80_0000, 0x0080_0000, 0x7FFF_FFFF, 0x3F80_0000)
F64 = Format(np.uint64, 1 << 63, 0x7FF << 52, 1 << 52, 0xFFF8 << 48, 0x3FF << 52)
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


def flushed_result(bits: Array, form: Format, exactly: Callable[[], Array], mode: str) -> Array:
    """Results replaced by zeros of their sign where they are below the normal numbers: as rounded if exponents had no least.

    PTX ISA only says that subnormal results are flushed. What lies so near to the least normal number that it becomes it when
    it is rounded as a subnormal number counts as below it on an H200 (mul.ftz.f16x2, rcp.ftz.f32). Whether the number before
    rounding decides there, or the one rounded to all bits of the format, its results do not tell; ptxas does the latter where
    it makes machine code without .ftz of cvt.ftz.f32.f64. `exactly` gives the results in a wider format, exact or rounded
    to odd, and is called if it matters.
    """
    kind = form.bits
    doubled = bits + bits
    least = kind(2 * form.least_normal)
    tiny = doubled - kind(1) < least  # as in `flushed`, and the least normal number
    if not np.count_nonzero(tiny):
        return bits
    doubtful = doubled == least
    if np.count_nonzero(doubtful):
        narrow: Any = np.float16 if kind is np.uint16 else np.float32
        bound = np.finfo(narrow).tiny
        rounded = narrowed(exactly() * (1 / bound), narrow, mode)  # a power of two, so nothing but the exponent changes
        tiny &= ~doubtful | (np.abs(rounded) < 1)
    return np.where(tiny, bits & kind(form.sign), bits)


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
    function: Function,
    form: Format,
    *,
    flush: bool = False,
    exact: Function | None = None,
    mode: str = "rn",
    after: Callable[[Array, Format], Array] | None,
) -> Function:
    """`function` on bit patterns with subnormal inputs and results flushed, then `after` (saturated or rectified).

    `exact` is the same function before it rounds as `mode` says, where that is known (`flushed_result`).
    """

    def flushing(*arrays: Array) -> Array:
        arrays = tuple(flushed(a, form) for a in arrays)
        return result(function(*arrays), arrays)

    def result(bits: Array, arrays: tuple[Array, ...]) -> Array:
        return flushed(bits, form) if exact is None else flushed_result(bits, form, partial(exact, *arrays), mode)

    whole = flushing if flush else function
    return whole if after is None else lambda *arrays: after(whole(*arrays), form)
