"""Where lanes go next: branches and the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from impls.cuda.emulator.machine.binding import Binder, Control, full, lanes
from impls.cuda.emulator.machine.fronts import Front
from impls.cuda.emulator.machine.state import At, State
from impls.cuda.emulator.machine.steps.access import STRONG
from impls.cuda.emulator.machine.steps.synchronise import release
from impls.cuda.emulator.ptx.roles import reads, writes
from impls.cuda.emulator.ptx.syntax import Instruction, Label, Symbol

PATIENCE = 10_000
"""Rounds of a loop with plain loads. Fewer would part the warps of long loops, whose lanes then meet again later or never."""
OWN = {"param", "param::entry", "const", "local", "nc"}
"""Of a load: nobody else writes there while the kernel runs."""


def branch(binder: Binder, pc: int) -> Control:
    """bra, with or without a predicate."""
    (target,) = binder.operands
    if not isinstance(target, Label | Symbol):
        raise binder.unknown(f"branch to {target}")
    to = binder.state.loaded.function.labels[target.name]
    guard = binder.instruction.predicate
    if guard is None:
        return _polling(binder.state, lambda front: [front.at(to)], pc, to)
    taken_by = binder.predicate(guard.register, guard.negated)

    def step(front: Front) -> list[Front]:
        taken = lanes(taken_by[front.rows], front)
        if front.mask is None:
            if taken.all():
                return [front.at(to)]
            if not taken.any():
                return [front.at(pc + 1)]
        return _parted(binder.state, front, taken, to, pc)

    return _polling(binder.state, step, pc, to)


def indexed(binder: Binder, pc: int) -> Control:
    """brx.idx: to the place that a list has at an index."""
    index, listed = binder.operands
    function = binder.state.loaded.function
    if binder.instruction.modifiers[0] != "idx" or not isinstance(listed, Label):
        raise binder.unknown(binder.instruction.name)
    places = [function.labels[name] for name in function.branch_targets[listed.name]]
    index_of = binder.source(index, "u32")

    def step(front: Front) -> list[Front]:
        going = full(binder.mask(front), front)
        chosen = lanes(index_of[front.rows], front)
        outside = going & (chosen >= len(places))
        if outside.any():
            row, lane = (int(i) for i in np.argwhere(outside)[0])
            raise At(f"index {int(chosen[row, lane])} of a list of {len(places)} places", row, lane)
        ways = [(going & (chosen == number), place) for number, place in enumerate(places)]
        ways.append((front.active() & ~going, pc + 1))
        ways = [(some, place) for some, place in ways if some.any()]
        diverged = int((sum(some.any(axis=1).astype(int) for some, _ in ways) > 1).sum())
        if diverged:
            binder.state.watch.diverged(pc, diverged)
        return [front.lanes(some, place) for some, place in ways]

    return step


def _polling(state: State, step: Control, pc: int, to: int) -> Control:
    """The same branch; if it ends a loop that asks memory for something, who finds that nothing has happened lets others go
    first, as they may never come to write what it waits for else.

    A loop asks if it has a strong load or an atomic, or has a plain load and does the same in each round until memory changes.
    Most loops with plain loads count or add up: these are no waits, and as a rule the warps in one stay together. But some wait
    and count, so after so many rounds others go first there too.
    """
    loop = state.loaded.function.body[to : pc + 1]
    if not any(_reads_memory(instruction) for instruction in loop):
        return step
    if not any(_asks(instruction) for instruction in loop) and not _repeats_itself(loop):
        return _patient(step, to)

    def polls(front: Front) -> list[Front]:
        became = step(front)
        for each in became:
            if each.pc != to:
                continue
            if each.polled == state.progress:
                each.turn += 1
                each.seen = state.progress
            each.polled = state.progress
        return became

    return polls


def _patient(step: Control, to: int) -> Control:
    """The same branch, back to `to`, after which others go first each time that it was taken `PATIENCE` times in a row."""

    def step_with_patience(front: Front) -> list[Front]:
        became = step(front)
        for each in became:
            each.rounds = each.rounds + 1 if each.pc == to else 0
            if each.rounds == PATIENCE:
                each.turn, each.rounds = each.turn + 1, 0
        return became

    return step_with_patience


def _reads_memory(instruction: Instruction) -> bool:
    """Whether it reads what another thread may write."""
    return instruction.opcode == "atom" or (instruction.opcode == "ld" and OWN.isdisjoint(instruction.modifiers))


def _asks(instruction: Instruction) -> bool:
    """Whether it reads what another thread may be about to write."""
    return instruction.opcode == "atom" or (instruction.opcode == "ld" and not STRONG.keys().isdisjoint(instruction.modifiers))


def _repeats_itself(loop: Sequence[Instruction]) -> bool:
    """Whether no register takes something from one round to the next: none is read before it is written, if it is."""
    carried = {name for instruction in loop for name in writes(instruction)}
    for instruction in loop:
        if not carried.isdisjoint(reads(instruction)):
            return False
        if instruction.predicate is None:
            carried.difference_update(writes(instruction))
    return True


def leave(binder: Binder, pc: int) -> Control:
    """ret of an entry, and exit."""

    def step(front: Front) -> list[Front]:
        going = full(binder.mask(front), front)
        if going.any():
            binder.state.exit(front.lanes(going, pc))
            for number, _ in binder.state.barriers.waiting():  # who is left waits for those that are left
                release(binder.state, number)
        staying = front.active() & ~going
        return [front.lanes(staying, pc + 1)] if staying.any() else []

    return step


def _parted(state: State, front: Front, taken: np.ndarray, to: int, pc: int) -> list[Front]:
    """Those that take the branch and those that do not; warps of which lanes do either have diverged."""
    active = front.active()
    going, staying = taken & active, ~taken & active
    both = going.any(axis=1) & staying.any(axis=1)
    if both.any():
        state.watch.diverged(pc, int(both.sum()))
    return [front.lanes(some, place) for some, place in ((going, to), (staying, pc + 1)) if some.any()]


def trap(binder: Binder, pc: int) -> Control:
    """trap: the kernel gives up."""

    def step(front: Front) -> list[Front]:
        mask = full(binder.mask(front), front)
        if mask.any():
            row, lane = (int(i) for i in np.argwhere(mask)[0])
            raise At("the kernel trapped", row, lane)
        return [front.lanes(front.active(), pc + 1)]

    return step
