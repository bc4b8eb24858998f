"""`a4q` with one fault each in its PTX or its launches, that the emulated gate must catch.

nvfp4bench gate --on emulated:sm_120a --impl tests/numerics/kernel_faults.py:NoBarriers
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from impls.a4q import A4Q
from impls.arch import Arch
from impls.contract import Cache, Launch, Output, Plan, Problem, Runner
from impls.nvfp4 import NVFP4Tensor


class Unedited(A4Q):
    """Right; the faults below change one thing of it."""

    def __init__(self) -> None:
        self.name = type(self).__name__

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return _Plan(super().plan(problem, arch), self)

    def edit(self, launch: Launch) -> Launch:
        return launch


class _Plan(Plan):
    def __init__(self, plan: Plan, fault: Unedited) -> None:
        self.plan, self.fault, self.problem, self.arch = plan, fault, plan.problem, plan.arch

    def pack(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
        return self.plan.pack(k4, v4)

    def bind(self, *args: Any, **kwargs: Any) -> Runner:
        bound = self.plan.bind(*args, **kwargs)
        return _Runner(bound.output, tuple(map(self.fault.edit, bound.launches)))


class _Runner(Runner):
    def __init__(self, output: Output, launches: tuple[Launch, ...]) -> None:
        self.output, self._launches = output, launches

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self._launches

    def __call__(self) -> None:
        raise AssertionError("the emulator executes launches, and calls no runner.")


class _Rewritten(Unedited):
    """Every match of `pattern` becomes `by`."""

    pattern: str
    by: str

    def edit(self, launch: Launch) -> Launch:
        ptx, count = re.subn(self.pattern, self.by, launch.ptx)
        assert count, f"the kernel has no {self.pattern}; this fault has to be made anew."
        return replace(launch, ptx=ptx)


class NoBarriers(_Rewritten):
    pattern, by = r"\bbar(rier)?\.sync\b[^;]*;", ""


class SwappedRows(_Rewritten):
    """The first two registers of every left operand change places, rows 0 to 7 and 8 to 15 of a fragment."""

    pattern, by = r"(\bmma\.sync[^;{]*\{[^}]*\},\s*\{\s*)(%\w+),\s*(%\w+)", r"\1\3, \2"


class ForeignInstruction(_Rewritten):
    """What the emulator has never heard of."""

    pattern, by = r"\bret;", "frobnicate.sync.aligned; ret;"


class InClusters(Unedited):
    """Blocks that are launched in pairs."""

    def edit(self, launch: Launch) -> Launch:
        return replace(launch, cluster=(2, 1, 1))


class MissingBlock(Unedited):
    """One block too few is launched."""

    def edit(self, launch: Launch) -> Launch:
        return replace(launch, grid=(launch.grid[0] - 1, *launch.grid[1:]))


class NoKernels(Unedited):
    """What it launches is nowhere listed."""

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        plan = super().plan(problem, arch)
        bind = plan.bind
        plan.bind = lambda *args, **kwargs: _Runner(bind(*args, **kwargs).output, ())  # type: ignore[method-assign]
        return plan
