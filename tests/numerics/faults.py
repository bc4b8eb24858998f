"""Implementations with one fault each, built on `torch-reference-bf16`, that the gate must catch.

nvfp4bench gate --on cpu --impl tests/numerics/faults.py:SwappedNibbles
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import torch

from impls.arch import Arch
from impls.contract import Cache, Inputs, Output, Plan, Problem, Rounding, Rounds
from impls.layouts import swap_nibbles
from impls.nvfp4 import NVFP4Tensor, decode
from impls.torch_reference import TorchReference
from impls.torch_reference.attention import TorchRunner
from impls.validation import bind_inputs


class Unfaulted(TorchReference):
    """Right in everything; the faults below change one thing of it."""

    def __init__(self) -> None:
        self.name = type(self).__name__

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return _Plan(self, problem, arch)

    def runner(self, problem: Problem, inputs: Inputs, output: Output) -> TorchRunner:
        return TorchRunner(problem, inputs, output)

    def problem(self, p: Problem) -> Problem:
        return p

    def inputs(self, i: Inputs) -> Inputs:
        return i

    def bound(self, i: Inputs) -> Inputs:
        """What the runner keeps of what it is bound to."""
        return i

    def after(self, i: Inputs, output: Output) -> None:
        """What happens when the result is there."""


class _Plan(Plan):
    def __init__(self, fault: Unfaulted, problem: Problem, arch: Arch) -> None:
        self.fault, self.problem, self.arch = fault, problem, arch

    def bind(
        self,
        q: torch.Tensor,
        cache: Cache,
        *,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        kv_lens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
    ) -> _Runner:
        inputs = Inputs(q, cache.k4, cache.v4, kv_lens, block_table)
        output = bind_inputs(self.problem, inputs, out, lse)
        return _Runner(self.fault, self.problem, self.fault.bound(inputs), output)


class _Runner(TorchRunner):
    def __init__(self, fault: Unfaulted, problem: Problem, inputs: Inputs, output: Output) -> None:
        super().__init__(problem, inputs, output)
        self.fault = fault

    def __call__(self) -> None:
        self.fault.runner(self.fault.problem(self.problem), self.fault.inputs(self.inputs), self.output)()
        self.fault.after(self.inputs, self.output)


# The format


def _with(t: NVFP4Tensor, *, codes: torch.Tensor | None = None, scales: torch.Tensor | None = None) -> NVFP4Tensor:
    """`t` with other bytes."""
    return replace(
        t,
        codes=t.codes if codes is None else codes,
        scales=t.scales if scales is None else scales.view(torch.float8_e4m3fn),
    )


class SwappedNibbles(Unfaulted):
    def inputs(self, i: Inputs) -> Inputs:
        return replace(i, k4=_with(i.k4, codes=swap_nibbles(i.k4.codes)), v4=_with(i.v4, codes=swap_nibbles(i.v4.codes)))


class SwizzledScales(Unfaulted):
    """Takes V's linear scales for trtllm-gen's, in which four tokens are interleaved."""

    def inputs(self, i: Inputs) -> Inputs:
        scales = i.v4.scales.view(torch.uint8)
        tokens, blocks = scales.shape[-2] // 4 * 4, scales.shape[-1]
        tiles = scales[..., :tokens, :].unflatten(-2, (-1, 4)).flatten(-2).unflatten(-1, (blocks, 4)).mT.flatten(-3, -2)
        return replace(i, v4=_with(i.v4, scales=torch.cat((tiles, scales[..., tokens:, :]), dim=-2)))


class SixfoldGlobal(Unfaulted):
    """Takes amax / 448 for the global scale where it is amax / 2688."""

    def inputs(self, i: Inputs) -> Inputs:
        return replace(i, v4=replace(i.v4, global_scale=i.v4.global_scale * 6))


class DividingGlobal(Unfaulted):
    """Takes the decode multiplier of K for a divisor."""

    def inputs(self, i: Inputs) -> Inputs:
        return replace(i, k4=replace(i.k4, global_scale=1 / i.k4.global_scale))


class OneGlobal(Unfaulted):
    """Uses K's global scale for V as well."""

    def inputs(self, i: Inputs) -> Inputs:
        return replace(i, v4=replace(i.v4, global_scale=i.k4.global_scale))


class SignsDropped(Unfaulted):
    def inputs(self, i: Inputs) -> Inputs:
        return replace(i, v4=_with(i.v4, codes=i.v4.codes & 0x77))


