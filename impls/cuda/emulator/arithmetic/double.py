"""float64 arithmetic, rounded once in every direction; a NaN operand keeps its payload."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.exact import exact64
from impls.cuda.emulator.arithmetic.formats import F64, UFUNC
from impls.cuda.emulator.arithmetic.forms import Array, Function

_U64 = np.uint64


def _difference(mode: str) -> Function:
    add = exact64("add", mode)
    return lambda a, b: add(a, -b)


def arithmetic64(name: str, mode: str) -> Function:
    """add, sub, mul, fma, div, rcp or sqrt on registers."""
    if name == "rcp":
        divide = arithmetic64("div", mode)
        one = np.array(F64.one, _U64)
        return lambda a: divide(one, a)
    if mode == "rn" and name != "fma":
        function: Function = UFUNC[name]
    elif name == "sub":
        function = _difference(mode)
    else:
        function = exact64(name, mode)

    def compute(*arrays: Array) -> Array:
        result = function(*(a.view(np.float64) for a in arrays))
        nan = result != result
        bits = result.view(_U64)
        if not np.count_nonzero(nan):
            return bits
        bits = np.where(nan, _U64(F64.nan), bits)
        for a in reversed(arrays):  # the first NaN among the operands, made quiet
            x = a.view(np.float64)
            bits = np.where(x != x, a | _U64(1 << 51), bits)
        return bits

    return compute
