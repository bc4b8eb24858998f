"""Implementations that misbehave, for sweeps: found as path/to/hostile.py:Class."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path

from impls.arch import Arch
from impls.contract import Plan, Problem, Runner, Unsupported
from impls.torch_reference import TorchReference


class Raises(TorchReference):
    name = "raises"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        raise RuntimeError("no kernel in /home/somebody/.cache/kernels/attention.cubin\nmore lines")


class Hangs(TorchReference):
    name = "hangs"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        while True:
            time.sleep(60)


class Crashes(TorchReference):
    name = "crashes"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        os.kill(os.getpid(), signal.SIGSEGV)
        return None


class Quits(TorchReference):
    name = "quits"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        os._exit(0)


class QuitsLate(TorchReference):
    """Ends the process with status 0 where it should have computed."""

    name = "quits-late"

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        os._exit(0)


class RaisesLate(TorchReference):
    name = "raises-late"

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        raise KeyError("no such tile")


class Named(TorchReference):
    name = "a b/c"


class Punctuated(TorchReference):
    """asv has one class name for it and for the built-in one."""

    name = "torch.reference-bf16"


class OutOfMemory(TorchReference):
    name = "out-of-memory"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        raise MemoryError


class Refuses(TorchReference):
    name = "refuses"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return "it does not want to."


class NoPlan(TorchReference):
    """Its records would hold what no journal may."""

    name = "no-plan"

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        plan = super().plan(problem, arch)
        plan.describe = lambda: {"tiles": [1, 2]}  # type: ignore[assignment, method-assign, return-value, dict-item]
        return plan


class Talks(TorchReference):
    """Its plan describes itself at more length than a journal's line has."""

    name = "talks"

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        plan = super().plan(problem, arch)
        plan.describe = lambda: {"story": "long " * 1_000_000}  # type: ignore[method-assign]
        return plan


class Explains(TorchReference):
    name = "explains"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return "because " * 1_000_000


class Mumbles(TorchReference):
    """Its reason is a folder of this host and nothing else."""

    name = "mumbles"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        raise Unsupported("/home/somebody/kernels/")


class ReturnsNaN(TorchReference):
    name = "nan"

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        plan = super().plan(problem, arch)
        bind = plan.bind
        plan.bind = lambda *given, **named: _Poisons(bind(*given, **named))  # type: ignore[method-assign]
        return plan


class _Poisons(Runner):
    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.output = runner.output

    def __call__(self) -> None:
        self.runner()
        self.output.out.fill_(float("nan"))


class Wrong(TorchReference):
    """Its softmax scale is not the problem's."""

    name = "wrong"

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return super().plan(dataclasses.replace(problem, scale=2.0), arch)


class Waits(TorchReference):
    """Stops at the fourth cell for as long as the file $HOLD is there."""

    name = "waits"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        while problem.head_dim == 256 and Path(os.environ["HOLD"]).exists():
            time.sleep(0.02)
        return f"head dim {problem.head_dim} with {problem.kv_len} tokens is refused."
