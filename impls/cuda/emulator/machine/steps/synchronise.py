"""Barriers, fences, and the waits of asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.checks.happens_before import Scope
from impls.cuda.emulator.machine.barriers import BARRIERS, NOWHERE, Mbarrier, Reduction
from impls.cuda.emulator.machine.binding import Binder, Constant, Control, Source, Step, chosen, full, lanes
from impls.cuda.emulator.machine.fronts import LANES, Front
from impls.cuda.emulator.machine.state import At, State
from impls.cuda.emulator.machine.steps.access import Access, places
from impls.cuda.emulator.ptx.syntax import Address, Immediate

RED = {"popc", "and", "or"}
WAITS = ("test_wait", "try_wait")
"""Of mbarrier: what ends a run of instructions."""
SHARED = {"shared", "shared::cta", "shared::cluster"}
MODIFIERS = {
    "init": set[str](),
    "inval": set[str](),
    "arrive": {"expect_tx", "release", "cta", "cluster"},
    "expect_tx": {"relaxed", "cta", "cluster"},
    "complete_tx": {"relaxed", "cta", "cluster"},
    "test_wait": {"parity", "acquire", "cta", "cluster"},
    "try_wait": {"parity", "acquire", "cta", "cluster"},
}
"""Of mbarrier, by what it does: those between that and the type, beside the space."""
MOST_ARRIVALS = (1 << 20) - 1
"""Of an mbarrier."""
SCOPES: Mapping[str, Scope] = {"cta": "cta", "cluster": "cluster", "gpu": "gpu", "gl": "gpu", "sys": "sys"}


def barrier(binder: Binder, pc: int) -> Control:
    """bar and barrier: sync, arrive and red."""
    modifiers = [each for each in binder.instruction.modifiers if each not in ("cta", "aligned")]
    action = modifiers[0]
    operands = list(binder.operands)
    state = binder.state
    result = binder.destination(operands.pop(0)) if action == "red" else None
    number_of = binder.source(operands[0], "b32")
    count_of = binder.source(operands[1], "b32") if len(operands) > (2 if action == "red" else 1) else Constant(np.asarray(0))
    predicate = binder.source(operands[-1], "pred") if action == "red" else None
    if action not in ("sync", "arrive", "red") or (result is not None and modifiers[1] not in RED):
        raise binder.unknown(binder.instruction.name)
    reduction = None if result is None else Reduction(result, modifiers[1])

    def step(front: Front) -> list[Front]:
        warps = binder.whole(front)
        here = chosen(front, warps)
        passing = [] if warps is None else [front.some(~warps, pc + 1)]
        if action == "arrive":
            passing = [front.some(np.ones(front.count, bool), pc + 1)]
        for number, count, left in _named(number_of[here.rows], count_of[here.rows], here):
            wrong = int(np.searchsorted(front.warps, left[0]))
            if number >= BARRIERS:
                raise At(f"there is no barrier {number}: a block has 0 to {BARRIERS - 1}", wrong, None)
            if count % LANES:
                raise At(f"barrier {number} of {count} threads, which are no whole warps of {LANES}", wrong, None)
            while left.size:  # those that are too many for one phase are the first of the next
                now = state.barriers.room(number, state.block_of[left], count // LANES)
                at, left = left[now], left[~now]
                if predicate is not None:
                    state.barriers.predicate[number, at] = lanes(predicate[at], Front(pc, at)) & state.alive[at]
                if action == "arrive":
                    for warp in at.tolist():
                        state.watch.arrives(warp, _phase(state, number, int(state.block_of[warp])))
                resume = None if action == "arrive" else pc + 1
                state.barriers.arrive(number, state.block_of[at], at, count // LANES, resume, reduction)
                release(state, number)
                state.watch.met(pc, at.size)
        return [each for each in passing if each.count]

    return step


def _named(numbers: Array, counts: Array, front: Front) -> list[tuple[int, int, Array]]:
    """[(barrier, threads, the warps that name it)], the first lane of a warp speaking for all."""
    if not numbers.ndim and not counts.ndim:
        return [(int(numbers), int(counts), front.warps)] if front.count else []
    numbers, counts = lanes(numbers, front)[:, 0], lanes(counts, front)[:, 0]
    return [
        (number, count, front.warps[(numbers == number) & (counts == count)])
        for number, count in set(zip(numbers.tolist(), counts.tolist(), strict=True))
    ]


def release(state: State, number: int) -> None:
    """Let those go on that have met at barrier `number`."""
    barriers = state.barriers
    met = barriers.complete(number, state.warps_alive(), state.block_of)
    if not met.size:
        return
    state.progress += 1
    resumes = barriers.resume[number, met]
    waited = met[resumes != NOWHERE]
    state.watch.barrier(waited, state.block_of[waited])
    if waited.size < met.size:
        _end_phases(state, number, met, waited)
    for resume in sorted({*resumes.tolist()} - {NOWHERE}):
        going = met[resumes == resume]
        reduction = barriers.reduction[number, going[0]]
        if reduction is not None:
            _reduce(state, number, met, reduction, going)
        for group in state.schedule.groups(going, state.slot_of[going]):
            alive = state.alive[group]
            state.released.append(Front(resume, group, None if alive.all() else alive.copy()))
    barriers.resume[number, met] = NOWHERE


def _end_phases(state: State, number: int, met: Array, waited: Array) -> None:
    """Where some have only arrived: what they did after that is not known to those that waited."""
    for block in np.unique(state.block_of[np.setdiff1d(met, waited)]).tolist():
        _, byte, phase = _phase(state, number, block)
        state.watch.phase_ends((block, byte, phase - 1))
        for warp in waited[state.block_of[waited] == block].tolist():
            state.watch.finds_ended(warp, (block, byte, phase - 1))


def _phase(state: State, number: int, block: int) -> tuple[int, int, int]:
    """For the checks, the current phase of a barrier: as if it were an mbarrier before the start of shared memory."""
    return block, -1 - number, int(state.barriers.phase[number, block])


def _reduce(state: State, number: int, met: Array, reduction: Reduction, going: Array) -> None:
    """Give the warps that go on what bar.red found over those of their block that met."""
    destination = reduction.destination
    for block in np.unique(state.block_of[going]).tolist():
        group = met[state.block_of[met] == block]
        given = state.barriers.predicate[number, group][state.alive[group]]
        answer = {"popc": int(given.sum()), "and": bool(given.all()), "or": bool(given.any())}[reduction.operator]
        rows = np.intersect1d(group, going)
        destination.put(Front(0, rows), state.alive[rows], np.asarray(answer).astype(destination.array.dtype))


def fence(binder: Binder) -> Step:
    """membar and fence; of proxies too."""
    modifiers = binder.instruction.modifiers
    if modifiers and modifiers[0] == "proxy":
        if modifiers[1].partition("::")[0] not in ("async", "alias"):
            raise binder.unknown(binder.instruction.name)
        return lambda front: binder.state.watch.proxy_fence(binder.executing(front))
    scopes = [SCOPES[each] for each in modifiers if each in SCOPES]
    unknown = set(modifiers) - SCOPES.keys() - {"acq_rel", "sc", "acquire", "release", "mbarrier_init"}
    if unknown or len(scopes) != 1:
        raise binder.unknown(binder.instruction.name)
    (scope,) = scopes

    sc = binder.instruction.opcode == "membar" or "sc" in modifiers
    return lambda front: binder.state.watch.fence(binder.executing(front), scope, sc)


def dependent_launch(binder: Binder) -> Step:
    """griddepcontrol: launches run one after the other here, but who does not wait may not read what the last one wrote."""
    if binder.instruction.modifiers == ("wait",):
        return lambda front: binder.state.watch.waits_for_earlier_launches(binder.executing(front))
    return lambda front: None


def nothing(binder: Binder) -> Step:
    """What has no effect here: register budgets and hints."""
    return lambda front: None


class _Objects:
    """Finds the mbarrier objects that lanes name."""

    def __init__(self, binder: Binder, operand: Any) -> None:
        self.state = binder.state
        self.address = binder.address(operand)
        space = "shared" if any(each.startswith("shared") for each in binder.instruction.modifiers) else None
        self.access = Access(space, 1, "b64", None, "relaxed")

    def bytes_of(self, front: Front, mask: Array | None) -> Array:
        """int64 [warps, 32] byte of the block's shared memory, for the lanes that execute: one does at least."""
        found = places(self.state, self.access, self.address[front.rows], front, mask)
        for place, active in found:
            if place.space != "shared":
                row, lane = (int(i) for i in np.argwhere(full(active, front))[0])
                raise At(f"an mbarrier is in shared memory, and this address is of {place.space} memory", row, lane)
        ((place, _),) = found
        return np.asarray(place.positions - self.state.shared_base[front.rows])

    def find(self, block: int, byte: int, row: int, lane: int) -> Mbarrier:
        try:
            return self.state.mbarriers[block, byte]
        except KeyError:
            raise At(f"no mbarrier was initialised at byte {byte} of shared memory", row, lane) from None


