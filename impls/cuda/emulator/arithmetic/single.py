"""float32 arithmetic, rounded once in every direction; NaNs are canonical."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.formats import UFUNC, settled32
from impls.cuda.emulator.arithmetic.forms import Array, Function
from impls.cuda.emulator.arithmetic.rounding import narrowed, odd_sum

_U64 = np.uint64


def f32(a: Array) -> Array:
    """Registers as float32."""
    return a.view(np.float32)


def wide32(a: Array) -> Array:
    """Registers of float32 as float64, which holds every one."""
    return a.view(np.float32).astype(np.float64)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    """fma.rn.f32. The product is exact in float64; only the sum may round before it is rounded again."""
    product = np.multiply(a.view(np.float32), b.view(np.float32), dtype=np.float64)
    addend = c.view(np.float32)
    total = product + addend
    bits = total.view(np.uint64)
    # Rounding twice goes wrong only from a sum that lies on the midpoint of two float32, which has 29 bits less; below
    # the normal numbers midpoints have other bits.
    doubtful = np.count_nonzero((bits & _U64(0x1FFF_FFFF)) == _U64(0x1000_0000)) or np.count_nonzero(
        (bits + bits) - _U64(1) < _U64((2 * 897 << 52) - 1)
    )
    if doubtful:
        total = odd_sum(product, addend.astype(np.float64))
    return settled32(total.astype(np.float32))


def _directed_sum(a: Array, b: Array, *, mode: str) -> Array:
    """a + b, of float64, rounded once to float32."""
    rounded = narrowed(odd_sum(a, b), np.float32, mode)
    if mode == "rm":  # an exact zero sum is -0, unless it is of two positive zeros
        negative = np.signbit(a) | np.signbit(b)
        rounded = np.where((a + b == 0) & negative, np.float32(-0.0), rounded)
    return settled32(rounded)


_TERMS: dict[str, Function] = {
    "add": lambda a, b: (wide32(a), wide32(b)),
    "sub": lambda a, b: (wide32(a), -wide32(b)),
    "fma": lambda a, b, c: (wide32(a) * wide32(b), wide32(c)),
}
"""Of what is a sum, the two float64 numbers that it is exactly."""


def exact32(name: str) -> Function:
    """The result in float64 before it is rounded: exact, rounded to odd, or so near that it rounds alike."""
    if name in _TERMS:
        terms = _TERMS[name]
        return lambda *arrays: odd_sum(*terms(*arrays))
    # A quotient or root of two float32 that is no float32 and no midpoint of two is never as near to one as float64 rounds.
    if name == "rcp":
        return lambda a: 1 / wide32(a)
    ufunc = UFUNC[name]
    return lambda *arrays: ufunc(*map(wide32, arrays))


def _directed32(name: str, mode: str) -> Function:
    if name in _TERMS:
        terms = _TERMS[name]
        return lambda *arrays: _directed_sum(*terms(*arrays), mode=mode)
    exact = exact32(name)
    return lambda *arrays: settled32(narrowed(exact(*arrays), np.float32, mode))


def arithmetic32(name: str, mode: str) -> Function:
    """add, sub, mul, fma, div, rcp or sqrt on registers."""
    if mode != "rn":
        return _directed32(name, mode)
    if name == "fma":
        return _fma32
    if name == "rcp":
        return lambda a: settled32(np.divide(np.float32(1), f32(a)))
    ufunc = UFUNC[name]
    if name == "sqrt":
        return lambda a: settled32(ufunc(f32(a)))
    return lambda a, b: settled32(ufunc(a.view(np.float32), b.view(np.float32)))
