"""atom and red: one lane after the other, in the order of the schedule. PTX ISA 9.1, 9.7.13.5 and 9.7.13.7."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from impls.cuda.emulator.arithmetic import operation
from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.checks.happens_before import Order, Scope
from impls.cuda.emulator.machine.binding import Binder, Step, full, lanes
from impls.cuda.emulator.machine.fronts import LANES, Front
from impls.cuda.emulator.machine.state import word_of
from impls.cuda.emulator.machine.steps.access import (
    SCOPES,
    SPACES,
    Access,
    array_of,
    places,
    require_defined,
    require_writeable,
)
from impls.cuda.emulator.ptx.syntax import TYPE_BYTES

SEMANTICS: Mapping[str, Order] = {"relaxed": "relaxed", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
Update = Callable[..., Array]
"""(old, operand[, second operand]) -> new, 0-d bits."""


def atomic(binder: Binder, pc: int) -> Step:
    """atom, which gives what was there before, and red, which does not."""
    returns = binder.instruction.opcode == "atom"
    *modifiers, kind = binder.instruction.modifiers
    space, name = None, None
    scope: Scope = "gpu"
    order: Order = "relaxed"
    options: list[str] = []
    for modifier in modifiers:
        if modifier in SPACES:
            space = SPACES[modifier]
        elif modifier in SCOPES:
            scope = SCOPES[modifier]
        elif modifier in SEMANTICS:
            order = SEMANTICS[modifier]
        elif modifier in ("noftz",):
            options.append(modifier)
        elif name is None and modifier in UPDATES:
            name = modifier
        else:
            raise binder.unknown(f".{modifier} of {binder.instruction.name}")
    if name is None or TYPE_BYTES.get(kind) not in (2, 4, 8):
        raise binder.unknown(binder.instruction.name)
    updates = {found: UPDATES[name](kind) for found in ("shared", "local")}
    # "atom.add.f32 on global memory flushes subnormal inputs and results to sign-preserving zero"
    updates["global"] = _arithmetic("add", "rn", "ftz")(kind) if (name, kind) == ("add", "f32") else updates["shared"]
    access = Access(space, 1, kind, scope, order)
    result, operands = (binder.operands[0], binder.operands[1:]) if returns else (None, binder.operands)
    destinations = binder.destinations(result) if result is not None else []
    address = binder.address(operands[0])
    sources = [binder.source(operand, kind) for operand in operands[1:]]
    if len(sources) != (2 if name == "cas" else 1):
        raise binder.unknown(f"{len(sources)} values of {binder.instruction.name}")
    word, state = word_of(kind), binder.state

    def step(front: Front) -> None:
        mask = binder.mask(front)
        if mask is not None and not mask.any():
            return
        old: Array = np.zeros((front.count, LANES), word)
        values = [lanes(source[front.rows], front) for source in sources]
        for place, active in places(state, access, address[front.rows], front, mask):
            found, index = place.space, place.words
            array = array_of(state, found, access.size)
            there = full(active, front)
            require_writeable(state, place, there)
            if found != "global":
                if name != "exch":  # which takes whatever was there
                    require_defined(state, place, there)
                (state.shared if found == "shared" else state.local).define(index[there], access.size)
            for row in state.schedule.order(front.count).tolist():
                if not there[row].any():
                    continue
                one = front.some(np.arange(front.count) == row, pc)
                state.watch.atomic(one, place.part(row, there), pc, scope, order, returns)
                executing = np.flatnonzero(there[row])
                for lane in executing[state.schedule.order(executing.size)].tolist():
                    word_there = index[row, lane]
                    before = array[word_there]
                    old[row, lane] = before
                    after = updates[found](np.asarray(before), *(value[row, lane] for value in values))
                    if after != before:  # a lock that is taken already stays as it is: nobody need look again
                        array[word_there] = after
                        state.progress += 1
        if destinations and destinations[0] is not None:
            destinations[0].put(front, mask, old)

    return step


def _arithmetic(name: str, *modifiers: str) -> Callable[[str], Update]:
    def of(kind: str) -> Update:
        function = operation(name, (*modifiers, kind)).function
        return lambda old, value: function(np.reshape(old, 1), np.reshape(value, 1))[0]

    return of


def _add(kind: str) -> Update:
    rounding = ("rn",) if kind.startswith(("f", "bf")) else ()
    return _arithmetic("add", *rounding)(kind)


def _exchange(kind: str) -> Update:
    return lambda old, value: value


def _compare_and_swap(kind: str) -> Update:
    return lambda old, expected, value: value if old == expected else old


def _increment(kind: str) -> Update:
    return lambda old, limit: old * 0 if old >= limit else old + old.dtype.type(1)


def _decrement(kind: str) -> Update:
    return lambda old, limit: limit if old == 0 or old > limit else old - old.dtype.type(1)


def _logic(name: str) -> Callable[[str], Update]:
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name]
    return lambda kind: lambda old, value: function(old, value)


UPDATES: dict[str, Callable[[str], Update]] = {
    "add": _add,
    "min": _arithmetic("min"),
    "max": _arithmetic("max"),
    "and": _logic("and"),
    "or": _logic("or"),
    "xor": _logic("xor"),
    "exch": _exchange,
    "cas": _compare_and_swap,
    "inc": _increment,
    "dec": _decrement,
}
