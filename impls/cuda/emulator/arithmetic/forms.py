"""What an instruction's name says, taken apart modifier by modifier, and the operation that it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from impls.cuda.emulator.errors import Unknown

Array = npt.NDArray[Any]
Function = Callable[..., Any]
"""Arrays of registers in, one array (or a tuple of several) out; pure, any leading shape, immediates are 0-d."""


def chain(first: Function, *steps: Function) -> Function:
    """`first` of all operands, then each step on what came before."""
    if not steps:
        return first
    if len(steps) == 1:
        (only,) = steps
        return lambda *arrays: only(first(*arrays))

    def run(*arrays: Array) -> Any:
        result = first(*arrays)
        for step in steps:
            result = step(result)
        return result

    return run


SIGNED = ("s8", "s16", "s32", "s64")
FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f32x2", "f64")
BITS = {
    **{f"{letter}{bits}": bits for letter in "bsu" for bits in (8, 16, 32, 64)},
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "f16x2": 32,
    "bf16x2": 32,
    "f32x2": 64,
    "tf32": 32,
    "s16x2": 32,
    "u16x2": 32,
    "s8x4": 32,
    "u8x4": 32,
    "e4m3x2": 16,
    "e5m2x2": 16,
    "e2m3x2": 16,
    "e3m2x2": 16,
    "ue8m0x2": 16,
    "e2m1x2": 8,
    "pred": 1,
}
"""Width of a value of each type."""


def register(kind: str) -> Any:
    """The element type of an array of registers that hold `kind`: the floating-point ones are bit patterns."""
    bits = BITS[kind]
    return np.bool_ if bits == 1 else {8: np.uint16, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]


def signed_register(kind: str) -> Any:
    """The signed integer as wide as the register of `kind`."""
    return {8: np.int16, 16: np.int16, 32: np.int32, 64: np.int64}[BITS[kind]]


@dataclass(frozen=True)
class Operation:
    """An instruction as a function of arrays of registers."""

    results: tuple[str, ...]
    """PTX types. Narrower than the register it goes to (s8 in a 32-bit one): the writer extends it, by sign for s8 to s64."""
    operands: tuple[str, ...]
    function: Function
    rule: str
    """Its entry in `RULES`."""


class Form:
    """The modifiers of one instruction; each is taken once, and `done` refuses what nobody took."""

    def __init__(self, opcode: str, modifiers: tuple[str, ...], results: int, operands: int | None) -> None:
        self.opcode = opcode
        self.results = results
        self.operands = operands
        self._given = modifiers
        self._left = list(modifiers)

    def __str__(self) -> str:
        return ".".join((self.opcode, *self._given))

    def has_any(self, names: tuple[str, ...]) -> bool:
        """Whether one of `names` is still to be taken."""
        return any(name in self._left for name in names)

    def maybe(self, *names: str) -> str:
        """Takes the first modifier that is one of `names`; "" if there is none."""
        found = next((name for name in self._left if name in names), "")
        if found:
            self._left.remove(found)
        return found

    def one(self, *names: str) -> str:
        """Takes the first modifier that is one of `names`, which must be there."""
        found = self.maybe(*names)
        if not found:
            raise Unknown(f"{self} has none of the modifiers {', '.join(f'.{name}' for name in names)}.")
        return found

    def has(self, name: str) -> bool:
        """Takes the modifier `name` if it is there."""
        return bool(self.maybe(name))

    def done(self, results: tuple[str, ...], operands: tuple[str, ...], function: Function, rule: str) -> Operation:
        """The operation, once nothing of the name is left over and it has as many operands as the instruction."""
        if self._left:
            raise Unknown(f"{self} has the modifier .{self._left[0]}, which the emulator does not know there.")
        if self.operands is not None and self.operands != len(operands):
            raise Unknown(f"{self} with {self.operands} operands is not a form that the emulator knows.")
        if self.results != len(results):
            raise Unknown(f"{self} with {self.results} results is not a form that the emulator knows.")
        return Operation(results, operands, function, rule)

    def refuse(self, why: str) -> Unknown:
        """The error that says what of this instruction is not known."""
        return Unknown(f"{self} {why}.")


Builder = Callable[[Form], Operation]
