"""The plan of `smem-unpack`."""

from __future__ import annotations

from pathlib import Path

import torch

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
from impls.cuda.compiler import Kernel, compile_kernel
from impls.cuda.runner import CompiledRunner
from impls.host import require_arch
from impls.smem_unpack.planner import KEYS, WARPS, blocks_per_sm, row_warps_for, schedule
from impls.triton.arguments import Alignment, attend_values
from impls.validation import bind_inputs

SOURCE = Path(__file__).parent / "kernels" / "attend.cu"
BLOCK_BYTES = 8
"""Of codes, which are loaded together."""


class SmemUnpackPlan(Plan):
    """Compiles for tensors with packed lines; `bind` compiles again for tensors that are aligned less."""

    def __init__(self, problem: Problem, arch: Arch) -> None:
        self.problem = problem
        self.arch = arch
        self.schedule = schedule(problem, row_warps_for(problem, arch))
        self.blocks_per_sm = blocks_per_sm(problem, self.schedule, arch)
        self.alignment = Alignment.expected(problem)
        self.kernels()

    @property
    def workspace_bytes(self) -> int:
        return self.schedule.workspace_bytes

    def describe(self) -> dict[str, int | str]:
        s = self.schedule
        return {
            "rows": 16 * s.row_warps,
            "keys_of_a_tile": KEYS,
            "shared_bytes": s.shared_bytes,
            "splits": s.splits,
            "keys_of_a_split": s.keys_of_a_split,
        }

    def kernels(self) -> list[Kernel]:
        """What a call launches, in order, for tensors with packed lines."""
        attend = self._attend(self.alignment)
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
        alignment = self.alignment.and_also(Alignment.of(inputs, output.out))
        attend = self._attend(alignment).launch(
            grid=(s.programs, s.splits, 1),
            block=(32 * WARPS, 1, 1),
            shared_bytes=s.shared_bytes,
            args=arguments(ATTEND_ARGUMENTS, attend_values(p, s, inputs, result)),
        )
        return [attend, combine_launch(p, self.arch, s, result, output)] if s.splits > 1 else [attend]

    def _attend(self, alignment: Alignment) -> Kernel:
        """The kernel for tensors of this alignment."""
        p, s = self.problem, self.schedule
        defines: dict[str, int | str] = {
            **problem_defines(p, s),
            "K_TYPE": "Float16",
            **dict.fromkeys(("K_CODES_TOKEN", "K_SCALES_TOKEN", "V_CODES_LINE", "V_SCALES_LINE"), 0),
            "K_CODES_ALIGNMENT": min(alignment.k_codes, BLOCK_BYTES),
            "V_CODES_ALIGNMENT": min(alignment.v_codes, BLOCK_BYTES),
            "ROW_WARPS": s.row_warps,
            "SHARED_BYTES": s.shared_bytes,
            "BLOCKS_PER_SM": self.blocks_per_sm,
        }
        return compile_kernel(SOURCE, "smem_unpack_attend", self.arch, defines)
