"""`sdpa-flash`, `sdpa-cudnn`, `sdpa-efficient`: torch's scaled_dot_product_attention with one CUDA backend each.

The backend's own operator is called, so no other one can answer in its place. It also gives the LSE, and aligns causal
masks as its kernel does: bottom-right in flash and efficient, top-left in cuDNN. K and V are decoded to the queries' dtype.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounds
from impls.peers import refusals, roundings

Backend = Literal["flash", "cudnn", "efficient"]


class _Sdpa(Implementation):
    backend: Backend
    repacks = True

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return refusals.why_not(problem, arch) or self._why_not(problem, arch)

    @abstractmethod
    def _why_not(self, problem: Problem, arch: Arch) -> str | None:
        """What this backend lacks besides."""

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        from impls.peers.sdpa_runner import SdpaPlan

        return SdpaPlan(problem, arch, self.backend)

    def rounds(self, problem: Problem) -> Rounds:
        return roundings.sixteen_bit(problem)


class SdpaFlash(_Sdpa):
    name = "sdpa-flash"
    summary = "torch SDPA, FlashAttention-2 backend, on K and V decoded to 16 bits; head dims up to 256"
    backend = "flash"

    def _why_not(self, problem: Problem, arch: Arch) -> str | None:
        if problem.head_dim > 256:
            return f"torch's flash attention takes head dims up to 256, not {problem.head_dim}."
        return refusals.same_head_dims(problem)


class SdpaCudnn(_Sdpa):
    name = "sdpa-cudnn"
    summary = "torch SDPA, cuDNN backend, on K and V decoded to 16 bits; causal only where queries are as many as keys, or one"
    backend = "cudnn"

    def _why_not(self, problem: Problem, arch: Arch) -> str | None:
        limit = 256 if arch.compute_capability == (9, 0) else 128
        if problem.head_dim > limit:
            return f"torch's cuDNN attention takes head dims up to {limit} on {arch.name}, not {problem.head_dim}."
        if problem.causal and problem.q_len not in (1, problem.kv_len):
            return "torch aligns the causal mask of cuDNN top-left, which is bottom-right only for as many queries as keys."
        return refusals.same_head_dims(problem)


class SdpaEfficient(_Sdpa):
    name = "sdpa-efficient"
    summary = "torch SDPA, memory-efficient (CUTLASS) backend, on K and V decoded to 16 bits; any head dim"
    backend = "efficient"

    def _why_not(self, problem: Problem, arch: Arch) -> str | None:
        return None
