"""`flashinfer-*`: FlashInfer's batch prefill kernels over pages, used for decode too, as tensor cores want it.

A dense cache is laid out in pages of 64 tokens, in order. FlashInfer compiles a kernel for each dtype and head dim when it
is first planned (`plan`, which needs nvcc and no GPU), and schedules on the host what `bind` fixes.

Its LSE is to base 2. One launch of ours turns it to base e at the end of every call, on the call's time: about 1 us.

FlashInfer 0.7.0 rounds the softmax numerators to the queries' dtype. It also rounds the partial outputs of a split context
to it, and multiplies the global scale of V onto an output that is rounded already. These two are no terms of the error bound:
where one key outweighs all, numerators are exact and leave the room that the bound gives them; where many count, errors cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Rounding, Rounds
from impls.peers import flashinfer_library, refusals, roundings


@dataclass(frozen=True)
class Kernel:
    """Which of FlashInfer's kernels, and on what."""

    backend: Literal["fa2", "fa3"]
    cache: Literal["16-bit", "float8_e4m3fn", "nvfp4"]
    head_dims: tuple[int, ...]


class _FlashInfer(Implementation):
    kernel: Kernel
    repacks = True

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        missing = flashinfer_library.why_not() if arch.is_gpu else None
        return (
            missing
            or refusals.why_not(problem, arch)
            or refusals.same_head_dims(problem)
            or self._why_not_head_dim(problem)
            or self._why_not(problem, arch)
        )

    def _why_not_head_dim(self, problem: Problem) -> str | None:
        if problem.head_dim not in self.kernel.head_dims:
            *most, last = map(str, self.kernel.head_dims)
            return f"{self.name} takes head dims {', '.join(most)} and {last}, not {problem.head_dim}."
        return None

    def _why_not(self, problem: Problem, arch: Arch) -> str | None:
        """What this kernel lacks besides."""
        return None

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        from impls.peers.flashinfer_runner import FlashInferPlan

        return FlashInferPlan(problem, arch, self.kernel)

    def rounds(self, problem: Problem) -> Rounds:
        return roundings.sixteen_bit(problem)


class FlashInferBf16(_FlashInfer):
    name = "flashinfer-bf16"
    summary = "FlashInfer FA2 over pages, K and V decoded to 16 bits (the queries' dtype)"
    kernel = Kernel("fa2", "16-bit", (64, 128, 256, 512))  # 0.7.0 compiles 192 and then says "Unsupported head_dim"


class FlashInferFa3(_FlashInfer):
    name = "flashinfer-fa3-bf16"
    summary = "FlashInfer FA3 (Hopper) over pages, K and V decoded to 16 bits; more than one query"
    kernel = Kernel("fa3", "16-bit", (64, 128, 256))

    def _why_not(self, problem: Problem, arch: Arch) -> str | None:
        if arch.compute_capability != (9, 0):
            return f"FlashInfer's FA3 kernels are for sm_90a alone, not for {arch.name}."
        if problem.q_len == 1:
            return "FlashInfer's FA3 kernels do not split the context; for one query there is flashinfer-bf16."
        return None


class FlashInferFp8(_FlashInfer):
    name = "flashinfer-fp8"
    summary = "FlashInfer FA2 over pages, K and V rounded to E4M3 without scales, products in 16 bits"
    kernel = Kernel("fa2", "float8_e4m3fn", (64, 128, 256))

    def rounds(self, problem: Problem) -> Rounds:
        cache = Rounding("float8_e4m3")
        return {"k": cache, "v": cache, "p": roundings.numerators(problem)}


class FlashInferNvfp4(_FlashInfer):
    name = "flashinfer-nvfp4-paged"
    summary = "FlashInfer FA2 over pages of NVFP4: K and V dequantised in the loop, products in 16 bits"
    kernel = Kernel("fa2", "nvfp4", (64, 128, 256, 512))
    # 64-wide heads, seen on an H200 with 0.7.0: 128 causal queries give an LSE 379 times its bound off, 30 queries against a
    # longer cache an output 14 % off; one query is right.  flashinfer-ai/flashinfer#4748 tells of the same on sm_80.

    def _why_not(self, problem: Problem, arch: Arch) -> str | None:
        if problem.v_block_axis != -1:
            return "FlashInfer reads V in blocks along the head dim, not along the tokens."
        if problem.head_dim == 64 and problem.q_len > 1:
            return "FlashInfer 0.7.0 attends wrongly to an NVFP4 cache of 64-wide heads where there is more than one query."
        return None

    def rounds(self, problem: Problem) -> Rounds:
        """Codes times scales are exact in 16 bits, and the global scales stay outside."""
        return {"p": roundings.numerators(problem)}
