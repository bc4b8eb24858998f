"""float64 arithmetic, rounded once in every direction; a NaN operand keeps its sign and payload and becomes quiet.

PTX ISA says that payloads are kept, but not which operand's. The order here is that of an H200, whose machine code is one
instruction for add, sub, mul and fma, and a call for div. A NaN that comes of no NaN among the operands is negative there.
"""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.arithmetic.exact import exact64
from impls.cuda.emulator.arithmetic.formats import F64, UFUNC
from impls.cuda.emulator.arithmetic.forms import Array, Function

_U64 = np.uint64


_NAN_FROM = {"fma": (1, 2, 0), "div": (0, 1), "sqrt": (0,)}
"""Operands of each operation in the order in which a NaN among them becomes the result."""


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
    last_to_first = _NAN_FROM.get(name, (1, 0))[::-1]

    def compute(*arrays: Array) -> Array:
        result = function(*(a.view(np.float64) for a in arrays))
        nan = result != result
        bits = result.view(_U64)
        if not np.count_nonzero(nan):
            return bits
        bits = np.where(nan, _U64(F64.nan), bits)
        for place in last_to_first:
            a = arrays[place]
            x = a.view(np.float64)
            bits = np.where(x != x, a | _U64(F64.quiet), bits)
        return bits

    return compute
