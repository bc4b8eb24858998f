"""Operands, bound to the registers of those that reside: what a step reads and writes.

A step executes one instruction for a front. It runs thousands of times, so all that can be is decided when it is made.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from impls.cuda.emulator.arithmetic.forms import BITS, Array
from impls.cuda.emulator.errors import EmulationError, Unknown
from impls.cuda.emulator.machine.fronts import LANES, Front
from impls.cuda.emulator.machine.state import At, State, word_of
from impls.cuda.emulator.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

Step = Callable[[Front], None]
Control = Callable[[Front], list[Front]]
"""As a step, of an instruction after which not all go on with the next: what the front becomes."""
Either = Callable[[Front], list[Front] | None]
"""A step or a control."""


class Source(Protocol):
    """Something to read: `source[rows]` is an array [warps, 32], or 0-d if it is the same everywhere."""

    def __getitem__(self, rows: Any) -> Array: ...


class Constant:
    """The same in all lanes."""

    def __init__(self, value: Array) -> None:
        self.value = value

    def __getitem__(self, rows: Any) -> Array:
        return self.value


class Converted:
    """A register as something else: narrower, negated, moved on."""

    def __init__(self, array: Source, convert: Callable[[Array], Array]) -> None:
        self._array, self._convert = array, convert

    def __getitem__(self, rows: Any) -> Array:
        return self._convert(self._array[rows])


class NotConverged(EmulationError):
    """An instruction for whole warps was reached by some of their lanes."""

    def __init__(self, needed: Array) -> None:
        super().__init__("lanes wait for others of their warp")
        self.needed = needed
        """bool [warps, 32]."""


class Binder:
    """Makes sources and destinations of one instruction's operands."""

    def __init__(self, state: State, instruction: Instruction) -> None:
        self.state = state
        self.instruction = instruction
        guard = instruction.predicate
        self._guard: Source | None = self.predicate(guard.register, guard.negated) if guard else None

    def rests_on(self, rules: Sequence[str]) -> None:
        """The instruction follows these rules."""
        self.state.watch.rests_on(self.instruction, rules)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.instruction.operands

    def source(self, operand: Operand, kind: str) -> Source:
        """What `operand` holds, in the register word of PTX type `kind`."""
        word = word_of(kind)
        if isinstance(operand, Register):
            return self._as(self.state.registers[operand.name], word)
        if isinstance(operand, Negated):
            return self.predicate(operand.register, True)
        if isinstance(operand, Special):
            return self._as(self._special(operand.name), word)
        if isinstance(operand, Immediate):
            return Constant(np.asarray(_bits(operand, kind)).astype(word))
        if isinstance(operand, Symbol):
            return Constant(np.asarray(self.symbol(operand), word))
        raise self.unknown(f"operand {operand}")

    def parts(self, operand: Operand, kind: str) -> list[Source]:
        """The elements of a vector, or the one operand."""
        elements = operand.elements if isinstance(operand, Vector) else (operand,)
        return [self.source(element, kind) for element in elements]

    def predicate(self, register: Register, negated: bool) -> Source:
        """A predicate register."""
        array = self.state.registers[register.name]
        return Converted(array, np.logical_not) if negated else array

    def destinations(self, operand: Operand) -> list[Destination | None]:
        """Where results go: the registers of a register, vector or pair; None where nobody wants one."""
        if isinstance(operand, Vector):
            return [each for element in operand.elements for each in self.destinations(element)]
        if isinstance(operand, Pair):
            return [*self.destinations(operand.first), *self.destinations(operand.second)]
        if isinstance(operand, Sink):
            return [None]
        if isinstance(operand, Register):
            name = operand.name
            return [Destination(self.state.registers[name], self.state.defined.get(name))]
        raise self.unknown(f"result {operand}")

    def destination(self, operand: Operand) -> Destination:
        """Where the one result goes."""
        (only,) = self.destinations(operand)
        if only is None:
            raise self.unknown("a result that nobody wants")
        return only

    def address(self, operand: Operand) -> Source:
        """Where it points, modulo the width of its register."""
        if not isinstance(operand, Address):
            raise self.unknown(f"address {operand}")
        if isinstance(operand.base, Register):
            base = self.state.registers[operand.base.name]
            offset = base.dtype.type(operand.offset & ((1 << 8 * base.dtype.itemsize) - 1))
            return Converted(base, lambda addresses: addresses + offset) if offset else base
        start = 0 if operand.base is None else self.symbol(operand.base)
        return Constant(np.asarray((start + operand.offset) & ((1 << 64) - 1), np.uint64))

    def symbol(self, symbol: Symbol) -> int:
        """The address of a variable."""
        try:
            return self.state.loaded.symbols[symbol.name] + symbol.offset
        except KeyError:
            raise self.unknown(f"the address of {symbol.name}") from None

    def mask(self, front: Front) -> Array | None:
        """Lanes that execute the instruction: bool [warps, 32], or None for all of them."""
        if self._guard is None:
            return front.mask
        guard = self._guard[front.rows]
        if front.mask is not None:
            return guard & front.mask
        return None if guard.all() else guard

    def executing(self, front: Front) -> Array:
        """The warps of which a lane executes the instruction."""
        mask = self.mask(front)
        return front.warps if mask is None else front.warps[mask.any(axis=1)]

    @property
    def guarded(self) -> bool:
        return self._guard is not None

    def whole(self, front: Front, *, every_lane: bool = False) -> Array | None:
        """For instructions that warps execute as one: bool [warps] of those that do, None for all.

        Raises `NotConverged` where lanes of a warp are missing, `At` where the predicate differs within a warp, or lanes have
        ended, or never were, of a warp that has to have `every_lane`.
        """
        if every_lane and not self.state.alive[front.rows].all():
            row, lane = (int(i) for i in np.argwhere(~self.state.alive[front.rows])[0])
            raise At("this takes all 32 lanes of a warp, and this one does not exist or has ended", row, lane)
        if front.mask is not None:
            alive = self.state.alive[front.rows]
            if not (front.mask == alive).all():
                raise NotConverged(alive)
        if self._guard is None:
            return None
        guard = self._guard[front.rows] | ~front.active()
        every, some = guard.all(axis=1), (self._guard[front.rows] & front.active()).any(axis=1)
        if (every != some).any():
            raise At("the predicate differs within a warp that has to execute this as one", int(np.argmax(every != some)), None)
        return None if every.all() else np.asarray(every)

    def unknown(self, what: str) -> Unknown:
        return Unknown(f"{what} is not known to the emulator")

    def _as(self, array: Array, word: type) -> Source:
        if array.dtype == word:
            return array
        if array.dtype == np.bool_ or word is np.bool_:
            raise self.unknown("a predicate where a number is due, or the other way round")
        return Converted(array, lambda values: values.astype(word))

    def _special(self, name: str) -> Array:
        try:
            return self.state.specials[name]
        except KeyError:
            raise self.unknown(f"register {name}") from None


