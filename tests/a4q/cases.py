"""The cases of `tests.triton.cases` by `a4q` and `a4q-q16`, but for those that they refuse."""

from __future__ import annotations

from dataclasses import replace

import torch

from impls.a4q.attention import A4QPlan
from impls.arch import Arch, find
from impls.contract import Implementation, Inputs, Runner
from impls.host import arch_of
from impls.registry import implementation
from tests.triton.cases import CASES, Case, bind_plan, compare, make_inputs

IMPLS = ("a4q", "a4q-q16")
NAMES = [
    (impl, name)
    for impl in IMPLS
    for name in CASES
    if implementation(impl).why_not(CASES[name].problem, find("sm_90a")) is None
]


def plan(chosen: Implementation, case: Case, arch: Arch) -> A4QPlan:
    """With the case's number of splits, if it has one."""
    made = chosen.plan(case.problem, arch)
    assert isinstance(made, A4QPlan)
    if "splits" in case.schedule:
        made.schedule = replace(made.schedule, splits=case.schedule["splits"])
        made.kernels()
    return made


def bind(chosen: Implementation, case: Case, inputs: Inputs, device: torch.device) -> Runner:
    return bind_plan(plan(chosen, case, arch_of(device)), case, inputs, device)


def run(chosen: Implementation, case: Case, device: torch.device, inputs: Inputs | None = None) -> dict[str, float]:
    inputs = inputs or make_inputs(case, device)
    runner = bind(chosen, case, inputs, device)
    runner()
    return compare(case.problem, inputs, runner.output, max(case.problem.kv_len, 1), chosen.rounds(case.problem))


def assert_holds(found: dict[str, float]) -> str:
    """The figures, as a line."""
    told = "  ".join(f"{key} {value:.3g}" for key, value in found.items())
    assert found["out_over_bound"] <= 1 and found["lse_over_bound"] <= 1 and found["bad_empty_rows"] == 0, told
    return told
