"""From an instruction's name to the function that computes it."""

from __future__ import annotations

from functools import cache

from impls.cuda.emulator.arithmetic import (
    approximations,
    comparisons,
    conversions,
    extrema,
    floats,
    integers,
    logic,
    moves,
    signs,
)
from impls.cuda.emulator.arithmetic.forms import FLOATS, Builder, Form, Operation
from impls.cuda.emulator.errors import Unknown

_FLOAT: dict[str, Builder] = {**floats.BUILDERS, **signs.BUILDERS, **extrema.BUILDERS, **approximations.BUILDERS}
"""Of opcodes that floating-point and integer types share, the ones for floating point."""
_OTHER: dict[str, Builder] = {
    **integers.BUILDERS,
    **logic.BUILDERS,
    **comparisons.BUILDERS,
    **conversions.BUILDERS,
    **moves.BUILDERS,
}


@cache
def operation(opcode: str, modifiers: tuple[str, ...], *, results: int = 1, operands: int | None = None) -> Operation:
    """The instruction `opcode.modifiers`; Unknown if the emulator does not have it.

    `results` is 2 for a pair such as `setp ... p|q`. `operands` is the number of source operands: it tells the three-input
    min and max from the two-input ones, and where it is given any other count than the instruction's is Unknown.
    """
    form = Form(opcode, modifiers, results, operands)
    builder = _FLOAT.get(opcode) if form.has_any(FLOATS) else None
    builder = builder or _OTHER.get(opcode)
    if builder is None:
        raise Unknown(f"The emulator does not know the instruction {form}.")
    return builder(form)
