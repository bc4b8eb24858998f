"""The cases of `tests.triton.cases` by `smem-unpack`."""

from __future__ import annotations

from dataclasses import replace

import torch

from impls.arch import Arch
from impls.contract import Inputs, Runner
from impls.host import arch_of
from impls.smem_unpack import SmemUnpack
from impls.smem_unpack.attention import SmemUnpackPlan
from tests.triton.cases import CASES, Case, bind_plan, compare, make_inputs

IMPL = SmemUnpack()


def names(arch: Arch) -> list[str]:
    """The cases but for those that do not fit the shared memory of `arch`."""
    return [name for name, case in CASES.items() if IMPL.why_not(case.problem, arch) is None]


def plan(case: Case, arch: Arch) -> SmemUnpackPlan:
    """With the case's number of splits, if it has one."""
    made = SmemUnpackPlan(case.problem, arch)
    if "splits" in case.schedule:
        made.schedule = replace(made.schedule, splits=case.schedule["splits"])
        made.kernels()
    return made


def bind(case: Case, inputs: Inputs, device: torch.device) -> Runner:
    return bind_plan(plan(case, arch_of(device)), case, inputs, device)


def run(case: Case, device: torch.device) -> dict[str, float]:
    inputs = make_inputs(case, device)
    runner = bind(case, inputs, device)
    runner()
    return compare(case.problem, inputs, runner.output, max(case.problem.kv_len, 1), IMPL.rounds(case.problem))
