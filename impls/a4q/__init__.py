"""`a4q` and `a4q-q16`: hand-written CUDA that streams packed NVFP4 K and V and dequantises it in registers."""

from __future__ import annotations

from impls.a4q import planner
from impls.a4q.native import planner as native
from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounding, Rounds


class _A4Q(Implementation):
    rounds_q: bool
    lists_launches = True

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        from impls.cuda import nvrtc

        return planner.why_not(self.name, problem, arch) or nvrtc.why_not(arch)

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return self._plan(problem, arch, partial=False)

    def partial_dtype(self, problem: Problem) -> str:
        return "float32"

    def plan_partial(self, problem: Problem, arch: Arch) -> Plan:
        return self._plan(problem, arch, partial=True)

    def _plan(self, problem: Problem, arch: Arch, *, partial: bool) -> Plan:
        from impls.a4q.attention import A4QPlan

        return A4QPlan(problem, arch, rounds_q=self.rounds_q, partial=partial)

    def accumulator_chain(self, problem: Problem) -> int:
        return planner.longest_chain(problem, rounds_q=self.rounds_q)


class A4Q(_A4Q):
    name = "a4q"
    summary = (
        "CUDA: Q rounded to NVFP4 in the kernel, K and V dequantised in registers; wgmma on sm_90a, NVFP4 products on sm_120a"
    )
    rounds_q = True

    def rounds(self, problem: Problem) -> Rounds:
        return {"q": Rounding("nvfp4"), "p": Rounding("float16")}

    def _plan(self, problem: Problem, arch: Arch, *, partial: bool) -> Plan:
        """Native kernels where the tensor cores take NVFP4."""
        if not native.serves(arch):
            return super()._plan(problem, arch, partial=partial)
        from impls.a4q.native.attention import NativePlan

        return NativePlan(problem, arch, partial=partial)

    def accumulator_chain(self, problem: Problem) -> int:
        return max(super().accumulator_chain(problem), native.longest_chain(problem))


class A4QQ16(_A4Q):
    name = "a4q-q16"
    summary = "as a4q, with Q kept in 16 bits"
    rounds_q = False

    def rounds(self, problem: Problem) -> Rounds:
        return {"p": Rounding("float16")}
