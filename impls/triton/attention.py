"""The plan and the runners of `triton`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from impls.arch import Arch
from impls.contract import Cache, Inputs, Launch, Output, Plan, Problem, Runner, Scalar
from impls.cuda.driver import Program
from impls.host import arch_of
from impls.triton import kernels
from impls.triton.arguments import (
    Alignment,
    attend_constants,
    attend_values,
    merge_constants,
    merge_values,
)
from impls.triton.compiler import Compiled, compile_attend, compile_merge
from impls.triton.planner import schedule
from impls.validation import bind_inputs

if TYPE_CHECKING:
    from impls.triton.arguments import Value


class TritonPlan(Plan):
    """Compiles for tensors with packed lines; `bind` compiles again if it is given tensors that are aligned less."""

    def __init__(self, problem: Problem, arch: Arch) -> None:
        self.problem = problem
        self.arch = arch
        self.schedule = schedule(problem, arch)
        self.alignment = Alignment.expected(problem)
        if arch.is_gpu:
            self.kernels()

    @property
    def workspace_bytes(self) -> int:
        return self.schedule.workspace_bytes

    def describe(self) -> dict[str, int | str]:
        s = self.schedule
        return {
            "block_m": s.block_m,
            "block_n": s.block_n,
            "num_warps": s.num_warps,
            "num_stages": s.num_stages,
            "splits": s.splits,
            "tokens_per_split": s.tokens_per_split,
        }

    def kernels(self, alignment: Alignment | None = None) -> list[Compiled]:
        """What a call launches, in order, for tensors aligned at least like `alignment` (left out: as expected)."""
        alignment = alignment or self.alignment
        attend = compile_attend(self.problem, self.arch, self.schedule, alignment)
        return [attend] if self.schedule.splits == 1 else [attend, compile_merge(self.problem, self.arch, alignment)]

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
        if not self.arch.is_gpu:
            return InterpretedRunner(output, self._steps(inputs, output))
        if q.device.type == "cuda" and arch_of(q.device) != self.arch:
            here = arch_of(q.device).name
            raise ValueError(f"the tensors are on a GPU of {here} and the plan is for {self.arch.name}; plan for {here}.")
        compiled = self.kernels(self.alignment.and_also(Alignment.of(inputs, output.out)))
        launches = [_launch(*each) for each in zip(compiled, self._steps(inputs, output), strict=True)]
        return CompiledRunner(output, launches, self.arch)

    def _steps(self, inputs: Inputs, output: Output) -> list[_Step]:
        """The kernels of a call, with their arguments. Allocates the workspace."""
        p, s = self.problem, self.schedule
        results = (p.batch, p.q_heads, p.q_len)
        grid = (s.programs, s.splits, 1)
        if s.splits == 1:
            return [_Step(kernels.attend, grid, attend_values(p, s, inputs, output), attend_constants(p, s))]
        partial = Output(
            inputs.q.new_empty(s.splits, *results, p.v_head_dim, dtype=torch.float32),
            inputs.q.new_empty(s.splits, *results, dtype=torch.float32),
        )
        return [
            _Step(kernels.attend, grid, attend_values(p, s, inputs, partial), attend_constants(p, s)),
            _Step(kernels.merge, (partial.lse[0].numel(), 1, 1), merge_values(p, s, partial, output), merge_constants(p)),
        ]


@dataclass(frozen=True)
class _Step:
    kernel: Any
    grid: tuple[int, int, int]
    values: Mapping[str, Value]
    constants: Mapping[str, Value]


def _launch(compiled: Compiled, step: _Step) -> Launch:
    arguments: list[Any] = []
    for name, kind in compiled.parameters.items():
        scalar = {"i32": "i32", "i64": "i64", "fp32": "f32"}.get(kind)
        arguments.append(step.values[name] if scalar is None else Scalar(scalar, step.values[name]))  # type: ignore[arg-type]
    return Launch(
        ptx=compiled.ptx,
        cubin=compiled.cubin,
        entry=compiled.entry,
        grid=step.grid,
        block=(32 * compiled.num_warps, 1, 1),
        shared_bytes=compiled.shared_bytes,
        args=(*arguments, *[None] * compiled.scratch_pointers),
    )


class InterpretedRunner(Runner):
    """Runs the kernels in Triton's interpreter, on the CPU."""

    def __init__(self, output: Output, steps: list[_Step]) -> None:
        self.output = output
        self._steps = steps

    def __call__(self) -> None:
        for step in self._steps:
            step.kernel[step.grid](**step.values, **step.constants)


class CompiledRunner(Runner):
    """Launches the compiled kernels on the GPU that holds the tensors. Bound to CPU tensors, it only states its launches."""

    def __init__(self, output: Output, launches: list[Launch], arch: Arch) -> None:
        self.output = output
        self._launches = tuple(launches)
        self._arch = arch
        self._device = output.out.device
        self._program = Program(launches, self._device) if self._device.type == "cuda" else None

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self._launches

    def __call__(self) -> None:
        if self._program is None:
            raise ValueError(f"kernels for {self._arch.name} cannot run on tensors on the CPU; bind tensors on that GPU.")
        self._program.launch(torch.cuda.current_stream(self._device).cuda_stream)