class Destination:
    """A register to write."""

    def __init__(self, array: Array, defined: Array | None) -> None:
        self.array = array
        self._defined = defined

    @property
    def tracked(self) -> bool:
        """Whether it is known which lanes were ever written."""
        return self._defined is not None

    def put(self, front: Front, mask: Array | None, values: Array) -> None:
        """Write `values`, [warps, 32] or one for all, in the lanes of `mask`."""
        rows = front.rows
        if mask is None:
            self.array[rows] = values
            if self._defined is not None:
                self._defined[rows] = True
            return
        put(self.array, rows, mask, values)
        if self._defined is not None:
            put(self._defined, rows, mask, np.True_)


def put(array: Array, rows: Any, mask: Array, values: Any) -> None:
    """array[rows] = values where mask."""
    if isinstance(rows, slice):
        np.copyto(array[rows], values, where=mask, casting="unsafe")
        return
    kept = array[rows]
    np.copyto(kept, values, where=mask, casting="unsafe")
    array[rows] = kept


def lanes(array: Array, front: Front) -> Array:
    """[warps, 32], also of what is the same everywhere."""
    return np.broadcast_to(array, (front.count, LANES)) if array.ndim == 0 else array


def full(mask: Array | None, front: Front) -> Array:
    """bool [warps, 32]."""
    return np.ones((front.count, LANES), bool) if mask is None else mask


def chosen(front: Front, warps: Array | None) -> Front:
    """The front of some of its warps; None is all."""
    return front if warps is None else front.some(warps, front.pc)


def _bits(immediate: Immediate, kind: str) -> int:
    """Of a literal where an operand of type `kind` is due."""
    if kind == "pred":
        return int(immediate.value != 0)
    bits = BITS[kind]
    if immediate.kind == "f64" and bits == 32:
        (value,) = struct.unpack("<d", immediate.value.to_bytes(8, "little"))
        return int(np.asarray(value, np.float32).view(np.uint32))
    return int(np.uint64(immediate.value & ((1 << max(bits, 16)) - 1)))
