"""The plan of attention in CUDA: what is compiled when, and how it is launched."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import torch

from impls.arch import Arch
from impls.contract import Cache, Inputs, Launch, Output, Plan, Problem, Runner
from impls.cuda.attention import ATTEND_ARGUMENTS, arguments, combine_kernel, combine_launch, partial_results
from impls.cuda.compiler import Kernel
from impls.cuda.runner import CompiledRunner
from impls.host import require_arch
from impls.triton.arguments import Alignment, Split, attend_values
from impls.validation import bind_inputs, inputs_of

if TYPE_CHECKING:
    from impls.triton.arguments import Value


class AttendSchedule(Split, Protocol):
    """What launching needs of a schedule."""

    @property
    def threads(self) -> int: ...
    @property
    def programs(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def workspace_bytes(self) -> int: ...


AnySchedule = TypeVar("AnySchedule", bound=AttendSchedule)


class AttendPlan(Plan, Generic[AnySchedule]):
    """Compiles for packed tensors; `bind` compiles again for others. All kernels are launched alike."""

    def __init__(self, problem: Problem, arch: Arch, schedule: AnySchedule, *, partial: bool = False) -> None:
        """`partial`: out is float32, and the runners, which are called one after the other, share one workspace."""
        self.problem = problem
        self.arch = arch
        self.schedule = self._largest = schedule
        self.partial = self.shares_workspace = partial
        self.out_dtype = "float32" if partial else problem.dtype
        self._shared: dict[torch.device, Output] = {}
        self.alignment = Alignment.expected(problem)
        self.kernels()

    @property
    def workspace_bytes(self) -> int:
        return self.schedule.workspace_bytes

    def kernels(self) -> list[Kernel]:
        """What a call launches, in order, for packed tensors."""
        attend = self._attend(self.alignment, packed_lines(self.problem))
        if self.schedule.splits == 1:
            return [attend]
        return [attend, combine_kernel(self.problem, self.arch, self.schedule, self.out_dtype)]

    def new_workspace(self) -> None:
        self._shared.clear()

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
        output = bind_inputs(self.problem, inputs, out, lse, out_dtype=self.out_dtype)
        require_arch(q.device, self.arch)
        return CompiledRunner(output, self._launches(inputs, output), self.arch)

    def _launches(self, inputs: Inputs, output: Output) -> list[Launch]:
        p, s = self.problem, self.schedule
        result = self._workspace(inputs.q.device) if s.splits > 1 else output
        values = attend_values(p, s, inputs, result)
        lines = {name: _bytes(values[f"{name}_stride"]) for name in packed_lines(p)}
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

    def _workspace(self, device: torch.device) -> Output:
        """Room for the results of the splits."""
        if not self.partial:
            return partial_results(self.problem, self.schedule, device)
        if device not in self._shared:
            self._shared[device] = partial_results(self.problem, self._largest, device)
        room, splits = self._shared[device], self.schedule.splits
        return Output(room.out[:splits], room.lse[:splits])

    @abstractmethod
    def _attend(self, alignment: Alignment, lines: dict[str, int]) -> Kernel:
        """The kernel for tensors of this alignment whose lines are so many bytes apart."""


def _bytes(stride: Value) -> int:
    """Of a packed tensor, whose elements are bytes."""
    assert isinstance(stride, int)
    return stride


def packed_lines(problem: Problem) -> dict[str, int]:
    """{stride: bytes from line to line} of packed tensors; 0 where that depends on how long the cache is."""
    p = problem
    along = p.v_block_axis == -2
    return {
        "k_codes_token": p.head_dim // 2,
        "k_scales_token": p.head_dim // 16,
        "v_codes_line": 0 if along else p.v_head_dim // 2,
        "v_scales_line": 0 if along else p.v_head_dim // 16,
    }
