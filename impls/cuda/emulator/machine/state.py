"""What the blocks that reside at a time have: registers, memory, lanes that are alive."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from impls.cuda.emulator.arithmetic import register
from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.checks.reports import RaceFound
from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.machine.barriers import Barriers, Mbarrier
from impls.cuda.emulator.machine.copies import Copies
from impls.cuda.emulator.machine.fronts import LANES, Front
from impls.cuda.emulator.machine.located import Located
from impls.cuda.emulator.machine.memory import POISON, BlockMemory, GlobalMemory
from impls.cuda.emulator.machine.schedules import Schedule
from impls.cuda.emulator.ptx.syntax import Function, Instruction, Module

if TYPE_CHECKING:
    from impls.cuda.emulator.machine.observe import Observer

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Shape:
    """Of one launch."""

    grid: Triple
    block: Triple

    @property
    def threads(self) -> int:
        """Of a block."""
        return prod(self.block)

    @property
    def warps(self) -> int:
        """Of a block."""
        return -(-self.threads // LANES)

    @property
    def blocks(self) -> int:
        return prod(self.grid)


@dataclass(frozen=True)
class Loaded:
    """A module whose variables have addresses."""

    module: Module
    function: Function
    symbols: Mapping[str, int]
    """Where variables are: generic addresses of global and const ones, offsets in their window of shared and local ones."""
    shared_bytes: int
    """Of a block, what the launch asks for included."""
    dynamic_bytes: int
    local_bytes: int
    """Of a thread."""
    parameters: Mapping[str, bytes]


class State:
    """Of the blocks that reside: `begin` says which, and forgets those before, which were as many."""

    def __init__(
        self, loaded: Loaded, shape: Shape, blocks: Sequence[int], memory: GlobalMemory, schedule: Schedule, watch: Observer
    ) -> None:
        self.loaded, self.shape, self.memory, self.schedule, self.watch = loaded, shape, memory, schedule, watch
        self.warps = len(blocks) * shape.warps
        self.registers: dict[str, Array] = {}
        """[warps, 32] each."""
        self.defined: dict[str, Array] = {}
        """bool [warps, 32] of the registers that some path reads before it writes them: they start poisoned."""
        by_word: dict[type, list[str]] = {}
        for name, kind in loaded.function.registers.items():
            by_word.setdefault(word_of(kind), []).append(name)
        for word, names in by_word.items():
            room: Array = np.zeros((len(names), self.warps, LANES), word)
            self.registers.update(zip(names, room, strict=True))
        warp = np.arange(self.warps)
        self.block_of = warp // shape.warps
        """Of each warp, counted among those that reside."""
        self.slot_of = warp % shape.warps
        """Of each warp, its number in its block."""
        self.thread = (self.slot_of[:, None] * LANES + np.arange(LANES)).astype(np.int64)
        """int64 [warps, 32]: number of the thread in its block."""
        self.specials = self._specials()
        """The registers that the hardware sets, uint32 [warps, 32]."""
        self.shared = BlockMemory(len(blocks), loaded.shared_bytes)
        self.shared_base = (self.block_of * self.shared.size)[:, None]
        """int64 [warps, 1]: where a warp's shared memory starts."""
        self.local = BlockMemory(self.warps * LANES, loaded.local_bytes)
        self.local_base = (warp[:, None] * LANES + np.arange(LANES)) * self.local.size
        self.located: dict[Hashable, Located] = {}
        """Accesses to shared and local memory that have been made, by what they are made of."""
        self.begin(blocks)

    def begin(self, blocks: Sequence[int]) -> None:
        """These blocks of the grid start."""
        self.blocks = blocks
        self.progress = 0
        """Rises whenever something happens that somebody may have waited for."""
        self.alive = self.thread < self.shape.threads
        for name, defined in self.defined.items():
            defined[...] = False
            register = self.registers[name]
            register.view(np.uint8)[...] = 1 if register.dtype == np.bool_ else POISON
        self.shared.forget()
        self.local.forget()
        self.barriers = Barriers(len(blocks), self.warps)
        self.mbarriers: dict[tuple[int, int], Mbarrier] = {}
        """By block and byte of its shared memory."""
        self.copies = Copies(self)
        self.released: list[Front] = []
        """Fronts that a barrier has just let go."""
        place = np.array([self.coordinates(block) for block in blocks], np.uint32)[self.block_of]
        for axis, letter in enumerate("xyz"):
            self.specials[f"%ctaid.{letter}"][...] = place[:, axis, None]
            self.specials[f"%clusterid.{letter}"][...] = place[:, axis, None]

    def start(self) -> list[Front]:
        """All warps at the entry."""
        return [
            front.lanes(self.alive[group], 0) if not self.alive[group].all() else front
            for group in self.schedule.groups(np.arange(self.warps), self.slot_of)
            for front in [Front(0, group)]
        ]

    def exit(self, front: Front) -> None:
        """Its lanes are through; `alive` is another array from then on."""
        self.alive = self.alive.copy()
        self.alive[front.rows] &= ~front.active()
        self.progress += 1

    def warps_alive(self) -> Array:
        """int [blocks]: warps of each that have not ended."""
        return np.bincount(self.block_of, weights=self.alive.any(axis=1), minlength=len(self.blocks)).astype(np.int64)

    def phase_passed(self, block: int, byte: int, phase: int) -> None:
        """Tell the checks, if the mbarrier at `byte` of a block that resides is through with `phase`."""
        if self.mbarriers[block, byte].phase != phase:
            self.watch.phase_ends((block, byte, phase))

    def block_number(self, warp: int) -> int:
        """In the grid."""
        return self.blocks[int(self.block_of[warp])]

    def coordinates(self, block: int) -> Triple:
        """Of a block of the grid."""
        x, y, _ = self.shape.grid
        return block % x, block // x % y, block // (x * y)

    def _specials(self) -> dict[str, Array]:
        """All but the place of the block."""
        ones = np.ones((self.warps, LANES), np.uint32)
        lane = np.broadcast_to(np.arange(LANES, dtype=np.uint32), (self.warps, LANES))
        below = (np.uint32(1) << lane) - np.uint32(1)
        found = {
            "%laneid": lane,
            "%warpid": ones * self.slot_of[:, None].astype(np.uint32),
            "%nwarpid": ones * np.uint32(self.shape.warps),
            "%smid": ones * np.uint32(0),
            "%nsmid": ones,
            "%dynamic_smem_size": ones * np.uint32(self.loaded.dynamic_bytes),
            "%total_smem_size": ones * np.uint32(self.loaded.shared_bytes),
            "%lanemask_eq": np.uint32(1) << lane,
            "%lanemask_lt": below,
            "%lanemask_le": below | np.uint32(1) << lane,
            "%lanemask_gt": ~(below | np.uint32(1) << lane),
            "%lanemask_ge": ~below,
            "%cluster_ctarank": ones * np.uint32(0),
            "%cluster_nctarank": ones,
        }
        block_x, block_y, _ = self.shape.block
        thread = (self.thread % block_x, self.thread // block_x % block_y, self.thread // (block_x * block_y))
        for axis, letter in enumerate("xyz"):
            found[f"%tid.{letter}"] = thread[axis].astype(np.uint32)
            found[f"%ntid.{letter}"] = ones * np.uint32(self.shape.block[axis])
            found[f"%ctaid.{letter}"] = np.zeros_like(ones)
            found[f"%nctaid.{letter}"] = ones * np.uint32(self.shape.grid[axis])
            found[f"%clusterid.{letter}"] = np.zeros_like(ones)
            found[f"%nclusterid.{letter}"] = found[f"%nctaid.{letter}"]
            found[f"%cluster_ctaid.{letter}"] = np.zeros_like(ones)
            found[f"%cluster_nctaid.{letter}"] = ones
        return found


def word_of(kind: str) -> type:
    """The NumPy type of a register of this PTX type."""
    word: type = register(kind)
    return word


class At(EmulationError):
    """Something went wrong in these lanes: the report names the first."""

    def __init__(self, sentence: str, row: int, lane: int | None) -> None:
        super().__init__(sentence)
        self.row, self.lane = row, lane


def located(state: State, instruction: Instruction, front: Front, error: EmulationError) -> EmulationError:
    """The same error, which now says where it happened: PTX line, source line, block, warp and lane."""
    if isinstance(error, RaceFound):
        access, sentence = error.race.second, state.watch.sentence(error.race)
        block, warp, lane = access.block, access.warp, access.lane
    else:
        row, lane = (error.row, error.lane) if isinstance(error, At) else (0, None)
        number = int(front.warps[min(row, front.count - 1)])
        block, warp, sentence = state.block_number(number), int(state.slot_of[number]), str(error)
    thread = f"block {state.coordinates(block)}, warp {warp}" + ("" if lane is None else f", lane {lane}")
    error.args = (f"{place_of(instruction)}, {thread}: {sentence}: {instruction.text}",)
    return error


def place_of(instruction: Instruction) -> str:
    """Its line in the PTX, and in the source if that is known."""
    source = f", {instruction.source.file}:{instruction.source.line}" if instruction.source else ""
    return f"PTX line {instruction.line}{source}"
