"""Runs fronts until none is left: picks, merges, executes a run of instructions, parks, and tells a deadlock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.errors import EmulationError, InternalError, TooLong
from impls.cuda.emulator.machine.binding import NotConverged
from impls.cuda.emulator.machine.fronts import NEVER, Front, merged
from impls.cuda.emulator.machine.program import Code
from impls.cuda.emulator.machine.state import State, located


class Deadlock(EmulationError):
    """Nobody can go on."""


@dataclass
class Executed:
    """What ran, by instruction."""

    warps: Array
    """int64: how many warps executed each."""
    lanes: Array
    """int64: how many lanes."""
    limit: int
    """Warp instructions in all, at most."""
    total: int = 0


def run(state: State, program: Code, executed: Executed) -> None:
    """Execute the blocks of `state`, to whose registers `program` is bound, to their end. Raises EmulationError, which says
    where."""
    fronts = state.start()
    stuck = _Stuck(state)
    with np.errstate(all="ignore"):
        while fronts:
            moving = [front for front in fronts if not front.waits_for_lanes and front.seen != state.progress]
            if not moving:
                if state.copies.finish_bulk():
                    continue
                if stuck.again(fronts):
                    raise _deadlock(state, fronts)
                for front in fronts:  # who asked in vain may have something else to do
                    front.seen = NEVER
                continue
            picked = state.schedule.pick(moving)
            front, fronts = _together(picked, fronts)
            front.seen = NEVER
            alive = state.alive
            became = _advance(state, program, executed, front, {other.pc for other in fronts})
            if state.alive is not alive:  # nobody waits for lanes that have ended
                for other in fronts:
                    other.waits_for_lanes = False
            for each in became:
                if each.waits_for_lanes:
                    each, fronts = _together([each], fronts)
                fronts.append(each)
            fronts += state.released
            state.released = []
        while state.copies.finish_bulk():
            pass
    if waiting := state.barriers.waiting():
        raise _barrier_deadlock(state, waiting)


class _Stuck:
    """Tells whether nobody will ever go on: everything is as it was before, and all have tried again since."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._progress = NEVER
        self._seen: set[int] = set()

    def again(self, fronts: Sequence[Front]) -> bool:
        """Called while nobody can go on without asking again what was in vain."""
        state = self._state
        if all(front.waits_for_lanes for front in fronts):
            return True
        if self._progress != state.progress:
            self._progress, self._seen = state.progress, set()
        registers = tuple(hash(array.tobytes()) for array in state.registers.values())
        places = sorted((front.pc, front.warps.tobytes(), front.active().tobytes()) for front in fronts)
        before = len(self._seen)
        self._seen.add(hash((tuple(places), registers)))
        return len(self._seen) == before


def _advance(state: State, program: Code, executed: Executed, front: Front, others: set[int]) -> list[Front]:
    """Execute `front` up to a place where others matter. Returns what it became."""
    body = state.loaded.function.body
    steps, ends, controls = program.steps, program.ends, program.controls
    pc = front.pc
    while True:
        end = ends[pc]
        at = pc
        try:
            for at in range(pc, end):
                steps[at](front)
            _count(executed, pc, end, front)
            pc = at = end
            if end not in controls:
                if end == len(body):
                    raise EmulationError("the function ends without ret")
                front.pc = end
                if end in others:
                    return [front]
                continue
            became = steps[end](front)
            _count(executed, end, end + 1, front)
        except NotConverged as wait:
            _count(executed, pc, at, front)
            return _park(front, at, wait.needed)
        except EmulationError as error:
            raise located(state, body[min(at, len(body) - 1)], front, error) from error
        except MemoryError:
            raise
        except Exception as error:
            fault = InternalError(f"the emulator failed: {type(error).__name__}: {error}")
            raise located(state, body[min(at, len(body) - 1)], front, fault) from error
        assert became is not None
        if others or state.released or len(became) != 1 or became[0].seen == state.progress:
            return became
        front, pc = became[0], became[0].pc


def _count(executed: Executed, first: int, last: int, front: Front) -> None:
    executed.warps[first:last] += front.count
    executed.lanes[first:last] += 32 * front.count if front.mask is None else int(front.mask.sum())
    executed.total += (last - first) * front.count
    if executed.total > executed.limit:
        raise TooLong(f"more than {executed.limit:,} warp instructions were executed")


def _park(front: Front, pc: int, needed: Array) -> list[Front]:
    """At `pc`, warps that have the lanes they need go on, and the others wait for theirs."""
    there = ((front.active() & needed) == needed).all(axis=1)
    going, waiting = front.some(there, pc), front.some(~there, pc)
    assert waiting.count, "who needs lanes that are here already would ask for them for ever"
    waiting.waits_for_lanes = True
    return [each for each in (going, waiting) if each.count]


def _together(picked: list[Front], fronts: list[Front]) -> tuple[Front, list[Front]]:
    """(what was picked, with the lanes of its warps that wait at the same place; the fronts that are left)."""
    pc, warps = picked[0].pc, {warp for front in picked for warp in front.warps.tolist()}
    joining = [
        front for front in fronts if front.pc == pc and front not in picked and not warps.isdisjoint(front.warps.tolist())
    ]
    front = merged(picked + joining)
    if joining:
        front.waits_for_lanes = False
    return front, [each for each in fronts if each not in picked and each not in joining]


def _deadlock(state: State, fronts: list[Front]) -> EmulationError:
    front = min(fronts, key=lambda each: each.pc)
    why = "waits for lanes of its warp that never come" if front.waits_for_lanes else "waits for what nobody will do any more"
    error = Deadlock(f"deadlock: {why}, while {len(fronts)} groups of lanes in all can go no further{_at_barriers(state)}")
    return located(state, state.loaded.function.body[front.pc], front, error)


def _barrier_deadlock(state: State, waiting: list[tuple[int, Array]]) -> EmulationError:
    number, warps = waiting[0]
    front = Front(int(state.barriers.resume[number, warps[0]]) - 1, warps)
    return located(state, state.loaded.function.body[front.pc], front, Deadlock(f"deadlock{_at_barriers(state)}"))


def _at_barriers(state: State) -> str:
    parts = []
    for number, warps in state.barriers.waiting():
        block = int(state.block_of[warps[0]])
        arrived, expected = int(state.barriers.arrived[number, block]), int(state.barriers.expected[number, block])
        wanted = f"{expected}" if expected else f"all {int(state.warps_alive()[block])} that are alive"
        parts.append(f"; at barrier {number} of block {state.blocks[block]} {arrived} warps have arrived of {wanted}")
    return "".join(parts)
