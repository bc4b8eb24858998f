"""Rounding once: exact sums of two parts, and conversion to a narrower format in each direction.

A number that is not exact in the wide format is first rounded *to odd* there (cut, and the last bit set if anything was cut).
Such a number lies strictly between the same two narrow neighbours, and on the same side of their midpoint, as the exact one,
so any later rounding to a format at least two bits narrower gives what rounding once would.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array

MODES = ("rn", "rz", "rm", "rp")
_INTEGER = {2: np.int16, 4: np.int32, 8: np.int64}


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its error: together exactly a + b, unless the sum overflows."""
    total = a + b
    from_b = total - a
    return total, (a - (total - from_b)) + (b - from_b)


def odd_sum(a: Array, b: Array) -> Array:
    """a + b rounded to odd in the format of both."""
    total, error = two_sum(a, b)
    integer = _INTEGER[total.dtype.itemsize]
    bits, of_error = total.view(integer), error.view(integer)
    # Of an inexact sum that was rounded to an even number, the odd neighbour is on the side of the error.
    toward = ((bits ^ of_error) >> integer(8 * total.dtype.itemsize - 1)) | integer(1)
    inexact = np.abs(error) > 0
    return (bits + toward * (inexact & ((bits & 1) == 0))).view(total.dtype)


def narrowed(x: Array, to: type[np.floating[Any]], mode: str) -> Array:
    """`x` rounded once to the narrower format: to nearest even, toward zero, down, up, or to "odd"."""
    near = x.astype(to)
    if mode == "rn":
        return near
    back = near.astype(x.dtype)
    integer = _INTEGER[np.dtype(to).itemsize]
    bits = near.view(integer)
    if mode == "rm":
        return (bits + np.where(back > x, np.where(bits < 0, 1, -1), 0).astype(integer)).view(to)
    if mode == "rp":
        return (bits + np.where(back < x, np.where(bits < 0, -1, 1), 0).astype(integer)).view(to)
    cut = bits - (np.abs(back) > np.abs(x))
    return (cut if mode == "rz" else cut | (back != x)).view(to)


def upper_half(x: Array, mode: str) -> Array:
    """float32 `x`, exact or rounded to odd, rounded to bf16 in the upper half of its bits; the lower half is arbitrary."""
    bits = x.view(np.uint32)
    lower = np.uint32(0xFFFF)
    if mode == "rn":
        rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    elif mode == "rz":
        rounded = bits
    else:
        away = x < 0 if mode == "rm" else x > 0
        rounded = bits + np.where(away, lower, np.uint32(0))
    nan = x != x
    return np.where(nan, np.uint32(0x7FFF_0000), rounded) if np.count_nonzero(nan) else rounded


def to_bf16(x: Array, mode: str) -> Array:
    """float32 `x`, exact or rounded to odd, as bf16; every NaN is canonical."""
    return (upper_half(x, mode) >> np.uint32(16)).astype(np.uint16)
