"""`smem-unpack`: the rejected way, kept to compare with. Packed K and V are unpacked to E4M3 in shared memory, then multiplied.

Fallbacks do so on GPUs whose tensor cores take no NVFP4, or none in the form at hand. It costs a trip of every value through
shared memory; a rounding, since E2M1 times its block scale has more bits than E4M3; and room for two unpacked tiles, which from
some head dim on the smaller GPUs do not have. `why_not` says so in bytes.

`rounds` describes sums of exact products in float32. The products of E4M3 that sm_90a and sm_100a to sm_110a build from 16-bit
ones are such, and by the published models (MMA-Sim) those of sm_120a and 121a. Those of sm_89 are not, and it is refused.
"""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounding, Rounds
from impls.smem_unpack import planner


class SmemUnpack(Implementation):
    name = planner.NAME
    summary = "CUDA, to compare with: K and V unpacked to E4M3 in shared memory, Q and P rounded to it; sm_90a and newer"
    lists_launches = True

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        from impls.cuda import nvrtc

        return planner.why_not(problem, arch) or nvrtc.why_not(arch)

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        from impls.smem_unpack.attention import SmemUnpackPlan

        return SmemUnpackPlan(problem, arch)

    def rounds(self, problem: Problem) -> Rounds:
        """All four operands to E4M3, each relative to a power of two that keeps them from saturating."""
        cache = Rounding("float8_e4m3_by_tensor")
        return {"q": Rounding("float8_e4m3_by_row"), "k": cache, "v": cache, "p": Rounding("float8_e4m3")}

    def accumulator_chain(self, problem: Problem) -> int:
        return planner.longest_chain(problem)
