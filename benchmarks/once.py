"""One call of one cell's kernels in this process: for profilers and sanitizers, and to see whether the output is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.cells import CellSpec, find
from benchmarks.data import device_inputs, largest_value
from benchmarks.measure_host import random_inputs
from impls.contract import Implementation, Inputs, Output, Problem, Unsupported
from impls.registry import implementation

if TYPE_CHECKING:
    from impls.numerics.metrics import Errors

CHECKED_ROWS = 64
"""Query rows compared with the reference; float64 attention over all of a long prefill would take hours."""


@dataclass(frozen=True)
class Launched:
    """What was called, and what it wrote."""

    implementation: Implementation
    problem: Problem
    inputs: Inputs
    output: Output
    kernels: tuple[str, ...]
    """Entry points in the order of their launches; empty for implementations made of torch calls."""


def launch_once(spec: CellSpec, device: str) -> Launched:
    """Plan, pack, bind and call once on `device`, "cuda" or "cpu". Raises Unsupported with the implementation's reason."""
    from impls.host import arch_of

    chosen = implementation(spec.source)
    problem = _problem(spec)
    arch = arch_of(device)
    reason = chosen.why_not(problem, arch)
    if reason:
        raise Unsupported(reason)
    inputs = _inputs(spec, problem, device)
    plan = chosen.plan(problem, arch)
    cache = plan.pack(inputs.k4, inputs.v4)
    runner = plan.bind(inputs.q, cache, kv_lens=inputs.kv_lens, block_table=inputs.block_table)
    runner()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()  # a fault of the kernel shows here, not at whatever comes next
    return Launched(chosen, problem, inputs, runner.output, tuple(launch.entry for launch in runner.launches))


def check(launched: Launched) -> tuple[Errors, str | None]:
    """(errors, why they do not hold) of the output against float64 attention with the declared roundings.

    Over at most 64 query rows; the second is one sentence, None where all is right.

    For the random problems of the latency and host workloads; a numerics cell is checked whenever it is measured.
    """
    import torch

    from impls.contract import EXACT
    from impls.numerics.bounds import error_bound
    from impls.numerics.measure import why_wrong
    from impls.numerics.metrics import errors
    from impls.reference import reference_attention

    problem, inputs, output = launched.problem, launched.inputs, launched.output
    rounds = launched.implementation.rounds(problem)
    count = min(problem.q_len, CHECKED_ROWS)
    rows = torch.linspace(0, problem.q_len - 1, count, device=inputs.q.device).round().long()
    reference = reference_attention(problem, inputs, rows=rows, rounds=rounds)
    chain = launched.implementation.accumulator_chain(problem)
    bound = error_bound(
        problem,
        reference,
        p=rounds.get("p", EXACT),
        partial=rounds.get("partial", EXACT),
        chain=chain,
        v_max=largest_value(inputs.v4),
    )
    compared = Output(output.out[:, :, rows], output.lse[:, :, rows])
    found = errors(compared.out, compared.lse, reference, bound)
    return found, why_wrong(compared, reference, bound, found)


def answer_check(request: Mapping[str, Any]) -> dict[str, Any]:
    """{"kernels", "errors", "why_wrong"} of the cell {"id", "impl", "source", "device"}: launched once and checked.

    For a worker.
    """
    launched = launch_once(find(request["id"], {request["impl"]: request["source"]}), request["device"])
    found, why = check(launched)
    return {"kernels": launched.kernels, "errors": dataclasses.asdict(found), "why_wrong": why}


def _problem(spec: CellSpec) -> Problem:
    if spec.suite == "numerics":
        from impls.numerics.cases import CASES

        return CASES[spec.parameters["case"]].problem
    return spec.workload.problem(**spec.parameters)


def _inputs(spec: CellSpec, problem: Problem, device: str) -> Inputs:
    if spec.suite == "numerics":
        import torch

        from impls.numerics.cases import CASES
        from impls.numerics.data import build, to_device

        return to_device(build(CASES[spec.parameters["case"]]).inputs, torch.device(device))
    return device_inputs(problem, device) if spec.suite == "latency" else random_inputs(problem, device)
