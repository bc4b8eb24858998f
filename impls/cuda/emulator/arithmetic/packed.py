"""Instructions on two halves of a register: `f16x2` and `bf16x2` of 32 bits, `s16x2`, and `f32x2` of 64."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array, Function

_HALF = {16: np.uint16, 32: np.uint32}
_WHOLE = {16: np.uint32, 32: np.uint64}


def halves(a: Array, bits: int) -> Array:
    """The two halves of each register of `a` along a new last axis, lower half first."""
    return a[..., None].view(_HALF[bits])


def joined(pairs: Array, bits: int) -> Array:
    """The inverse of `halves`."""
    return np.ascontiguousarray(pairs).view(_WHOLE[bits])[..., 0]


def packed(function: Function, bits: int) -> Function:
    """`function` on both halves, of `bits` bits each, at once."""
    half, whole = _HALF[bits], _WHOLE[bits]

    def both(*arrays: Array) -> Array:
        pairs = function(*(a[..., None].view(half) for a in arrays))
        return np.ascontiguousarray(pairs).view(whole)[..., 0]

    return both
