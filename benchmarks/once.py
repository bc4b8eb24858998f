"""One call of one cell's kernels in this process: for profilers and sanitizers, and to see whether the output is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.cells import CellSpec, find
from benchmarks.operations import implementation
from benchmarks.subject import Subject
from benchmarks.subjects import subject
from impls.contract import Unsupported
from impls.host import arch_of


def launch_once(spec: CellSpec, device: str) -> tuple[str, ...]:
    """Plan, pack, bind and call once on `device`, "cuda" or "cpu". Raises Unsupported with the implementation's reason.

    The entry points of its kernels in the order of their launches; none for implementations made of torch calls.
    """
    chosen = implementation(spec.source)
    runner = _call_case(spec, chosen, device) if spec.suite == "numerics" else _call_subject(spec, chosen, device)[1]
    return _entries(runner)


def answer_check(request: Mapping[str, Any]) -> dict[str, Any]:
    """{"kernels", "numerics", "why_wrong"} of the cell {"id", "impl", "source", "device"}: called once and checked.

    By the data and the bounds that cells which are timed are checked by. A numerics cell is checked whenever it is measured,
    and not here. For a worker.
    """
    spec = find(request["id"], {request["impl"]: request["source"]})
    chosen = implementation(spec.source)
    on, runner = _call_subject(spec, chosen, request["device"])
    numerics, why_wrong = on.check(chosen, on.written(runner))
    return {"kernels": _entries(runner), "numerics": numerics, "why_wrong": why_wrong}


def _call_subject(spec: CellSpec, chosen: Any, device: str) -> tuple[Subject, Any]:
    """The data, and the runner that was called on it."""
    import torch

    problem = spec.workload.problem(*spec.values)
    _refuse(chosen, problem, device)
    on = subject(problem, torch.device(device, 0) if device == "cuda" else torch.device(device))
    plan = chosen.plan(problem, arch_of(device))
    runner = on.bind(plan, on.pack(plan))
    _call(runner, device)
    return on, runner


def _call_case(spec: CellSpec, chosen: Any, device: str) -> Any:
    """The runner that was called on a case of the numerics suite."""
    import torch

    from impls.numerics.cases import CASES
    from impls.numerics.data import build, to_device

    case = CASES[spec.parameters["case"]]
    _refuse(chosen, case.problem, device)
    inputs = to_device(build(case).inputs, torch.device(device))
    plan = chosen.plan(case.problem, arch_of(device))
    cache = plan.pack(inputs.k4, inputs.v4)
    runner = plan.bind(inputs.q, cache, kv_lens=inputs.kv_lens, block_table=inputs.block_table)
    _call(runner, device)
    return runner


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
