"""cp.async and cp.async.bulk. PTX ISA 9.1, 9.7.9.25."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.machine.binding import Binder, Constant, Source, Step, full, lanes
from impls.cuda.emulator.machine.copies import BulkCopy, Copy
from impls.cuda.emulator.machine.fronts import LANES, Front
from impls.cuda.emulator.machine.state import At, State
from impls.cuda.emulator.machine.steps.access import bounded, locate, located, require_aligned
from impls.cuda.emulator.machine.steps.synchronise import require_immediate
from impls.cuda.emulator.ptx.syntax import Register

BULK = {"bulk", "shared::cluster", "shared::cta", "global", "mbarrier::complete_tx::bytes"}
BULK_ALIGNMENT = 16


def copy(binder: Binder, pc: int) -> Step:
    """Everything that is called cp.async."""
    modifiers = binder.instruction.modifiers
    if modifiers[0] != "async":
        raise binder.unknown(binder.instruction.name)
    kinds: dict[str, Callable[[Binder, int], Step]] = {
        "ca": _copy,
        "cg": _copy,
        "commit_group": _commit,
        "wait_group": _wait_group,
        "wait_all": _wait_all,
        "bulk": _bulk,
    }
    if modifiers[1] not in kinds:
        raise binder.unknown(binder.instruction.name)
    return kinds[modifiers[1]](binder, pc)


def _copy(binder: Binder, pc: int) -> Step:
    """cp.async.{ca, cg}.shared.global [to], [from], size{, bytes to read | predicate not to read}{, policy}."""
    known = {"async", "ca", "cg", "shared", "shared::cta", "global"}
    strange = [each for each in binder.instruction.modifiers if each not in known and not each.startswith("L2::")]
    if strange:
        raise binder.unknown(binder.instruction.name)
    to, source = (binder.address(operand) for operand in binder.operands[:2])
    size = require_immediate(binder, binder.operands[2])
    state = binder.state
    read_of: Source = Constant(np.asarray(size, np.int64))
    if len(binder.operands) > 3:
        last = binder.operands[3]
        ignores = isinstance(last, Register) and state.loaded.function.registers[last.name] == "pred"
        given = binder.source(last, "pred" if ignores else "b32")
        read_of = _Read(given, size) if ignores else given

    def step(front: Front) -> None:
        mask = binder.mask(front)
        if mask is not None and not mask.any():
            return
        read = np.broadcast_to(np.asarray(read_of[front.rows]).astype(np.int64), (front.count, LANES))
        active = full(mask, front)
        reads = active & (read > 0)
        place = located(state, "shared", lanes(to[front.rows], front), front, mask, size)
        too_many = active & (read > size)
        if too_many.any():
            row, lane = (int(i) for i in np.argwhere(too_many)[0])
            raise At(f"{int(read[row, lane])} B are to be read for {size} B", row, lane)
        if reads.any():
            origin = _origin(state, lanes(source[front.rows], front), front, reads, read, size)
        else:
            origin = np.zeros_like(place.positions)
        tokens = state.watch.copy_begins(front, place, active, origin, read, pc)
        state.copies.issue(Copy(front.warps, place.positions, origin, size, read, active, tokens))
        state.progress += 1

    return step


def _origin(state: State, address: Array, front: Front, reads: Array, read: Array, size: int) -> Array:
    """int64 [warps, 32] positions in global memory: of `size` bytes each, of which the first `read` have to be there."""
    require_aligned(address, reads, size, "global")
    origin = locate(state, "global", address, front, reads, 1)
    locate(state, "global", address + np.maximum(read - 1, 0).astype(address.dtype), front, reads, 1)
    return origin


class _Read:
    """Bytes to read: none where the predicate holds."""

    def __init__(self, ignored: Source, size: int) -> None:
        self._ignored, self._size = ignored, size

    def __getitem__(self, rows: object) -> Array:
        return np.where(self._ignored[rows], 0, self._size)


def _commit(binder: Binder, pc: int) -> Step:
    return lambda front: binder.state.copies.commit(front, binder.mask(front))


def _wait_group(binder: Binder, pc: int) -> Step:
    left = require_immediate(binder, binder.operands[0])
    return lambda front: binder.state.copies.wait(front, binder.mask(front), left)


def _wait_all(binder: Binder, pc: int) -> Step:
    return lambda front: binder.state.copies.wait_all(front, binder.mask(front))


def _bulk(binder: Binder, pc: int) -> Step:
    """cp.async.bulk.shared.global.mbarrier::complete_tx::bytes [to], [from], size, [barrier]."""
    modifiers = [each for each in binder.instruction.modifiers[1:] if not each.startswith("L2::")]
    if not set(modifiers) <= BULK or "mbarrier::complete_tx::bytes" not in modifiers or not modifiers[1].startswith("shared"):
        raise binder.unknown(binder.instruction.name)
    to, source, size_operand, barrier = binder.operands[:4]
    addresses = [binder.address(operand) for operand in (to, source, barrier)]
    size_of = binder.source(size_operand, "b32")
    state = binder.state

    def step(front: Front) -> None:
        mask = binder.mask(front)
        active = full(mask, front)
        if not active.any():
            return
        sizes = lanes(size_of[front.rows], front)
        to_address, from_address, barrier_address = (lanes(address[front.rows], front) for address in addresses)
        for row, lane in np.argwhere(active).tolist():
            warp, size = int(front.warps[row]), int(sizes[row, lane])
            one = Front(pc, front.warps[row : row + 1], (np.arange(LANES) == lane)[None])
            places = [
                int(bounded(state, space, np.full((1, LANES), address[row, lane]), one, one.mask, at_least)[0, lane])
                for space, address, at_least in (
                    ("shared", to_address, size),
                    ("global", from_address, size),
                    ("shared", barrier_address, 8),
                )
            ]
            if any(number % BULK_ALIGNMENT for number in (places[0], places[1], size)):
                raise At(f"a bulk copy of {size} B is not of {BULK_ALIGNMENT} B at {BULK_ALIGNMENT} B", row, lane)
            block = int(state.block_of[warp])
            tokens = state.watch.bulk_begins(warp, places[0], places[1], size, pc)
            state.shared.defined[places[0] : places[0] + size] = False
            inside = places[2] - block * state.shared.size
            if (block, inside) not in state.mbarriers:
                raise At(f"no mbarrier was initialised at byte {inside} of shared memory", row, lane)
            state.copies.bulk.append(BulkCopy(block, places[0], places[1], size, inside, tokens))
        state.progress += 1

    return step
