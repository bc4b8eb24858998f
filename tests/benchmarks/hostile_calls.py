"""Implementations whose calls are fast for the wrong reason, or break a promise; right otherwise, on any device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from impls.arch import CPU, Arch
from impls.contract import Cache, Launch, Plan, Problem, Runner, Scalar
from impls.cuda.runner import CompiledRunner
from impls.nvfp4 import dequantize
from impls.torch_reference import TorchReference


class Changed(Runner):
    """A runner of which one thing is different."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.output = runner.output
        self.inputs = runner.inputs  # type: ignore[attr-defined]

    def __call__(self) -> None:
        self.runner()


class Changing(TorchReference):
    """`torch-reference-bf16` with another runner."""

    runner: Callable[[Runner], Runner] = Changed

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        plan = super().plan(problem, arch)
        bind = plan.bind
        plan.bind = lambda *given, **named: self.runner(bind(*given, **named))  # type: ignore[method-assign]
        return plan


class Plain(Changing):
    """Nothing is wrong with it."""

    name = "plain"


class _Cached(Changed):
    kept: torch.Tensor | None = None

    def __call__(self) -> None:
        if self.kept is None:
            self.runner()
            self.kept, self.kept_lse = self.output.out.clone(), self.output.lse.clone()
        self.output.out.copy_(self.kept)
        self.output.lse.copy_(self.kept_lse)


class Caches(Changing):
    """Computes once and copies from then on."""

    name = "caches"
    runner = _Cached


class _LeavesOut(Changed):
    def __call__(self) -> None:
        keep = self.output.out[..., -1:].clone()
        self.runner()
        self.output.out[..., -1:] = keep


class LeavesOut(Changing):
    """Does not write the last dim."""

    name = "leaves-out"
    runner = _LeavesOut


class _Overwrites(Changed):
    def __call__(self) -> None:
        self.runner()
        self.inputs.k4.codes[0, 0, 0, 0] += 1


class Overwrites(Changing):
    """Changes a byte of the cache that it shares with everybody else."""

    name = "overwrites"
    runner = _Overwrites


class _NotCaptured(Changed):
    captured: Callable[[], None] = staticmethod(lambda: None)


class NotCaptured(Changing):
    """Its graph is empty; `FakeClock` knows what that looks like."""

    name = "not-captured"
    runner = _NotCaptured


class _CapturedOld(Changed):
    @property
    def captured(self) -> Callable[[], None]:
        out, lse = self.output.out.clone(), self.output.lse.clone()
        return lambda: (self.output.out.copy_(out), self.output.lse.copy_(lse))  # type: ignore[func-returns-value]


class CapturedOld(Changing):
    """Its graph copies what the captured call computed."""

    name = "captured-old"
    runner = _CapturedOld


class Wrong(TorchReference):
    """Its softmax scale is not the problem's."""

    name = "wrong"

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return super().plan(dataclasses.replace(problem, scale=2.0), arch)


class _Launches(Changed):
    @property
    def launches(self) -> tuple[Launch, ...]:
        arguments = (self.output.out, Scalar("f32", 0.5), None)
        return (Launch("", b"cubin", "attend", (3, 2, 1), (128, 1, 1), 64, arguments, overlaps=True),)


class _Joined(CompiledRunner):
    """As `Plain`, with three launches."""

    entries = ("attend", "attend", "join")

    def __init__(self, runner: Runner) -> None:
        launches = [Launch("", b"", entry, (1, 1, 1), (32, 1, 1), 0, (runner.output.out,)) for entry in self.entries]
        super().__init__(runner.output, launches, CPU)
        self._runner = runner

    def __call__(self) -> None:
        self._runner()


class _JoinedOnce(_Joined):
    entries = ("attend",)


class Joined(Changing):
    name = "joined"
    runner = _Joined


class JoinedOnce(Changing):
    name = "joined-once"
    runner = _JoinedOnce


class Converts(Changing):
    """Lays the cache out anew, states its launches, and takes a workspace."""

    name = "converts"
    runner = _Launches

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        plan = super().plan(problem, arch)
        dense = lambda cache: dequantize(cache, torch.bfloat16)  # noqa: E731
        plan.pack = lambda k4, v4: Cache(k4, v4, {"k": dense(k4), "v": dense(v4)}, "bfloat16 dense")  # type: ignore[method-assign]
        return plan
