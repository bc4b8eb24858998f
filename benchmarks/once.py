"""One call of one cell's kernels in this process: for profilers and sanitizers, and to see whether the output is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.cells import CellSpec, find
from benchmarks.data import device_inputs, largest_value
from benchmarks.measure_host import random_inputs
from benchmarks.operations import implementation
from benchmarks.subjects import subject
from impls.contract import Implementation, Inputs, Output, Problem, Unsupported
from impls.host import arch_of
from impls.registry import implementation as registered

CHECKED_ROWS = 64
"""Query rows compared with the reference; float64 attention over all of a long prefill would take hours."""


@dataclass(frozen=True)
class Launched:
    """What was called."""

    kernels: tuple[str, ...]
    """Entry points in the order of their launches; empty for implementations made of torch calls."""
    check: Callable[[], tuple[dict[str, Any], str | None]]
    """(errors as JSON data, why they do not hold: one sentence, None where all is right) of what was written."""


def launch_once(spec: CellSpec, device: str) -> Launched:
    """Plan, pack, bind and call once on `device`, "cuda" or "cpu". Raises Unsupported with the implementation's reason."""
    if spec.workload.operation != "attention":
        return _launch_subject(spec, device)
    chosen = registered(spec.source)
    problem = _problem(spec)
    _refuse(chosen, problem, device)
    inputs = _inputs(spec, problem, device)
    plan = chosen.plan(problem, arch_of(device))
    cache = plan.pack(inputs.k4, inputs.v4)
    runner = plan.bind(inputs.q, cache, kv_lens=inputs.kv_lens, block_table=inputs.block_table)
    _call(runner, device)
    return Launched(_entries(runner), lambda: _check(chosen, problem, inputs, runner.output))


def _launch_subject(spec: CellSpec, device: str) -> Launched:
    import torch

    chosen = implementation(spec.source)
    problem = spec.workload.problem(*spec.values)
    _refuse(chosen, problem, device)
    on = subject(problem, torch.device(device, 0) if device == "cuda" else torch.device(device))
    plan = chosen.plan(problem, arch_of(device))
    runner = on.bind(plan, on.pack(plan))
    _call(runner, device)

    def check() -> tuple[dict[str, Any], str | None]:
        numerics, why_wrong = on.check(chosen, on.written(runner))
        return {**numerics, "out_over_bound": numerics["error_over_bound"]}, why_wrong

    return Launched(_entries(runner), check)


def _refuse(chosen: Any, problem: Any, device: str) -> None:
    reason = chosen.why_not(problem, arch_of(device))
    if reason is not None:
        raise Unsupported(reason)


def _call(runner: Any, device: str) -> None:
    runner()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()  # a fault of the kernel shows here, not at whatever comes next


def _entries(runner: Any) -> tuple[str, ...]:
    return tuple(launch.entry for launch in runner.launches)


def _check(chosen: Implementation, problem: Problem, inputs: Inputs, output: Output) -> tuple[dict[str, Any], str | None]:
    """As `Launched.check`, against float64 attention with the declared roundings, over at most 64 query rows.

    For the random problems of the latency and host workloads; a numerics cell is checked whenever it is measured.
    """
    import torch

    from impls.numerics.bounds import declared_bound
    from impls.numerics.measure import why_wrong
    from impls.numerics.metrics import errors
    from impls.reference import reference_attention

    count = min(problem.q_len, CHECKED_ROWS)
    rows = torch.linspace(0, problem.q_len - 1, count, device=inputs.q.device).round().long()
    reference = reference_attention(problem, inputs, rows=rows, rounds=chosen.rounds(problem))
    bound = declared_bound(chosen, problem, reference, v_max=largest_value(inputs.v4))
    compared = Output(output.out[:, :, rows], output.lse[:, :, rows])
    found = errors(compared.out, compared.lse, reference, bound)
    return dataclasses.asdict(found), why_wrong(compared, reference, bound, found)


def answer_check(request: Mapping[str, Any]) -> dict[str, Any]:
    """{"kernels", "errors", "why_wrong"} of the cell {"id", "impl", "source", "device"}: launched once and checked.

    For a worker.
    """
    launched = launch_once(find(request["id"], {request["impl"]: request["source"]}), request["device"])
    errors, why = launched.check()
    return {"kernels": launched.kernels, "errors": errors, "why_wrong": why}


def _problem(spec: CellSpec) -> Problem:
    if spec.suite == "numerics":
        from impls.numerics.cases import CASES

        return CASES[spec.parameters["case"]].problem
    return spec.workload.attention(**spec.parameters)


def _inputs(spec: CellSpec, problem: Problem, device: str) -> Inputs:
    if spec.suite == "numerics":
        import torch

        from impls.numerics.cases import CASES
        from impls.numerics.data import build, to_device

        return to_device(build(CASES[spec.parameters["case"]]).inputs, torch.device(device))
    return device_inputs(problem, device) if spec.suite == "latency" else random_inputs(problem, device)
