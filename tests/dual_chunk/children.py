"""Functions that worker processes run: with TRITON_INTERPRET=1 they interpret the kernels, without it they compile them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.inspection import without_memory
from impls.arch import CPU as ARCH_CPU
from impls.arch import find
from impls.contract import Problem
from impls.cuda.emulation.launches import run_emulated
from impls.dual_chunk import DualChunkAttention
from impls.dual_chunk.attention import DualChunkPlan
from impls.reference import reference_attention
from impls.registry import implementation
from impls.triton.attention import TritonPlan
from tests.dual_chunk.behaviours import BEHAVIOURS
from tests.dual_chunk.bias import measure
from tests.dual_chunk.cases import CASES, run
from tests.triton.cases import Case, make_inputs

CPU = torch.device("cpu")


def run_case(request: dict[str, Any]) -> dict[str, float]:
    return run(CASES[request["case"]], CPU)


def run_behaviour(request: dict[str, Any]) -> None:
    BEHAVIOURS[request["behaviour"]](CPU)


def compile_plan(request: dict[str, Any]) -> dict[str, Any]:
    """Shared bytes of the kernels that the passes of `problem` compile to, and what the plan says."""
    chosen, problem, arch = implementation(request["impl"]), Problem(**request["problem"]), find(request["arch"])
    reason = chosen.why_not(problem, arch)
    assert reason is None, reason
    plan = chosen.plan(problem, arch)
    assert isinstance(plan, DualChunkPlan)
    inner = [plan.inner_plan(tile, one) for tile in plan.chunks.tiles for one in tile.passes]
    shared = {each.shared_bytes for one in inner if isinstance(one, TritonPlan) for each in one.kernels()}
    return {"shared": sorted(shared), "workspace": plan.workspace_bytes, "plan": plan.describe()}


def launches(request: dict[str, Any]) -> list[str]:
    """Entries of what a runner for `arch` would launch, in order, bound to tensors on the CPU."""
    case = CASES[request["case"]]
    inputs = make_inputs(case.given, CPU)
    plan = case.chosen.plan(case.given.problem, find(request["arch"]))
    runner = plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4), kv_lens=inputs.kv_lens, block_table=inputs.block_table)
    return [launch.entry for launch in runner.launches]


def shared_memory(request: dict[str, Any]) -> list[int]:
    """Bytes of the tensors written by two runners of one plan for `arch`, and of those that both write, outputs apart."""
    case = CASES[request["case"]]
    inputs = make_inputs(case.given, CPU)
    plan = case.chosen.plan(case.given.problem, find(request["arch"]))
    runners = [
        plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4), kv_lens=inputs.kv_lens, block_table=inputs.block_table)
        for _ in range(2)
    ]
    given = {x.untyped_storage().data_ptr() for x in (inputs.q, inputs.k4.codes, inputs.k4.scales, inputs.v4.codes)}
    given |= {x.untyped_storage().data_ptr() for x in (inputs.v4.scales, inputs.k4.global_scale, inputs.v4.global_scale)}
    used = []
    for runner in runners:
        tensors = [x for launch in runner.launches for x in launch.args if isinstance(x, torch.Tensor)]
        sizes = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
        used.append({place: size for place, size in sizes.items() if place not in given})
    return [sum(used[0].values()), sum(size for place, size in used[0].items() if place in used[1])]


class _Allocated(TorchDispatchMode):
    """Bytes of the memory of its own that torch's operators make."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and not func.is_view:
            self.nbytes += made.untyped_storage().nbytes()
        return made


def workspace(request: dict[str, Any]) -> list[int]:
    """Bytes that binding allocates besides the outputs, counted, and as the plan says."""
    problem = Problem(**request["problem"])
    plan = implementation(request["impl"]).plan(problem, find(request["arch"]))
    inputs = without_memory(problem)
    with _Allocated() as allocated:
        output = plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4)).output
    return [allocated.nbytes - sum(x.numel() * x.element_size() for x in (output.out, output.lse)), plan.workspace_bytes]


def drift(request: dict[str, Any]) -> list[float]:
    """The bias of one chain, then of chunks, in a small problem."""
    problem = Problem(1, 1, 1, 1, 1024, 16, 32)
    return [found.bias for found in measure(problem, ARCH_CPU, (256, 100))]


def means(request: dict[str, Any]) -> dict[str, float]:
    """What the emulator makes of chunks for queries of zeros, which ask for the mean of the values that they see: the largest
    relative error of float32 results, and that of lse. All numerators are 1, which rounding them to float16 leaves."""
    problem, arch = Problem(**request["problem"]), find(request["arch"])
    chosen = DualChunkAttention("chunks", implementation(request["inner"]), request["longest"])
    reason = chosen.why_not(problem, arch)
    assert reason is None, reason
    inputs = make_inputs(Case("means", request["problem"]), CPU)
    inputs.q.zero_()
    inputs.v4.codes.bitwise_and_(0x77)  # no value is negative, so none of the means is small
    plan = chosen.plan_partial(problem, arch)
    shape, gap = (problem.batch, problem.q_heads, problem.q_len, problem.v_head_dim), request["gap"]
    out = torch.full((*shape[:-1], shape[-1] + gap), torch.nan)[..., : shape[-1]]
    runner = plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4), out=out)
    run_emulated(runner.launches, arch, schedules=("forward",))
    exact = reference_attention(problem, inputs)
    off = (runner.output.out.double() - exact.out).abs() / exact.out.abs()
    entries = [launch.entry for launch in runner.launches]
    return {
        "out": float(off.max()),
        "lse": float((runner.output.lse.double() - exact.lse).abs().max()),
        "attend": sum(entry.startswith("a4q_") and entry != "a4q_combine" for entry in entries),
        "combine": entries.count("a4q_combine"),
        "fold": entries.count("fold"),
    }
