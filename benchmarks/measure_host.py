"""Host costs of one implementation on one problem, on the CPU. Runs in a worker process.

    plan       deciding tiles and splits, and finding the compiled kernels again
    pack       laying the cache out
    bind       checking the tensors and fixing their addresses
    call       one call of the runner; on the CPU this includes the computing itself

The first plan of the problem, which compiles, is told apart from the later ones: `compile_seconds`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.cells import workloads
from impls.contract import Inputs, Problem, Unsupported
from impls.registry import implementation

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
WARM_UPS = 3


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Measure {"impl", "head_dim", "kv_len"}: {"series": {name: seconds}, "prepare_seconds", "compile_seconds", "plan"}.

    Raises Unsupported where the implementation cannot do the problem on the CPU.
    """
    from impls.arch import CPU

    chosen = implementation(request["impl"])
    problem = workloads()["host"].attention(request["head_dim"], request["kv_len"])
    reason = chosen.why_not(problem, CPU)
    if reason is not None:
        raise Unsupported(f"its host costs are not measured on a CPU: {Unsupported(reason)}")
    inputs, prepare_seconds = timed(lambda: random_inputs(problem, "cpu"))
    plan, compile_seconds = timed(lambda: chosen.plan(problem, CPU))
    cache = plan.pack(inputs.k4, inputs.v4)
    runner = plan.bind(inputs.q, cache)
    return {
        "series": {
            "plan": sample(lambda: chosen.plan(problem, CPU)),
            "pack": sample(lambda: plan.pack(inputs.k4, inputs.v4)),
            "bind": sample(lambda: plan.bind(inputs.q, cache)),
            "call": sample(runner),
        },
        "prepare_seconds": prepare_seconds,
        "compile_seconds": compile_seconds,
        "plan": plan.describe(),
    }


def random_inputs(problem: Problem, device: str) -> Inputs:
    """Standard normal data of a dense problem, the same on every machine."""
    import torch

    from impls.nvfp4 import quantize

    generator = torch.Generator().manual_seed(0)

    def normal(heads: int, tokens: int, dim: int) -> torch.Tensor:
        return torch.randn(problem.batch, heads, tokens, dim, generator=generator).to(device)

    q = normal(problem.q_heads, problem.q_len, problem.head_dim).to(getattr(torch, problem.dtype))
    k4 = quantize(normal(problem.kv_heads, problem.kv_len, problem.head_dim))
    v4 = quantize(normal(problem.kv_heads, problem.kv_len, problem.v_head_dim), block_axis=problem.v_block_axis)
    return Inputs(q, k4, v4)


def sample(function: Callable[[], object]) -> list[float]:
    """Seconds of single calls, after warm-up and without garbage collection in between."""
    warm = [timed(function)[1] for _ in range(WARM_UPS)][-1]
    collecting = gc.isenabled()
    gc.disable()
    try:
        return [timed(function)[1] for _ in range(sample_count(warm))]
    finally:
        if collecting:
            gc.enable()


def sample_count(seconds: float) -> int:
    """20 samples of what takes below 10 ms, 10 below 100 ms, else 5."""
    return 20 if seconds < 0.01 else 10 if seconds < 0.1 else 5


def timed(function: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter_ns()
    result = function()
    return result, (time.perf_counter_ns() - start) / 1e9
