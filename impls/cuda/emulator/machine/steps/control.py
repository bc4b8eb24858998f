"""Where lanes go next: branches and the end."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.machine.binding import Binder, Control, full, lanes
from impls.cuda.emulator.machine.fronts import Front
from impls.cuda.emulator.machine.state import At, State
from impls.cuda.emulator.machine.steps.synchronise import release
from impls.cuda.emulator.ptx.syntax import Label, Symbol


def branch(binder: Binder, pc: int) -> Control:
    """bra, with or without a predicate."""
    (target,) = binder.operands
    if not isinstance(target, Label | Symbol):
        raise binder.unknown(f"branch to {target}")
    to = binder.state.loaded.function.labels[target.name]
    guard = binder.instruction.predicate
    if guard is None:
        return lambda front: [Front(to, front.warps, front.mask, front.turn, front.seen)]
    taken_by = binder.predicate(guard.register, guard.negated)

    def step(front: Front) -> list[Front]:
        taken = lanes(taken_by[front.rows], front)
        if front.mask is None:
            if taken.all():
                return [Front(to, front.warps, None, front.turn, front.seen)]
            if not taken.any():
                return [Front(pc + 1, front.warps, None, front.turn, front.seen)]
        return _parted(binder.state, front, taken, to, pc)

    return step


def leave(binder: Binder, pc: int) -> Control:
    """ret of an entry, and exit."""

    def step(front: Front) -> list[Front]:
        going = full(binder.mask(front), front)
        if going.any():
            binder.state.exit(front.lanes(going, pc))
            for number, _ in binder.state.barriers.waiting():  # who is left waits for those that are left
                release(binder.state, number, pc)
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
