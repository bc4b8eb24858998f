"""The plan and the runners of `triton`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from impls.arch import Arch
from impls.contract import Cache, Inputs, Launch, Output, Plan, Problem, Runner, Scalar
from impls.cuda.runner import CompiledRunner
from impls.host import require_arch
from impls.triton import kernels
from impls.triton.arguments import (
    Alignment,
    attend_constants,
    attend_values,
    merge_constants,
    merge_values,
)
from impls.triton.compiler import Compiled, compile_attend, compile_merge
from impls.triton.planner import MERGE_SLICE, Schedule, schedule
from impls.validation import bind_inputs, inputs_of

if TYPE_CHECKING:
    from impls.triton.arguments import Value


class TritonPlan(Plan):
    """Compiles for tensors with packed lines; `bind` compiles again if it is given tensors that are aligned less."""

    def __init__(self, problem: Problem, arch: Arch, *, partial: bool = False) -> None:
        """`partial`: out is float32, and the runners, which are called one after the other, share one workspace."""
        self.problem = problem
        self.arch = arch
        self.partial = self.shares_workspace = partial
        self._shared: dict[torch.device, Output] = {}
        self.schedule = self._schedule()
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
            "parts": s.parts,
            "keys_first": int(s.keys_first),
            "max_registers": s.max_registers or "as many as it takes",
        }

    def kernels(self, alignment: Alignment | None = None) -> list[Compiled]:
        """What a call launches, in order, for tensors aligned at least like `alignment` (left out: as expected)."""
        alignment = alignment or self.alignment
        attend = self._compile_attend(alignment)
        if self.schedule.splits == 1:
            return [attend]
        return [attend, compile_merge(self.problem, self.arch, self.schedule, alignment)]

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
        inputs = inputs_of(q, cache, kv_lens, block_table)
        output = bind_inputs(self.problem, inputs, out, lse, out_dtype=self.schedule.out_dtype)
        return self._runner(inputs, cache, output)

    def _runner(self, inputs: Inputs, cache: Cache, output: Output) -> Runner:
        """`inputs` and `output` are the problem's."""
        alignment = self.alignment.and_also(Alignment.of(inputs, output.out))
        if not self.arch.is_gpu:
            return InterpretedRunner(output, self._steps(inputs, cache, output, alignment))
        require_arch(inputs.q.device, self.arch)
        compiled = self.kernels(alignment)
        launches = [launch_of(*each) for each in zip(compiled, self._steps(inputs, cache, output, alignment), strict=True)]
        return CompiledRunner(output, launches, self.arch)

    def _steps(self, inputs: Inputs, cache: Cache, output: Output, alignment: Alignment) -> list[Step]:
        """The kernels of a call, with their arguments. Allocates the workspace."""
        p, s = self.problem, self.schedule
        if s.splits == 1:
            return [self._attend(inputs, cache, output, alignment)]
        partial = self._workspace(inputs.q.device)
        return [
            self._attend(inputs, cache, partial, alignment),
            Step(
                kernels.merge,
                (partial.lse[0].numel(), -(-p.v_head_dim // MERGE_SLICE), 1),
                merge_values(p, s, partial, output),
                merge_constants(p, s),
                s.merged_early,
            ),
        ]

    def _workspace(self, device: torch.device) -> Output:
        """Room for the results of the splits."""
        p, s = self.problem, self.schedule
        if device in self._shared:
            return self._shared[device]
        results = (s.splits, p.batch, p.q_heads, p.q_len)
        room = Output(
            torch.empty(*results, p.v_head_dim, dtype=torch.float32, device=device),
            torch.empty(results, dtype=torch.float32, device=device),
        )
        if self.partial:
            self._shared[device] = room
        return room

    def new_workspace(self) -> None:
        self._shared.clear()

    def _schedule(self) -> Schedule:
        return schedule(self.problem, self.arch, out_dtype=self._out_dtype)

    @property
    def _out_dtype(self) -> str:
        return "float32" if self.partial else self.problem.dtype

    def _compile_attend(self, alignment: Alignment) -> Compiled:
        return compile_attend(self.problem, self.arch, self.schedule, alignment)

    def _attend(self, inputs: Inputs, cache: Cache, result: Output, alignment: Alignment) -> Step:
        p, s = self.problem, self.schedule
        grid = (s.programs, s.splits, s.parts)
        return Step(kernels.attend, grid, attend_values(p, s, inputs, result), attend_constants(p, s, alignment))


@dataclass(frozen=True)
class Step:
    """One kernel of a call, with its arguments."""

    kernel: Any
    grid: tuple[int, int, int]
    values: Mapping[str, Value]
    constants: Mapping[str, Value]
    overlaps: bool = False

    def interpret(self) -> None:
        """Run the kernel in Triton's interpreter."""
        self.kernel[self.grid](**self.values, **self.constants)


def launch_of(compiled: Compiled, step: Step) -> Launch:
    """The launch of `step`, whose kernel is `compiled`."""
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
        overlaps=step.overlaps,
        args=(*arguments, *[None] * compiled.scratch_pointers),
    )


class InterpretedRunner(Runner):
    """Runs the kernels in Triton's interpreter, on the CPU."""

    def __init__(self, output: Output, steps: list[Step]) -> None:
        self.output = output
        self._steps = steps

    def __call__(self) -> None:
        for step in self._steps:
            step.interpret()
