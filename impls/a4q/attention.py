"""The plan of `a4q` and `a4q-q16`."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch

from impls.a4q.planner import Schedule, SharedTile, Tile, scattered, schedule
from impls.arch import Arch
from impls.contract import Cache, Inputs, Launch, Output, Plan, Problem, Runner
from impls.cuda.attention import (
    ATTEND_ARGUMENTS,
    arguments,
    combine_kernel,
    combine_launch,
    partial_results,
    problem_defines,
)
from impls.cuda.compiler import FORMATS, Kernel, compile_kernel
from impls.cuda.runner import CompiledRunner
from impls.host import require_arch
from impls.planning import VECTOR_BYTES
from impls.triton.arguments import Alignment, Split, attend_values, outer_strides
from impls.validation import bind_inputs

KERNELS = Path(__file__).with_name("kernels")


class AttendSchedule(Split, Protocol):
    """What launching needs of a schedule."""

    @property
    def tile(self) -> AttendTile: ...
    @property
    def threads(self) -> int: ...
    @property
    def programs(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def workspace_bytes(self) -> int: ...


class AttendTile(Protocol):
    @property
    def blocks_per_sm(self) -> int: ...


AnySchedule = TypeVar("AnySchedule", bound=AttendSchedule)


class AttendPlan(Plan, Generic[AnySchedule]):
    """Compiles for packed tensors; `bind` compiles again for others. All kernels are launched alike."""

    def __init__(self, problem: Problem, arch: Arch, schedule: AnySchedule, *, rounds_q: bool) -> None:
        self.problem = problem
        self.arch = arch
        self.rounds_q = rounds_q
        self.schedule = schedule
        self.alignment = Alignment.expected(problem)
        self.kernels()

    @property
    def workspace_bytes(self) -> int:
        return self.schedule.workspace_bytes

    def kernels(self) -> list[Kernel]:
        """What a call launches, in order, for packed tensors."""
        attend = self._attend(self.alignment, _packed_lines(self.problem))
        return [attend, combine_kernel(self.problem, self.arch, self.schedule)] if self.schedule.splits > 1 else [attend]

    def bind(
        self,
        q: torch.Tensor,
        cache: Cache,
        *,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        kv_lens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
    ) -> Runner:
        inputs = Inputs(q, cache.k4, cache.v4, kv_lens, block_table)
        output = bind_inputs(self.problem, inputs, out, lse)
        require_arch(q.device, self.arch)
        return CompiledRunner(output, self._launches(inputs, output), self.arch)

    def _launches(self, inputs: Inputs, output: Output) -> list[Launch]:
        p, s = self.problem, self.schedule
        result = partial_results(p, s, inputs.q.device) if s.splits > 1 else output
        values = attend_values(p, s, inputs, result)
        lines = {name: int(values[f"{name}_stride"]) for name in _packed_lines(p)}  # type: ignore[arg-type]
        alignment = self.alignment.and_also(Alignment.of(inputs, output.out))
        launches = [
            self._attend(alignment, lines).launch(
                grid=(s.programs, s.splits, 1),
                block=(s.threads, 1, 1),
                shared_bytes=s.shared_bytes,
                args=arguments(ATTEND_ARGUMENTS, values),
            )
        ]
        if s.splits > 1:
            launches.append(combine_launch(p, self.arch, s, result, output))
        return launches

    @abstractmethod
    def _attend(self, alignment: Alignment, lines: dict[str, int]) -> Kernel:
        """The kernel for tensors of this alignment whose lines are so many bytes apart."""

    def _defines(self, alignment: Alignment, lines: dict[str, int]) -> dict[str, int | str]:
        """What all kernels want to know, how many blocks an SM is to hold, and with what shared memory."""
        p, s = self.problem, self.schedule
        packed = _packed_lines(p)
        # one number that is known when compiling, or 0: a kernel for every distance would be too many
        lines_known: dict[str, int] = {name.upper(): packed[name] if packed[name] == lines[name] else 0 for name in packed}
        return {
            **problem_defines(p, s),
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


class A4QPlan(AttendPlan[Schedule]):
    """By decode.cu or many_rows.cu."""

    def __init__(self, problem: Problem, arch: Arch, *, rounds_q: bool, tile: Tile | SharedTile | None = None) -> None:
        """`tile` in place of the planner's."""
        super().__init__(problem, arch, schedule(problem, arch, tile, rounds_q=rounds_q), rounds_q=rounds_q)

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


def _packed_lines(problem: Problem) -> dict[str, int]:
    """{stride: bytes from line to line} of packed tensors; 0 where that depends on how long the cache is."""
    p = problem
    along = p.v_block_axis == -2
    return {
        "k_codes_token": p.head_dim // 2,
        "k_scales_token": p.head_dim // 16,
        "v_codes_line": 0 if along else p.v_head_dim // 2,
        "v_scales_line": 0 if along else p.v_head_dim // 16,
    }


def _in_runs(inputs: Inputs) -> bool:
    """Whether the packed K and V of every sequence and head lie in one piece that begins where bulk copies may."""
    for packed in (inputs.k4.codes, inputs.k4.scales, inputs.v4.codes, inputs.v4.scales):
        *starts, line, byte = outer_strides(packed)
        if any(n % VECTOR_BYTES for n in (packed.data_ptr(), *starts)) or (line, byte) != (packed.shape[-1], 1):
            return False
    return True
