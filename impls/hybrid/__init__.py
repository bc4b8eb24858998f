"""`hybrid-bf16`, `hybrid-fp8`: the NVFP4 cache is converted once, in `pack`, and attention reads what it became.

    hybrid-bf16         K and V in 16 bits, e2m1 * scale exactly; attention by our Triton kernel
    hybrid-fp8          K and V in E4M3, relative to a power of two for each head; the same kernel
    hybrid-bf16:sdpa    K and V in 16 bits, global scales multiplied in; attention by torch

Converting costs time once and bytes for good; each call is then cheaper, or not: that is what they are here to find out.
"""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounding, Rounds
from impls.hybrid import tiles
from impls.hybrid.formats import Kind, format_for
from impls.hybrid.sdpa import HybridSdpa
from impls.triton import availability, planner

__all__ = ["HybridBf16", "HybridFp8", "HybridSdpa"]


class _Hybrid(Implementation):
    kind: Kind
    repacks = True
    lists_launches = True
    """Those of a call: what `pack` launches is no part of it, and `Converter.kernels` lists that."""

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return planner.why_not(problem, self.name) or availability.why_not(arch)

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        from impls.hybrid.attention import HybridPlan

        return HybridPlan(problem, arch, format_for(problem, self.kind))

    def accumulator_chain(self, problem: Problem) -> int:
        return tiles.longest_chain(problem)


class HybridBf16(_Hybrid):
    name = "hybrid-bf16"
    summary = (
        "NVFP4 converted once to 16 bits, exactly, then 16-bit attention in Triton; sm_80 and newer, or interpreted on a CPU"
    )
    kind = "16-bit"

    def rounds(self, problem: Problem) -> Rounds:
        """The softmax numerators, to float16 as in `triton`: K and V are as exact in 16 bits as they are in NVFP4."""
        return {"p": Rounding("float16")}

    def using(self, inner: str) -> Implementation:
        if inner == "sdpa":
            return HybridSdpa()
        raise ValueError(f"{self.name} can have sdpa inside, not {inner}.")


class HybridFp8(_Hybrid):
    name = "hybrid-fp8"
    summary = "NVFP4 converted once to E4M3, then multiplied in 16 bits in Triton; sm_80 and newer, or interpreted on a CPU"
    kind = "e4m3"

    def rounds(self, problem: Problem) -> Rounds:
        """K and V once, when they are converted; the numerators to float16. E4M3 becomes 16 bits again exactly.

        E4M3 is relative to a power of two for each head, of all scales that `pack` is given but NaN: see
        `impls.reference.head_unit`. Lengths and block tables are not known then, and change; so tokens and pages that no call
        reads count too, and large numbers left in them cost precision in all others.
        """
        cache = Rounding("float8_e4m3_by_head")
        return {"k": cache, "v": cache, "p": Rounding("float16")}
