"""The plan of `triton-native`: that of `triton`, with another kernel for the scores' part."""

from __future__ import annotations

from impls.contract import Cache, Inputs, Output, Paged, Problem
from impls.triton.arguments import Alignment, attend_types, attend_values
from impls.triton.attention import Step, TritonPlan
from impls.triton.compiler import Compiled, attend_divisors, compile_kernel
from impls.triton.planner import Schedule
from impls.triton.planner import padded as padded_for_p
from impls.triton_native import kernel, tiles


class NativePlan(TritonPlan):
    """Compiles for tensors with packed lines; `bind` compiles again if it is given tensors that are aligned less."""

    def _schedule(self) -> Schedule:
        return tiles.schedule(self.problem, self.arch, out_dtype=self._out_dtype)

    def _compile_attend(self, alignment: Alignment) -> Compiled:
        p, s = self.problem, self.schedule
        types = attend_types(p, s)
        options = {"num_warps": s.num_warps, "num_stages": s.num_stages}
        divisors = attend_divisors(types, alignment)
        return compile_kernel(kernel.attend, types, _constants(p, s), divisors, self.arch, options)

    def _attend(self, inputs: Inputs, cache: Cache, result: Output, alignment: Alignment) -> Step:
        p, s = self.problem, self.schedule
        return Step(kernel.attend, (s.programs, s.splits, 1), attend_values(p, s, inputs, result), _constants(p, s))


def _constants(problem: Problem, schedule: Schedule) -> dict[str, int | bool | None]:
    """{parameter: value} that `kernel.attend` is compiled for."""
    p = problem
    return {
        "GROUP": p.group,
        "HEAD_DIM": p.head_dim,
        "V_HEAD_DIM": p.v_head_dim,
        "CAUSAL": p.causal,
        "WINDOWED": p.window is not None,
        "PAGE_SIZE": p.layout.page_size if isinstance(p.layout, Paged) else None,
        "V_ALONG_TOKENS": p.v_block_axis == -2,
        "HAS_E4M3": schedule.has_e4m3,
        "BLOCK_M": schedule.block_m,
        "BLOCK_N": schedule.block_n,
        "D": tiles.padded(p.head_dim),
        "DV": padded_for_p(p.v_head_dim),
    }
