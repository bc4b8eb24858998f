"""What sees the accesses and the synchronisation of launches: it checks their order, and counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from impls.cuda.emulator.arithmetic import RULES as ARITHMETIC
from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.checks.happens_before import RULES as CHECKED
from impls.cuda.emulator.checks.happens_before import HappensBefore, Order, Repeats, Scope
from impls.cuda.emulator.checks.reports import Access, Race
from impls.cuda.emulator.checks.shadow import Region
from impls.cuda.emulator.counting.classes import classify
from impls.cuda.emulator.counting.counters import Counters, matrix_cost
from impls.cuda.emulator.counting.footprint import Footprint
from impls.cuda.emulator.counting.traffic import RULES as COUNTED
from impls.cuda.emulator.errors import Unknown
from impls.cuda.emulator.machine.binding import Binder, Either
from impls.cuda.emulator.machine.fronts import Front
from impls.cuda.emulator.machine.located import Located
from impls.cuda.emulator.machine.memory import GlobalMemory
from impls.cuda.emulator.machine.rules import RULES as MACHINE
from impls.cuda.emulator.machine.state import Loaded, Shape, State, place_of
from impls.cuda.emulator.ptx.syntax import TYPE_BYTES, Instruction
from impls.cuda.emulator.rules import Rule, on_target
from impls.cuda.emulator.tensor_cores.rules import RULES as TENSOR_CORES

if TYPE_CHECKING:
    from impls.cuda.emulator.machine.program import Code


RULES = {**ARITHMETIC, **TENSOR_CORES, **MACHINE}
"""That instructions follow. What is checked and counted rests on `CHECKED` and `COUNTED` beside them."""
Space = Literal["shared", "global"]
COARSEST = 4
"""Bytes that the checks of order take as one, unless a kernel has narrower accesses."""
ACCESSES = {"ld", "ldu", "st", "atom", "red"}


class Observer:
    """Of launches that follow each other, one schedule's. Warps are numbered among those that reside; `begin` and `reside` say
    which those are. `pc` is the index of the instruction; what a front accesses is a `Located`."""

    def __init__(self, loaded: Sequence[Loaded], memory: GlobalMemory, *, checks: bool, counts: bool) -> None:
        self._memory = memory
        self._checks = checks
        self._counts = counts
        self._grain: dict[Space, int] = {"shared": grain_of(loaded, "shared"), "global": grain_of(loaded, "global")}
        self._order: HappensBefore | None = None
        self._footprint = Footprint(0, max(memory.arena.size, 1))
        self._instructions: list[Instruction] = []
        """Of all launches: what the checks of order know instructions by."""
        self.counters: list[Counters] = []
        self.rules: dict[str, Rule] = {}
        """What was executed, checked and counted in the launches that are over rests on these."""

    def begin(self, loaded: Loaded, shape: Shape, overlaps: bool) -> None:
        """The next launch."""
        if self._checks:
            if self._order is None:
                self._order = HappensBefore(shape.blocks, shape.warps, self._grain)
                self._order.add_global("global", self._memory.arena.size)
            else:
                self._order.launch_boundary(shape.blocks, shape.warps, overlaps=overlaps)
            self._order.add_shared("shared", loaded.shared_bytes + 2 * 16)
        self._base = len(self._instructions)
        self._instructions += loaded.function.body
        self._warps_per_block = shape.warps
        self._target = loaded.module.target
        self._followed: dict[Instruction, set[str]] = {}
        self._counter = _counters(loaded.function.body, shape.blocks)
        self.counters.append(self._counter)
        self._fetched_before = self._footprint.fetched_bytes
        self.idle = np.zeros(len(loaded.function.body), np.int64)
        """By instruction: of the warps that came to it, those without a lane that executes it."""

    def reside(self, blocks: Sequence[int], shared_size: int) -> None:
        """These blocks execute next, all of them."""
        self._first_warp = blocks[0] * self._warps_per_block
        self._shared_size = shared_size
        if self._order is not None:
            self._order.reside(blocks[0], len(blocks))

    def end(self, warps: Array, lanes: Array) -> None:
        """The launch is over; int64 [instructions]: how many warps and lanes came to each."""
        working = warps - self.idle
        self._counter.executed(warps, working, lanes)
        self._counter.dram_bytes = self._footprint.fetched_bytes - self._fetched_before
        body = self._instructions[self._base :]
        executed = [self._followed.get(instruction, ()) for instruction, count in zip(body, working, strict=True) if count]
        found = {name: RULES[name] for names in executed for name in names}
        for name, rule in (found | (CHECKED if self._checks else {}) | (COUNTED if self._counts else {})).items():
            here = on_target(name, rule, self._target)
            if name not in self.rules or here.status != "silicon":  # of launches for different targets the least trusted
                self.rules[name] = here

    def rests_on(self, instruction: Instruction, rules: Sequence[str]) -> None:
        """The instruction follows these rules if it is executed."""
        self._followed.setdefault(instruction, set()).update(rules)

    def counting(self, state: State, code: Code) -> Code:
        """The same code, which tells `idle` which guards do not hold, if that is counted."""
        if not self._counts:
            return code
        steps = [
            self._guarded(Binder(state, instruction), pc, step) if instruction.predicate else step
            for pc, (instruction, step) in enumerate(zip(state.loaded.function.body, code.steps, strict=True))
        ]
        return replace(code, steps=steps)

    def _guarded(self, binder: Binder, pc: int, step: Either) -> Either:
        idle = self.idle

        def counted(front: Front) -> list[Front] | None:
            mask = binder.mask(front)  # before the step, which may write its own guard
            without = 0 if mask is None else front.count - np.count_nonzero(mask.any(axis=1))
            became = step(front)
            idle[pc] += without
            return became

        return counted

    def read(
        self,
        front: Front,
        place: Located,
        pc: int,
        scope: Scope | None = None,
        order: Order = "relaxed",
    ) -> None:
        """A load; with a scope a strong one."""
        self._count(place, pc, writes=False)
        if self._order is not None and place.space != "local":
            self._order.read(self._warps(front), self._region(place), self._base + pc, scope, order)

    def write(
        self,
        front: Front,
        place: Located,
        pc: int,
        scope: Scope | None = None,
        order: Order = "relaxed",
        repeats: Repeats | None = None,
    ) -> None:
        """A store, which has not been made yet. `repeats`: see `HappensBefore.write`."""
        self._count(place, pc, writes=True)
        if self._order is not None and place.space != "local":
            self._order.write(self._warps(front), self._written(place), self._base + pc, scope, order, repeats)

    def atomic(
        self,
        front: Front,
        place: Located,
        pc: int,
        scope: Scope,
        order: Order,
        returns: bool,
    ) -> None:
        """A read and a write that nothing comes between; `returns`: the kernel gets what was read."""
        if place.active is not None and not place.active.any():
            return
        self._count(place, pc, writes=True)
        if self._order is not None and place.space != "local":
            self._order.atomic(self._warps(front), self._region(place), self._base + pc, scope, order, returns)

    def rows(self, front: Front, place: Located, pc: int, *, writes: bool, repeats: Repeats | None = None) -> None:
        """ldmatrix or stmatrix: rows of 16 bytes, [warps, 8 or 16 for each matrix]."""
        region = self._region(place)
        if self._counts:
            if place.cost is None:
                place.cost = matrix_cost(region.offsets.astype(np.uint64), region.offsets.shape[1] // 8)
            self._counter.shared(pc, place.cost)
        if self._order is not None:
            if writes:
                self._order.write(self._warps(front), self._written(place), self._base + pc, repeats=repeats)
            else:
                self._order.read(self._warps(front), region, self._base + pc)

    def copy_begins(self, front: Front, to: Located, active: Array, source: Array, read: Array, pc: int) -> Array:
        """cp.async, of each lane's bytes the first `read` from `source`, is under way; the answer, int64 [warps], identifies
        each warp's part."""
        reads = active & (read > 0)
        if self._counts and reads.any():
            origin = Located("global", source, to.size, reads)
            self._count(origin, pc, writes=False, asked=int(read[reads].sum()))
        if self._order is None:
            return np.zeros(front.count, np.int64)
        out_of = _first_bytes(source, np.where(reads, read, 0), to.size, self._grain["global"])
        return self._order.async_issue(self._warps(front), self._region(to), out_of, self._base + pc)

    def copy_ends(self, tokens: Array) -> None:
        """The warps of these parts have waited for them."""
        if self._order is not None:
            self._order.async_complete(tokens)

    def bulk_begins(self, warp: int, to: int, source: int, size: int, pc: int) -> Array:
        """A bulk copy of one thread, from and to these positions, is under way."""
        steps = 16 * np.arange(size // 16)[None]
        if self._counts and size:
            self._counter.bulk_access(pc, source, size)
            self._footprint.read(source + steps, 16)
        if self._order is None or not size:
            return np.zeros(0, np.int64)
        into = Region("shared", to % self._shared_size + steps, 16, None)
        warps = np.array([warp + self._first_warp])
        return self._order.async_issue(warps, into, Region("global", source + steps, 16, None), self._base + pc, bulk=True)

    def bulk_ends(self, tokens: Array, key: tuple[int, int, int]) -> None:
        """It is there for whoever acquires the phase `key` of an mbarrier."""
        if self._order is not None and tokens.size:
            self._order.async_complete(tokens, self._key(key))

    def barrier(self, warps: Array, blocks: Array) -> None:
        """Of these warps, ascending, those of a block have met; `blocks`: each one's, of those that reside."""
        if self._order is not None:
            sizes = np.bincount(blocks)[blocks]
            for size in sorted({*sizes.tolist()}):
                self._order.barrier(warps[sizes == size].reshape(-1, size) + self._first_warp)

    def warps_met(self, front: Front) -> None:
        """The lanes of each warp have met."""
        if self._order is not None:
            self._order.warp_sync(self._warps(front))

    def fence(self, warps: Array, scope: Scope, sc: bool) -> None:
        """What these warps did before comes before what they do after, for those in `scope`. `sc`: of fence.sc."""
        if self._order is not None:
            self._order.fence(warps + self._first_warp, scope, sc)

    def proxy_fence(self, warps: Array) -> None:
        """What these warps know may be read and written by bulk copies."""
        if self._order is not None:
            self._order.proxy_fence(warps + self._first_warp)

    def waits_for_earlier_launches(self, warps: Array) -> None:
        """griddepcontrol.wait."""
        if self._order is not None:
            self._order.griddepcontrol_wait(warps + self._first_warp)

    def arrives(self, warp: int, key: tuple[int, int, int]) -> None:
        """A warp arrives at the phase `key`: block that resides, byte of its shared memory, number."""
        if self._order is not None:
            self._order.release(np.array([warp + self._first_warp]), [self._key(key)])

    def phase_ends(self, key: tuple[int, int, int]) -> None:
        """All have arrived."""
        if self._order is not None:
            self._order.complete_phase(self._key(key))

    def finds_ended(self, warp: int, key: tuple[int, int, int]) -> None:
        """A warp has seen that the phase is over."""
        if self._order is not None:
            self._order.acquire(np.array([warp + self._first_warp]), [self._key(key)])

    def sentence(self, race: Race) -> str:
        """What a race is, in places of the PTX and of the callers' memory."""
        place = self._memory.describe(race.offset) if race.space == "global" else f"byte {race.offset} of shared memory"
        return f"{place}: {self._access(race.second)}, after {self._access(race.first)}, but {race.reason}"

    def _access(self, access: Access) -> str:
        lane = "" if access.lane is None else f", lane {access.lane}"
        return f"block {access.block}, warp {access.warp}{lane} {access.does} at {place_of(self._instructions[access.where])}"

    def diverged(self, pc: int, count: int) -> None:
        """At a branch, lanes of `count` warps went different ways."""
        self._counter.diverged(pc, count)

    def met(self, pc: int, count: int) -> None:
        """`count` warps came to a barrier, or found that the phase of an mbarrier was over."""
        self._counter.met(pc, count)

    def _warps(self, front: Front) -> Array:
        return front.warps + self._first_warp

    def _region(self, place: Located) -> Region:
        """What it is for the checks, within the block's shared memory."""
        if place.region is None:
            offsets = place.positions if place.space == "global" else place.positions % self._shared_size
            place.region = Region(place.space, offsets, place.size, place.active)
        return place.region

    def _written(self, place: Located) -> Region:
        """The same, which says whether lanes meet: only stores ask, for it takes long to find out."""
        region = self._region(place)
        region.apart = place.apart
        return region

    def _key(self, key: tuple[int, int, int]) -> tuple[int, int, int]:
        block, byte, phase = key
        return block + self._first_warp // self._warps_per_block, byte, phase

    def _count(
        self,
        place: Located,
        pc: int,
        *,
        writes: bool,
        asked: int | None = None,
    ) -> None:
        active = place.active
        if not self._counts or place.space == "local":
            return
        if place.space == "shared":
            if place.cost is None:
                everyone = np.ones(place.positions.shape, bool) if active is None else active
                place.cost = self._counter.shared_cost(self._region(place).offsets.astype(np.uint64), place.size, everyone)
            self._counter.shared(pc, place.cost)
            return
        self._counter.global_access(pc, place.positions, place.size, active, asked)
        at = place.positions if active is None else place.positions[active]
        (self._footprint.write if writes else self._footprint.read)(at, place.size)


def _first_bytes(positions: Array, count: Array, size: int, grain: int) -> Region:
    """Of `size` bytes at each of `positions` of global memory the first `count`, which may differ: in units that fit all,
    of `grain` or more."""
    if ((count == 0) | (count == size)).all():
        return Region("global", positions, size, count > 0)
    unit = max(math.gcd(size, *np.unique(count).tolist()), grain)
    steps = np.arange(0, size, unit)  # lanes follow each other, so that a lane's number is that of the column
    return Region(
        "global",
        np.concatenate([positions + step for step in steps], axis=1),
        unit,
        np.concatenate([count > step for step in steps], axis=1),
    )


def _counters(body: Sequence[Instruction], blocks: int) -> Counters:
    """Raises Unknown, with the line, where an instruction is of no class."""
    for instruction in body:
        try:
            classify(instruction.opcode, instruction.modifiers)
        except Unknown as error:
            raise Unknown(f"{place_of(instruction)}: {error}") from error
    return Counters([instruction.name for instruction in body], blocks)


def grain_of(loaded: Sequence[Loaded], space: str) -> int:
    """Bytes of the narrowest access that kernels make to a space, as far as their instructions say; 4 at most."""
    return min((_bytes(instruction, space) for each in loaded for instruction in each.function.body), default=COARSEST)


def _bytes(instruction: Instruction, space: str) -> int:
    if instruction.opcode not in ACCESSES or not instruction.modifiers or "param" in instruction.modifiers:
        return COARSEST
    spaces = {"shared", "shared::cta", "global", "local", "const"} & set(instruction.modifiers)
    if spaces and not any(each.startswith(space) for each in spaces):
        return COARSEST
    count = next((int(modifier[1:]) for modifier in instruction.modifiers if modifier in ("v2", "v4", "v8")), 1)
    return min(count * TYPE_BYTES.get(instruction.modifiers[-1], COARSEST), COARSEST)