class SubnormalScales(Unfaulted):
    """Decodes the subnormal E4M3 scales of K, bytes 1 to 7, as if they had a leading one: 2^-7 (1 + m / 8)."""

    def inputs(self, i: Inputs) -> Inputs:
        scales = i.k4.scales.view(torch.uint8)
        # 2^-7 (1 + m / 8) would be byte m of exponent 0; the nearest that E4M3 has is 2^-6 (1 + m / 8), byte 8 + m
        return replace(i, k4=_with(i.k4, scales=torch.where((scales > 0) & (scales < 8), scales + 8, scales)))


# What is read


class ShiftedV(Unfaulted):
    def inputs(self, i: Inputs) -> Inputs:
        v = i.v4
        return replace(i, v4=_with(v, codes=v.codes.roll(1, -2), scales=v.scales.view(torch.uint8).roll(1, -2)))


class WrongHead(Unfaulted):
    """The last key head reads the first one's V."""

    def inputs(self, i: Inputs) -> Inputs:
        codes, scales = i.v4.codes.clone(), i.v4.scales.view(torch.uint8).clone()
        codes[:, -1], scales[:, -1] = codes[:, 0], scales[:, 0]
        return replace(i, v4=_with(i.v4, codes=codes, scales=scales))


class InterleavedHeads(Unfaulted):
    """Query head h reads key head h % Hkv where h // group is right."""

    def inputs(self, i: Inputs) -> Inputs:
        heads = i.k4.codes.shape[1]
        order = torch.arange(i.q.shape[1]).view(-1, heads).T.flatten()
        return replace(i, q=i.q[:, order.argsort()])


class FirstTable(Unfaulted):
    """Reads the first sequence's pages for all."""

    def inputs(self, i: Inputs) -> Inputs:
        assert i.block_table is not None
        return replace(i, block_table=i.block_table[:1].expand_as(i.block_table))


class IgnoredLens(Unfaulted):
    def problem(self, p: Problem) -> Problem:
        return replace(p, ragged=False)

    def inputs(self, i: Inputs) -> Inputs:
        return replace(i, kv_lens=None)


class ReadAtBind(Unfaulted):
    """Keeps the queries that it was bound to."""

    def bound(self, i: Inputs) -> Inputs:
        return replace(i, q=i.q.clone())


# Masks


class _Masked(TorchRunner):
    def _visible(self, device: torch.device) -> torch.Tensor:
        return self.mask(super()._visible(device))

    def mask(self, visible: torch.Tensor) -> torch.Tensor:
        """visible [B, 1, 1, Sq, Sk]"""
        raise NotImplementedError


