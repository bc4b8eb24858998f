"""`triton-native`: NVFP4 attention in Triton whose scores are a product of NVFP4 by NVFP4 (tl.dot_scaled).

Q is rounded to NVFP4 in the kernel, one global scale a row; V is dequantised by hand. It has run on no GPU: it is compiled and
inspected for those that have the instruction, and gated in Triton's interpreter, where decoded operands are multiplied.
"""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounding, Rounds
from impls.triton_native import availability, tiles


class TritonNativeAttention(Implementation):
    name = "triton-native"
    summary = "Triton: Q rounded to NVFP4, scores by FP4 tensor cores (Blackwell; not yet run there); or interpreted on a CPU"
    lists_launches = True

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return availability.why_not(arch) or tiles.why_not(problem, arch)

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        from impls.triton_native.attention import NativePlan

        return NativePlan(problem, arch)

    def partial_dtype(self, problem: Problem) -> str:
        return "float32"

    def plan_partial(self, problem: Problem, arch: Arch) -> Plan:
        from impls.triton_native.attention import NativePlan

        return NativePlan(problem, arch, partial=True)

    def rounds(self, problem: Problem) -> Rounds:
        """Q to NVFP4 by rows, and the softmax numerators to float16 as in `triton`."""
        return {"q": Rounding("nvfp4"), "p": Rounding("float16")}

    def accumulator_chain(self, problem: Problem) -> int:
        return tiles.longest_chain(problem)
