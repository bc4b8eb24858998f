"""`triton`: portable NVFP4 attention in Triton, codes dequantised by hand in the loop."""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounding, Rounds
from impls.triton import availability, planner


class TritonAttention(Implementation):
    name = "triton"
    summary = "portable Triton: NVFP4 dequantised in the loop, 16-bit tensor cores; sm_80 and newer, or interpreted on a CPU"
    lists_launches = True

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return planner.why_not(problem) or availability.why_not(arch)

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        from impls.triton.attention import TritonPlan

        return TritonPlan(problem, arch)

    def partial_dtype(self, problem: Problem) -> str:
        return "float32"

    def plan_partial(self, problem: Problem, arch: Arch) -> Plan:
        from impls.triton.attention import TritonPlan

        return TritonPlan(problem, arch, partial=True)

    def rounds(self, problem: Problem) -> Rounds:
        """The softmax numerators, always to float16 (`kernels` says why). K and V decode exactly to 16 bits."""
        return {"p": Rounding("float16")}

    def accumulator_chain(self, problem: Problem) -> int:
        return planner.longest_chain(problem)
