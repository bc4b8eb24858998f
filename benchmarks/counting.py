"""What the kernels of a call do, counted by the emulator of PTX. Runs in a worker process, on any machine.

The operands are made of whole numbers and powers of two alone, so that every host has the same, bit for bit: kernels branch on
what they read, and equal sources and compilers have to give equal counters.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from benchmarks.cells import SHAPES, CellSpec
from benchmarks.inspection import launches
from benchmarks.records import CounterRecord
from benchmarks.work import nvfp4_bytes
from impls.arch import Arch, find
from impls.contract import Inputs, Launch, Problem, Unsupported

if TYPE_CHECKING:
    import torch

    from impls.cuda.emulator.counting.counters import Counters
    from impls.nvfp4 import NVFP4Tensor

FUNCTION = "benchmarks.counting:answer"
SECONDS = 600.0
"""That one call may take, compiling included."""
GLOBAL_SCALE = 2.0**-3
"""With block scales of 2 and 4, and all codes alike, elements are about 1 in size."""


def request_of(spec: CellSpec) -> dict[str, Any]:
    """The question that `answer` takes, of a cell of counters."""
    return {"impl": spec.source, "kind": spec.workload.name.partition("-")[2], **spec.parameters}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """{"counters", "rules", "work"} of the call {"impl", "kind", "arch", "head_dim"}, as fields of a cell's record.

    Raises Unsupported with the sentence of `why_not`, or with what the emulator does not know.
    """
    problem = problem_of(request["kind"], request["head_dim"])
    called = launches(request["impl"], problem, find(request["arch"]), exact_inputs)
    return {**count(called, find(request["arch"])), "work": {"nvfp4_bytes": nvfp4_bytes(problem)}}


def problem_of(kind: str, head_dim: int) -> Problem:
    heads, q_len, kv_len = SHAPES[kind]
    return Problem(batch=1, q_heads=heads, kv_heads=1, q_len=q_len, kv_len=kv_len, head_dim=head_dim, v_head_dim=head_dim)


def count(called: tuple[Launch, ...], arch: Arch) -> dict[str, Any]:
    """{"counters", "rules"} of a call, one schedule, checked. Raises EmulationError; Unsupported for what is not known."""
    from impls.cuda.emulation.launches import run_emulated
    from impls.cuda.emulator.errors import Unknown

    try:
        report = run_emulated(called, arch, schedules=("forward",))
    except Unknown as error:
        raise Unsupported(f"the emulator does not execute it yet: {error}") from error
    rules = {name: rule.status for name, rule in sorted(report.rules.items())}
    records = [record_of(launch, counters) for launch, counters in zip(called, report.counters, strict=True)]
    return {"counters": [dataclasses.asdict(record) for record in records], "rules": rules}


def record_of(launch: Launch, counters: Counters) -> CounterRecord:
    from impls.cuda.emulator.counting.bounds import work

    totals = counters.totals()
    return CounterRecord(
        entry=launch.entry,
        ptx=hashlib.sha256(launch.ptx.encode()).hexdigest(),
        blocks=counters.blocks,
        executed=totals["executions"],
        global_bytes=totals["global_bytes"],
        global_requests=totals["global_requests"],
        sectors=totals["sectors"],
        dram_bytes=counters.dram_bytes,
        shared_bytes=totals["shared_bytes"],
        wavefronts=totals["wavefronts"],
        ideal_wavefronts=totals["ideal_wavefronts"],
        barriers=totals["barriers"],
        divergent_branches=totals["divergent_branches"],
        classes={name: counts["executions"] for name, counts in counters.by_class().items()},
        mma={name: counts["working"] for name, counts in counters.mma_by_kind().items()},
        work=work(counters),
    )


def exact_inputs(problem: Problem) -> Inputs:
    """q, k4 and v4 of about standard normal size, the same bits on every host."""
    import torch

    p = problem
    generator = torch.Generator().manual_seed(0)
    q = torch.randint(-110, 111, (p.batch, p.q_heads, p.q_len, p.head_dim), generator=generator)
    exact = (q / 64).to(getattr(torch, p.dtype))
    return Inputs(exact, _cache(p, p.head_dim, generator), _cache(p, p.v_head_dim, generator))


def _cache(problem: Problem, dim: int, generator: torch.Generator) -> NVFP4Tensor:
    """[B, Hkv, Sk, dim], blocks along the last axis."""
    import torch

    from impls.nvfp4 import NVFP4Tensor

    lines = (problem.batch, problem.kv_heads, problem.kv_len)
    codes = torch.randint(0, 256, (*lines, dim // 2), generator=generator, dtype=torch.uint8)
    scales = torch.exp2(torch.randint(1, 3, (*lines, dim // 16), generator=generator).float())
    return NVFP4Tensor(codes, scales.to(torch.float8_e4m3fn), torch.tensor(GLOBAL_SCALE))