class CausalOffByOne(Unfaulted):
    """Query i does not see its own key."""

    class Runner(_Masked):
        def mask(self, visible: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.pad(visible[..., 1:], (0, 1))

    def runner(self, problem: Problem, inputs: Inputs, output: Output) -> TorchRunner:
        return self.Runner(problem, inputs, output)


class CausalTopLeft(Unfaulted):
    """Query i sees keys up to i, whatever the lengths are."""

    class Runner(_Masked):
        def mask(self, visible: torch.Tensor) -> torch.Tensor:
            return torch.ones_like(visible).tril()

    def runner(self, problem: Problem, inputs: Inputs, output: Output) -> TorchRunner:
        return self.Runner(problem, inputs, output)


class DroppedChunk(Unfaulted):
    """The last 64 keys are left out."""

    class Runner(_Masked):
        def mask(self, visible: torch.Tensor) -> torch.Tensor:
            visible = visible.clone()
            visible[..., -64:] = False
            return visible

    def runner(self, problem: Problem, inputs: Inputs, output: Output) -> TorchRunner:
        return self.Runner(problem, inputs, output)


class IgnoredWindow(Unfaulted):
    def problem(self, p: Problem) -> Problem:
        return replace(p, window=None)


class IgnoredScale(Unfaulted):
    def problem(self, p: Problem) -> Problem:
        return replace(p, scale=None)


# Results


class BaseTwoLSE(Unfaulted):
    def after(self, i: Inputs, output: Output) -> None:
        output.lse.div_(0.6931471805599453)


class FiniteLSE(Unfaulted):
    """A row that sees nothing gets a large negative lse."""

    def after(self, i: Inputs, output: Output) -> None:
        output.lse.clamp_(min=-49993)


class ZeroOutput(Unfaulted):
    def after(self, i: Inputs, output: Output) -> None:
        output.out.zero_()


class TruncatedOutput(Unfaulted):
    """Rounds the output towards zero; with float32 numerators, so that nothing else hides it."""

    def rounds(self, problem: Problem) -> Rounds:
        return {}

    class Runner(TorchRunner):
        def __call__(self) -> None:
            weight, total, v = _weights(self)
            exact = weight @ v / total * self.inputs.v4.global_scale
            bits = exact.view(torch.int32) >> 16
            self.output.out.copy_(bits.to(torch.int16).view(torch.bfloat16))

    def runner(self, problem: Problem, inputs: Inputs, output: Output) -> TorchRunner:
        TorchRunner(problem, inputs, output)()
        return self.Runner(problem, inputs, output)


class UnbiasedFloat16(Unfaulted):
    """Rounds softmax numerators to float16 as they are: what is 2^-25 of the largest is lost."""

    def rounds(self, problem: Problem) -> Rounds:
        return {"p": Rounding("float16")}

    class Runner(TorchRunner):
        def __call__(self) -> None:
            weight, total, v = _weights(self)
            self.output.out.copy_(weight.half().float() @ v / total * self.inputs.v4.global_scale)

    def runner(self, problem: Problem, inputs: Inputs, output: Output) -> TorchRunner:
        TorchRunner(problem, inputs, output)()
        return self.Runner(problem, inputs, output)


def _weights(runner: TorchRunner) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(numerators, their sum, V) of a dense, unmasked problem with one key head."""
    i = runner.inputs
    s = i.q.float() @ decode(i.k4).mT * (i.k4.global_scale * runner.problem.softmax_scale)
    weight = torch.exp(s - s.amax(-1, keepdim=True))
    return weight, weight.sum(-1, keepdim=True), decode(i.v4)


class MutatedInput(Unfaulted):
    """Subtracts from K in place, as a kernel that centres K does."""

    def after(self, i: Inputs, output: Output) -> None:
        i.k4.codes.bitwise_xor_(0x11)


class OutsideWriter(Unfaulted):
    """Writes one element past the end of its output."""

    def after(self, i: Inputs, output: Output) -> None:
        past = output.out.as_strided((1,), (1,), output.out.storage_offset() + output.out.numel())
        past.zero_()


class UnwrittenTail(Unfaulted):
    """Leaves the last row as it was."""

    def runner(self, problem: Problem, inputs: Inputs, output: Output) -> TorchRunner:
        before = output.out[..., -1, :].clone()
        TorchRunner(problem, inputs, output)()
        output.out[..., -1, :] = before
        return _Nothing(problem, inputs, output)


class OwnOutput(Unfaulted):
    """Hands out a tensor of its own in place of the one it was given."""

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        class Own(_Plan):
            def bind(self, q: torch.Tensor, cache: Cache, **rest: torch.Tensor | None) -> _Runner:  # type: ignore[override]
                return super().bind(q, cache, **{**rest, "out": None, "lse": None})

        return Own(self, problem, arch)


class _Nothing(TorchRunner):
    def __call__(self) -> None:
        pass


# Hostile


class Raises(Unfaulted):
    def inputs(self, i: Inputs) -> Inputs:
        raise RuntimeError("the kernel could not be launched")


class ReturnsNaN(Unfaulted):
    def after(self, i: Inputs, output: Output) -> None:
        output.out[..., -1] = torch.nan


class Hangs(Unfaulted):
    def inputs(self, i: Inputs) -> Inputs:
        while True:
            time.sleep(1)


class DiesBySignal(Unfaulted):
    def inputs(self, i: Inputs) -> Inputs:
        os.kill(os.getpid(), signal.SIGSEGV)
        return i


class ExitsSilently(Unfaulted):
    def inputs(self, i: Inputs) -> Inputs:
        os._exit(0)


class CannotBePlanned(Unfaulted):
    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return f"{self.name} needs hardware that is not here."


FAULTS = {
    SwappedNibbles: "nibbles",
    SwizzledScales: "unique-blocks",
    SixfoldGlobal: "v-ones",
    DividingGlobal: "globals-differ",
    OneGlobal: "globals-differ",
    SignsDropped: "negative",
    SubnormalScales: "all-codes",
    ShiftedV: "identity-v-square",
    WrongHead: "decode",
    InterleavedHeads: "group-4",
    FirstTable: "paged-hnd-4",
    IgnoredLens: "ragged-not-causal",
    ReadAtBind: "decode",
    CausalOffByOne: "identity-v-extend",
    CausalTopLeft: "extend",
    DroppedChunk: "long-prefix-short-suffix",
    IgnoredWindow: "window",
    IgnoredScale: "softmax-scale",
    BaseTwoLSE: "v-ones",
    FiniteLSE: "rows-see-nothing",
    ZeroOutput: "decode",
    TruncatedOutput: "v-between",
    UnbiasedFloat16: "sink-bfloat16",
    MutatedInput: "decode",
    OutsideWriter: "decode",
    UnwrittenTail: "prefill",
    OwnOutput: "decode",
}
"""Each fault, and a case that shows it."""