def mbarrier(binder: Binder, pc: int) -> Step | Control:
    """mbarrier: init, inval, arrive, expect_tx, complete_tx, test_wait, try_wait."""
    action, *modifiers = binder.instruction.modifiers
    if action not in MODIFIERS or modifiers[-1:] != ["b64"]:
        raise binder.unknown(binder.instruction.name)
    for modifier in modifiers[:-1]:
        if modifier not in MODIFIERS[action] | SHARED:
            raise binder.unknown(f".{modifier} of {binder.instruction.name}")
    if action in WAITS:
        return _wait(binder, pc)
    actions = {"init": _initialise, "inval": _invalidate, "arrive": _arrive, "expect_tx": _announce, "complete_tx": _announce}
    return actions[action](binder)


def _initialise(binder: Binder) -> Step:
    objects, count = _Objects(binder, binder.operands[0]), binder.source(binder.operands[1], "b32")

    def one(block: int, byte: int, row: int, lane: int, warp: int, value: int) -> None:
        if not 0 < value <= MOST_ARRIVALS:
            raise At(f"an mbarrier of {value} arrivals; it has 1 to {MOST_ARRIVALS:,}", row, lane)
        binder.state.mbarriers[block, byte] = Mbarrier(value)

    return _each_lane(binder, objects, count, one)


