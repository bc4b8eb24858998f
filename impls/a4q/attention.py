"""The plan of `a4q` and `a4q-q16`."""

from __future__ import annotations

from copy import copy
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

from impls.a4q.planner import Schedule, SharedTile, Tile, scattered, schedule
from impls.arch import Arch
from impls.contract import Inputs, Launch, Output, Problem
from impls.cuda.attention import problem_defines
from impls.cuda.compiler import FORMATS, Kernel, compile_kernel
from impls.cuda.plan import AttendPlan, AttendSchedule, packed_lines
from impls.planning import VECTOR_BYTES
from impls.triton.arguments import Alignment, outer_strides

KERNELS = Path(__file__).with_name("kernels")


class Tiled(AttendSchedule, Protocol):
    """A schedule whose tile says how many blocks an SM is to hold."""

    @property
    def tile(self) -> AnyTile: ...


class AnyTile(Protocol):
    @property
    def blocks_per_sm(self) -> int: ...


AnyTiled = TypeVar("AnyTiled", bound=Tiled)


class TiledPlan(AttendPlan[AnyTiled]):
    """What the kernels of `a4q` are told alike."""

    def __init__(self, problem: Problem, arch: Arch, schedule: AnyTiled, *, rounds_q: bool, partial: bool) -> None:
        self.rounds_q = rounds_q
        super().__init__(problem, arch, schedule, partial=partial)

    def _defines(self, alignment: Alignment, lines: dict[str, int]) -> dict[str, int | str]:
        """What all kernels want to know, how many blocks an SM is to hold, and with what shared memory."""
        p, s = self.problem, self.schedule
        packed = packed_lines(p)
        # one number that is known when compiling, or 0: a kernel for every distance would be too many
        lines_known: dict[str, int] = {name.upper(): packed[name] if packed[name] == lines[name] else 0 for name in packed}
        return {
            **problem_defines(p, s, self.out_dtype),
            "K_TYPE": "Float16" if self.rounds_q else FORMATS[p.dtype],
            "Q_NVFP4": int(self.rounds_q),
            "Q_ALIGNMENT": alignment.q,
            "K_CODES_ALIGNMENT": alignment.k_codes,
            "K_SCALES_ALIGNMENT": alignment.k_scales,
            "V_CODES_ALIGNMENT": alignment.v_codes,
            "V_SCALES_ALIGNMENT": alignment.v_scales,
            **lines_known,
            "BLOCKS_PER_SM": s.tile.blocks_per_sm,
            "SHARED_BYTES": s.shared_bytes,
        }


class A4QPlan(TiledPlan[Schedule]):
    """By decode.cu or many_rows.cu."""

    def __init__(
        self, problem: Problem, arch: Arch, *, rounds_q: bool, tile: Tile | SharedTile | None = None, partial: bool = False
    ) -> None:
        """`tile` in place of the planner's."""
        super().__init__(problem, arch, schedule(problem, arch, tile, rounds_q=rounds_q), rounds_q=rounds_q, partial=partial)

    def _launches(self, inputs: Inputs, output: Output) -> list[Launch]:
        tile = self.schedule.tile
        if isinstance(tile, Tile) and tile.stages and not _in_runs(inputs):
            return self._scattered._launches(inputs, output)
        return super()._launches(inputs, output)

    @cached_property
    def _scattered(self) -> A4QPlan:
        made = copy(self)
        made.schedule = scattered(self.problem, self.arch, self.schedule)
        return made

    def describe(self) -> dict[str, int | str]:
        s = self.schedule
        return {
            "kernel": "many_rows" if isinstance(s.tile, SharedTile) else "decode",
            "rows": s.rows,
            **{field.name: getattr(s.tile, field.name) for field in fields(s.tile)},
            "splits": s.splits,
            "keys_of_a_team": s.keys_of_a_team,
        }

    def _attend(self, alignment: Alignment, lines: dict[str, int]) -> Kernel:
        s = self.schedule
        defines = self._defines(alignment, lines)
        if isinstance(s.tile, Tile):
            defines |= {
                "ROW_TILES": s.tile.row_tiles,
                "KEY_TILES": s.tile.key_tiles,
                "WARPS": s.tile.warps,
                "STAGES": s.tile.stages,
            }
            return compile_kernel(KERNELS / "decode.cu", "a4q_decode", self.arch, defines)
        defines |= {
            "ROW_GROUPS": s.tile.row_groups,
            "KEYS": s.tile.keys,
            "STAGES": s.tile.stages,
            "PRODUCERS": s.tile.producers,
        }
        return compile_kernel(KERNELS / "many_rows.cu", "a4q_many_rows", self.arch, defines)


def _in_runs(inputs: Inputs) -> bool:
    """Whether the packed K and V of every sequence and head lie in one piece that begins where bulk copies may."""
    for packed in (inputs.k4.codes, inputs.k4.scales, inputs.v4.codes, inputs.v4.scales):
        *starts, line, byte = outer_strides(packed)
        if any(n % VECTOR_BYTES for n in (packed.data_ptr(), *starts)) or (line, byte) != (packed.shape[-1], 1):
            return False
    return True
