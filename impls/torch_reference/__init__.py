"""`torch-reference-bf16`: the operation in a dozen lines of plain torch, on any device. Not fast, and easy to check by eye.

K and V are decoded to bfloat16, which is exact, with their global scales kept outside; scores and sums are float32;
the softmax numerators are rounded to bfloat16 as a tensor-core kernel would.
"""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounding, Rounds


class TorchReference(Implementation):
    name = "torch-reference-bf16"
    summary = "plain torch, bfloat16 operands, float32 sums; any device"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        if problem.dtype != "bfloat16":
            return f"{self.name} takes bfloat16 queries, not {problem.dtype}."
        return None

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        from impls.torch_reference.attention import TorchPlan

        return TorchPlan(problem, arch)

    def rounds(self, problem: Problem) -> Rounds:
        return {"p": Rounding("bfloat16")}