def _invalidate(binder: Binder) -> Step:
    objects = _Objects(binder, binder.operands[0])

    def one(block: int, byte: int, row: int, lane: int, warp: int, value: int) -> None:
        objects.find(block, byte, row, lane)
        if any((copy.block, copy.barrier) == (block, byte) for copy in binder.state.copies.bulk):
            raise At("a bulk copy that counts at this mbarrier is still under way", row, lane)
        del binder.state.mbarriers[block, byte]

    return _each_lane(binder, objects, Constant(np.asarray(0)), one)


def _announce(binder: Binder) -> Step:
    objects, size = _Objects(binder, binder.operands[0]), binder.source(binder.operands[1], "b32")
    comes = binder.instruction.modifiers[0] == "complete_tx"

    def one(block: int, byte: int, row: int, lane: int, warp: int, value: int) -> None:
        found = objects.find(block, byte, row, lane)
        phase = found.phase
        found.came(value) if comes else found.announce(value)
        binder.state.phase_passed(block, byte, phase)

    return _each_lane(binder, objects, size, one)


def _arrive(binder: Binder) -> Step:
    """With .expect_tx the operand is bytes that are announced, else a count of arrivals; the result is the phase."""
    place = next(number for number, operand in enumerate(binder.operands) if isinstance(operand, Address))
    destinations = binder.destinations(binder.operands[0]) if place else [None]
    objects = _Objects(binder, binder.operands[place])
    rest = binder.operands[place + 1 :]
    announces = "expect_tx" in binder.instruction.modifiers
    value_of: Source = binder.source(rest[0], "b32") if rest else Constant(np.asarray(1))
    state = binder.state
    (destination,) = destinations

    def one(block: int, byte: int, row: int, lane: int, warp: int, value: int) -> int:
        found = objects.find(block, byte, row, lane)
        state.watch.arrives(warp, (block, byte, found.phase))
        phase = found.arrive(1, value) if announces else found.arrive(value)
        state.phase_passed(block, byte, phase)
        return phase

    return _each_lane(binder, objects, value_of, one, destination)


def _each_lane(
    binder: Binder, objects: _Objects, value_of: Source, one: Callable[..., int | None], destination: Any = None
) -> Step:
    """A step that does `one` for each lane that executes it, in the order of the schedule."""
    state = binder.state

    def step(front: Front) -> None:
        mask = binder.mask(front)
        active = full(mask, front)
        if not active.any():
            return
        bytes_ = objects.bytes_of(front, mask)
        values = lanes(value_of[front.rows], front)
        results = np.zeros((front.count, LANES), np.uint64)
        for row in state.schedule.order(front.count).tolist():
            warp = int(front.warps[row])
            for lane in np.flatnonzero(active[row]).tolist():
                found = one(int(state.block_of[warp]), int(bytes_[row, lane]), row, lane, warp, int(values[row, lane]))
                results[row, lane] = found or 0
        state.progress += 1
        if destination is not None:
            destination.put(front, mask, results)

    return step


def _wait(binder: Binder, pc: int) -> Control:
    """Warps that wait in vain go on after the others."""
    result, address, phase = binder.operands[:3]
    destination, objects = binder.destination(result), _Objects(binder, address)
    by_parity = "parity" in binder.instruction.modifiers
    phase_of = binder.source(phase, "b32" if by_parity else "b64")
    state = binder.state

    def step(front: Front) -> list[Front]:
        mask = binder.mask(front)
        active = full(mask, front)
        if not active.any():
            return [front.at(pc + 1)]
        bytes_ = objects.bytes_of(front, mask)
        phases = lanes(phase_of[front.rows], front)
        over = np.zeros((front.count, LANES), bool)
        for row, warp in enumerate(front.warps.tolist()):
            block = int(state.block_of[warp])
            for byte in np.unique(bytes_[row][active[row]]).tolist():
                there = active[row] & (bytes_[row] == byte)
                found = objects.find(block, byte, row, int(np.argmax(there)))
                for value in np.unique(phases[row][there]).tolist():
                    if not (found.over(value & 1) if by_parity else found.phase > value):
                        continue
                    over[row] |= there & (phases[row] == value)
                    state.watch.finds_ended(warp, (block, byte, found.phase - 1))
        destination.put(front, mask, over)
        in_vain = np.asarray((active & ~over).any(axis=1))
        state.watch.met(pc, int(np.count_nonzero(active.any(axis=1) & ~in_vain)))
        fronts = [front.some(~in_vain, pc + 1), front.some(in_vain, pc + 1)]
        fronts[1].turn += 1
        fronts[1].seen = state.progress
        return [each for each in fronts if each.count]

    return step


def require_immediate(binder: Binder, operand: Any) -> int:
    """The value of an operand that PTX wants as a constant."""
    if not isinstance(operand, Immediate):
        raise binder.unknown(f"{operand} where {binder.instruction.name} wants a constant")
    return operand.value
