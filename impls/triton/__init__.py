"""`triton`: portable NVFP4 attention in Triton, codes dequantised by hand in the loop."""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounding, Rounds


class TritonAttention(Implementation):
    name = "triton"
    summary = "portable Triton: NVFP4 dequantised in the loop, 16-bit tensor cores; sm_80 and newer"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return "triton is being written."

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        raise NotImplementedError

    def rounds(self, problem: Problem) -> Rounds:
        return {"p": Rounding(problem.dtype)}
