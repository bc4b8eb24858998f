"""Tensor cores and the loads that feed them: mma, ldmatrix, stmatrix, movmatrix. Warps execute them as one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.machine.binding import Binder, Destination, Source, Step, chosen, lanes
from impls.cuda.emulator.machine.fronts import Front
from impls.cuda.emulator.machine.located import Located
from impls.cuda.emulator.machine.state import At
from impls.cuda.emulator.machine.steps.access import found_there, located, scatter
from impls.cuda.emulator.ptx.syntax import Operand, Vector
from impls.cuda.emulator.tensor_cores.forms import mma
from impls.cuda.emulator.tensor_cores.matrices import ROW_BYTES, MatrixMove, ldmatrix, movmatrix, stmatrix


def multiply(binder: Binder, pc: int) -> Step:
    """mma.sync d, a, b, c{, scale_a, {byte, thread}, scale_b, {byte, thread}}."""
    form = mma(binder.instruction.modifiers, binder.state.loaded.module.target)
    binder.rests_on(form.rules)
    result, *operands = binder.operands
    destinations = _registers(binder, result)
    a, b, c = (binder.parts(operand, "b32") for operand in operands[:3])
    wanted = (form.a_registers, form.b_registers, form.c_registers, form.d_registers)
    if (len(a), len(b), len(c), len(destinations)) != wanted or len(operands) != (7 if form.scaled else 3):
        raise binder.unknown(f"these operands of {binder.instruction.name}")
    scale_a, selectors_a = _scales(binder, operands[3:5]) if form.scaled else (None, [])
    scale_b, selectors_b = _scales(binder, operands[5:7]) if form.scaled else (None, [])

    def step(front: Front) -> None:
        here = chosen(front, binder.whole(front, every_lane=True))
        if not here.count:
            return
        given: dict[str, Any] = {}
        if scale_a is not None and scale_b is not None:
            selectors = tuple(_uniform(source, here) for source in (*selectors_a, *selectors_b))
            given = {
                "scale_a": lanes(scale_a[here.rows], here),
                "scale_b": lanes(scale_b[here.rows], here),
                "selectors": selectors,
            }
        d = form.multiply(_stacked(a, here), _stacked(b, here), _stacked(c, here), **given)
        for number, destination in enumerate(destinations):
            destination.put(here, None, d[..., number])

    return step


def load(binder: Binder, pc: int) -> Step:
    """ldmatrix registers, [row]."""
    move = ldmatrix(binder.instruction.modifiers)
    binder.rests_on((move.rule,))
    destinations = _registers(binder, binder.operands[0])
    address = binder.address(binder.operands[1])
    if len(destinations) != move.registers:
        raise binder.unknown(f"{len(destinations)} registers of {binder.instruction.name}")
    state = binder.state

    def step(front: Front) -> None:
        here = chosen(front, binder.whole(front, every_lane=True))
        if not here.count:
            return
        place = _rows(binder, lanes(address[here.rows], here), here, move)
        where = state.shared.first_undefined(place.words, ROW_BYTES)
        if where is not None:
            matrix, row = divmod(where[1], move.rows)
            sentence = f"row {row} of matrix {matrix} holds bytes that were never written, or whose copy is still under way"
            raise At(sentence, *where)
        state.watch.rows(here, place, pc, writes=False)
        rows = state.shared.view(ROW_BYTES).take(place.words).view(np.uint8)
        registers = move.to_registers(rows.reshape(here.count, move.matrices, move.rows, ROW_BYTES))
        for number, destination in enumerate(destinations):
            destination.put(here, None, registers[..., number])

    return step


def store(binder: Binder, pc: int) -> Step:
    """stmatrix [row], registers."""
    move = stmatrix(binder.instruction.modifiers)
    binder.rests_on((move.rule,))
    address = binder.address(binder.operands[0])
    sources = binder.parts(binder.operands[1], "b32")
    state = binder.state

    def step(front: Front) -> None:
        here = chosen(front, binder.whole(front, every_lane=True))
        if not here.count:
            return
        place = _rows(binder, lanes(address[here.rows], here), here, move)
        rows = np.ascontiguousarray(move.to_rows(_stacked(sources, here)))
        values = rows.reshape(*place.positions.shape, ROW_BYTES)
        repeats = partial(found_there, state, place, values)
        state.watch.rows(here, place, pc, writes=True, repeats=repeats)
        scatter(state, place, values, None)
        state.progress += 1

    return step


def transpose(binder: Binder, pc: int) -> Step:
    """movmatrix d, a."""
    result, operand = binder.operands
    destination, source = binder.destination(result), binder.source(operand, "b32")
    modifiers = binder.instruction.modifiers
    binder.rests_on(("movmatrix",))

    def step(front: Front) -> None:
        here = chosen(front, binder.whole(front, every_lane=True))
        if here.count:
            destination.put(here, None, movmatrix(modifiers, lanes(source[here.rows], here)))

    return step


def _rows(binder: Binder, address: Array, front: Front, move: MatrixMove) -> Located:
    """Where in shared memory the rows are whose addresses lanes give: the first 8 or 16 lanes for each matrix."""
    used = move.matrices * move.rows
    return located(binder.state, "shared", address[:, :used], front, None, ROW_BYTES, matrices=True)


def _registers(binder: Binder, operand: Operand) -> list[Destination]:
    return [each for each in binder.destinations(operand) if each is not None]


def _stacked(sources: list[Source], front: Front) -> Array:
    """uint32 [warps, 32, registers]."""
    out = np.empty((front.count, 32, len(sources)), np.uint32)
    for number, source in enumerate(sources):
        out[..., number] = source[front.rows]
    return out


def _scales(binder: Binder, operands: list[Operand]) -> tuple[Source, list[Source]]:
    """(scale data, [byte-id, thread-id]) of one side."""
    data, selectors = operands
    if not isinstance(selectors, Vector) or len(selectors.elements) != 2:
        raise binder.unknown(f"selectors {selectors}")
    element = data.elements[0] if isinstance(data, Vector) else data
    return binder.source(element, "b32"), [binder.source(each, "b16") for each in selectors.elements]


def _uniform(source: Source, front: Front) -> Any:
    """A selector: one number, or one for each warp."""
    values = np.asarray(source[front.rows])
    return int(values) if values.ndim == 0 else values[:, 0]
