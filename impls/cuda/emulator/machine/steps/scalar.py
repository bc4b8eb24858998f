"""Arithmetic, logic, comparisons, conversions, moves: what a lane does by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic import operation, pack, unpack
from impls.cuda.emulator.arithmetic.forms import BITS, Array
from impls.cuda.emulator.machine.binding import Binder, Destination, Source, Step
from impls.cuda.emulator.machine.fronts import Front
from impls.cuda.emulator.machine.memory import LOCAL_BASE, SHARED_BASE
from impls.cuda.emulator.ptx.syntax import Register, Vector

Function = Callable[..., Any]
WINDOWS = {"global": 0, "const": 0, "shared": SHARED_BASE, "shared::cta": SHARED_BASE, "local": LOCAL_BASE}
"""Where the generic addresses of a space begin, seen from its own."""


def arithmetic(binder: Binder) -> Step:
    """An instruction that `impls.cuda.emulator.arithmetic` knows."""
    instruction = binder.instruction
    result, *operands = binder.operands
    destinations = binder.destinations(result)
    known = operation(instruction.opcode, instruction.modifiers, results=len(destinations), operands=len(operands))
    binder.rests_on((known.rule,))
    sources = [binder.source(operand, kind) for operand, kind in zip(operands, known.operands, strict=True)]
    if len(known.results) == 1:
        return _single(binder, known.function, sources, destinations[0], known.results[0])
    return _several(binder, known.function, sources, destinations)


def move(binder: Binder) -> Step:
    """mov, packing and unpacking where a vector stands on either side."""
    result, operand = binder.operands
    kind = binder.instruction.modifiers[-1]
    width = BITS.get(kind, 0)
    for vector in (result, operand):
        if isinstance(vector, Vector):
            _require_fill(binder, vector, width)
    if isinstance(result, Vector):
        destinations = binder.destinations(result)
        return _several(
            binder, lambda value: unpack(width, len(destinations), value), [binder.source(operand, kind)], destinations
        )
    if isinstance(operand, Vector):
        parts = binder.parts(operand, f"b{width // len(operand.elements)}")
        return _single(binder, lambda *values: pack(width, values), parts, binder.destination(result), kind)
    return _single(binder, lambda value: value, [binder.source(operand, kind)], binder.destination(result), kind)


def _require_fill(binder: Binder, vector: Vector, width: int) -> None:
    """Raises `Unknown` unless the parts are as wide as the whole, so far as registers say how wide they are."""
    kinds = binder.state.loaded.function.registers
    each, rest = divmod(width, len(vector.elements))
    known = [BITS.get(kinds[part.name]) for part in vector.elements if isinstance(part, Register)]
    if rest or each not in (8, 16, 32, 64) or any(bits != each for bits in known):
        raise binder.unknown(f"{width} bits as these {len(vector.elements)} parts, in {binder.instruction.name},")


def address_space(binder: Binder) -> Step:
    """cvta, to generic addresses and back."""
    modifiers = binder.instruction.modifiers
    result, operand = binder.operands
    to = modifiers[0] == "to"
    space, kind = modifiers[1 if to else 0], modifiers[-1]
    if space not in WINDOWS:
        raise binder.unknown(f"the window of {space} memory")
    base = np.uint64(WINDOWS[space])
    shift = (lambda value: value - base) if to else (lambda value: value + base)
    return _single(
        binder, shift if base else lambda value: value, [binder.source(operand, kind)], binder.destination(result), kind
    )


def in_space(binder: Binder) -> Step:
    """isspacep: whether a generic address is of a space."""
    (space,) = binder.instruction.modifiers
    result, operand = binder.operands
    if space not in ("global", "shared", "shared::cta", "local"):
        raise binder.unknown(f"the window of {space} memory")
    first = WINDOWS[space]
    end = min((base for base in WINDOWS.values() if base > first), default=1 << 64)
    return _single(
        binder,
        lambda value: (value >= np.uint64(first)) & (value <= np.uint64(end - 1)),
        [binder.source(operand, "b64")],
        binder.destination(result),
        "pred",
    )


def _single(binder: Binder, function: Function, sources: list[Source], destination: Destination | None, kind: str) -> Step:
    """A step with one result, of type `kind`; a signed one fills a wider register with its sign."""
    if destination is None:
        raise binder.unknown("a result that nobody wants")
    widens = kind.startswith("s") and destination.array.dtype.itemsize > max(BITS[kind] // 8, 2)
    if widens:
        inner, signed = function, np.dtype(f"i{max(BITS[kind] // 8, 2)}")
        word = destination.array.dtype

        def function(*values: Array) -> Array:
            return np.asarray(inner(*values)).view(signed).astype(word)

    mask_of, put, array = binder.mask, destination.put, destination.array
    if binder.guarded or destination.tracked:

        def general(front: Front) -> None:
            mask = mask_of(front)
            put(front, mask, function(*[source[front.rows] for source in sources]))

        return general
    # what follows runs for most instructions of most kernels: as few Python calls as can be
    if len(sources) == 1:
        (only,) = sources

        def unary(front: Front) -> None:
            rows = front.rows
            if front.mask is None:
                array[rows] = function(only[rows])
            else:
                put(front, front.mask, function(only[rows]))

        return unary
    if len(sources) == 2:
        left, right = sources

        def binary(front: Front) -> None:
            rows = front.rows
            if front.mask is None:
                array[rows] = function(left[rows], right[rows])
            else:
                put(front, front.mask, function(left[rows], right[rows]))

        return binary

    def step(front: Front) -> None:
        rows = front.rows
        result = function(*[source[rows] for source in sources])
        if front.mask is None:
            array[rows] = result
        else:
            put(front, front.mask, result)

    return step


def _several(binder: Binder, function: Function, sources: list[Source], destinations: list[Destination | None]) -> Step:
    """A step with several results, of which nobody may want some."""

    def step(front: Front) -> None:
        mask = binder.mask(front)
        results = function(*[source[front.rows] for source in sources])
        for destination, result in zip(destinations, results, strict=False):
            if destination is not None:
                destination.put(front, mask, result)

    return step
