"""`hybrid-bf16:sdpa`: the cache converted by our kernel, attention by torch's scaled_dot_product_attention.

Torch takes no scale of K or V that lies on the device, so the global scales are multiplied in when the cache is converted, and
the product is rounded: to the values that the `sdpa-*` implementations have, which convert by torch's operations.
"""

from __future__ import annotations

from typing import Literal

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounds
from impls.peers import roundings
from impls.peers.sdpa import SdpaCudnn, SdpaFlash
from impls.triton import availability

NO_FLOAT16 = "float16 cannot hold every value of an NVFP4 cache with its global scale; use bfloat16 queries, or hybrid-bf16."


def backend(problem: Problem, arch: Arch) -> Literal["cudnn", "flash"]:
    """The kernel of torch's that is called."""
    return "flash" if SdpaCudnn().why_not(problem, arch) else "cudnn"


class HybridSdpa(Implementation):
    name = "hybrid-bf16:sdpa"
    summary = "NVFP4 converted once to bfloat16 by Triton, then torch SDPA: cuDNN where it takes the problem, else flash"
    repacks = True

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        if backend(problem, arch) == "flash":
            reason = SdpaFlash().why_not(problem, arch)
            if reason:
                return reason
        return NO_FLOAT16 if problem.dtype == "float16" else availability.why_not(arch)

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        from impls.hybrid.sdpa_plan import HybridSdpaPlan

        return HybridSdpaPlan(problem, arch, backend(problem, arch))

    def rounds(self, problem: Problem) -> Rounds:
        return roundings.sixteen_bit(problem)
