"""Arithmetic, logic, comparison and conversion instructions of PTX as pure functions of arrays of registers.

PTX is executed, not the machine code that ptxas makes of it: `mul` and `add` without a rounding modifier are two roundings
here, where ptxas may contract them to one `fma`. Callers switch NumPy's floating-point warnings off around all of it.
"""

from impls.cuda.emulator.arithmetic.approximations import APPROXIMATE
from impls.cuda.emulator.arithmetic.forms import Operation, register
from impls.cuda.emulator.arithmetic.moves import pack, unpack
from impls.cuda.emulator.arithmetic.registry import operation
from impls.cuda.emulator.arithmetic.rules import RULES

__all__ = ["APPROXIMATE", "RULES", "Operation", "operation", "pack", "register", "unpack"]
