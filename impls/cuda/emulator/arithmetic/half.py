"""f16 and bf16 arithmetic in wider formats, rounded once to nearest; NaNs are canonical."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.formats import F16, UFUNC, settled16
from impls.cuda.emulator.arithmetic.forms import Array, Function
from impls.cuda.emulator.arithmetic.rounding import narrowed, odd_sum, upper_half

_U32 = np.uint32


def f16(a: Array) -> Array:
    """Registers of f16 as float32."""
    return a.view(np.float16).astype(np.float32)


def bf16(a: Array) -> Array:
    """Registers of bf16 as float32."""
    return (a.astype(_U32) << _U32(16)).view(np.float32)


def exact_f16(name: str) -> Function:
    """The result in float32 before it is rounded: exact, rounded to odd, or so near that it rounds alike."""
    if name == "fma":
        # The product has 22 bits and is exact in float32; the sum is rounded to odd there.
        return lambda a, b, c: odd_sum(f16(a) * f16(b), f16(c))
    ufunc = UFUNC[name]
    # float32 has the 2 * 11 + 2 bits with which rounding twice gives the same as rounding once.
    return lambda a, b: ufunc(f16(a), f16(b))


def arithmetic_f16(name: str) -> Function:
    """add, sub, mul or fma on registers."""
    exact = exact_f16(name)
    return lambda *arrays: settled16(exact(*arrays).astype(np.float16).view(np.uint16), F16)


def _fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float32 that are bf16, rounded once to bf16 in the upper half of the bits."""
    product = np.multiply(a, b, dtype=np.float64)  # float32 has not the range of the product, float64 has
    total = product + c
    near = total.astype(np.float32)
    midpoint = (near.view(_U32) & _U32(0xFFFF)) == _U32(0x8000)
    # Rounding again goes wrong only on a midpoint of two bf16 that the exact sum is not on: rounding to float32 made it
    # one, or it is the product and float64 dropped the addend.
    if np.count_nonzero(midpoint) and np.count_nonzero(midpoint & ((near != total) | ((total == product) & (c != 0)))):
        near = narrowed(odd_sum(product, c.astype(np.float64)), np.float32, "odd")
    return upper_half(near, "rn")


def _on_float32(name: str) -> Function:
    """The operation on float32 arrays of bf16 values, rounded in the upper half of the bits."""
    if name == "fma":
        return _fma_bf16
    ufunc = UFUNC[name]
    # float32 has more than the 2 * 8 + 2 bits with which rounding twice gives the same as rounding once. Only products
    # below 2^-134 lose bits in it, and they become zero.
    return lambda a, b: upper_half(ufunc(a, b), "rn")


def arithmetic_bf16(name: str) -> Function:
    """add, sub, mul or fma on registers."""
    function = _on_float32(name)
    return lambda *arrays: (function(*map(bf16, arrays)) >> _U32(16)).astype(np.uint16)


def _both_halves(a: Array) -> Array:
    """Registers of bf16x2 as float32: the lower halves, then the upper ones."""
    both = np.empty((2, *a.shape), _U32)
    np.left_shift(a, _U32(16), out=both[0, ...])
    np.bitwise_and(a, _U32(0xFFFF_0000), out=both[1, ...])
    return both.view(np.float32)


def arithmetic_bf16x2(name: str) -> Function:
    """The same on registers of two, without the detour by 16-bit halves."""
    function = _on_float32(name)

    def compute(*arrays: Array) -> Array:
        if any(a.shape != arrays[0].shape for a in arrays):
            arrays = tuple(np.broadcast_arrays(*arrays))
        both = function(*map(_both_halves, arrays))
        return (both[0] >> _U32(16)) | (both[1] & _U32(0xFFFF_0000))

    return compute
