"""How far sums of values of one sign drift before the output is rounded, in one accumulator chain and in chunks.

    python -m tests.dual_chunk.on_gpu bias                           on the GPU, whose tensor cores truncate
    TRITON_INTERPRET=1 python -m tests.dual_chunk.bias               on a CPU, whose float32 rounds to nearest: minutes

A tensor core drops what lies 25 bits below its accumulator, always towards zero. Against a long sum of one sign every product
loses as much, so that the sum comes out too small, by an amount that grows with the chain. Outputs are float32, and so is
all that is compared: bias is the mean of (out - exact) / exact, worst the largest |out - exact| / exact.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import torch

from impls.arch import CPU, Arch
from impls.contract import Inputs, Plan, Problem
from impls.dual_chunk import DualChunkAttention
from impls.dual_chunk.attention import DualChunkPlan
from impls.host import gpu_here
from impls.nvfp4 import quantize
from impls.reference import reference_attention
from impls.triton import TritonAttention, availability
from impls.triton.attention import TritonPlan

TOKENS = 131072
CHUNKS = (32768, 8192)
ROWS = 4  # query rows that are compared


@dataclass(frozen=True)
class Found:
    chain: int
    """Keys in one accumulator."""
    bias: float
    worst: float


def problems(arch: Arch) -> dict[str, Problem]:
    """{which kernel: problem}. One head and narrow ones are enough for an interpreter."""
    if not arch.is_gpu:
        return {"interpreted": Problem(1, 1, 1, 1, TOKENS, 16, 32)}
    return {
        "one query (mma.sync)": Problem(1, 8, 8, 1, TOKENS, 128, 128),
        "128 rows (wgmma on Hopper)": Problem(1, 16, 16, 128, TOKENS, 128, 128),
        "128 rows, head dim 512": Problem(1, 4, 4, 128, TOKENS, 512, 512),
    }


def measure(problem: Problem, arch: Arch, chunks: tuple[int, ...] = CHUNKS) -> list[Found]:
    """One chain over all keys, then chunks of each length; no kernel shares keys among programs."""
    inputs = same_sign(problem, torch.device("cuda", 0) if arch.is_gpu else torch.device("cpu"))
    rows = torch.linspace(0, problem.q_len - 1, min(ROWS, problem.q_len), device=inputs.q.device).round().long()
    exact = reference_attention(problem, inputs, rows=rows).out
    whole = TritonPlan(problem, arch, partial=True)
    unsplit(whole)
    found = [_compare(whole, problem.kv_len, inputs, rows, exact)]
    for longest in chunks:
        plan = DualChunkAttention("chunks", TritonAttention(), longest).plan_partial(problem, arch)
        assert isinstance(plan, DualChunkPlan)
        for tile in plan.chunks.tiles:
            for one in tile.passes:
                inner = plan.inner_plan(tile, one)
                assert isinstance(inner, TritonPlan)
                unsplit(inner)
        found.append(_compare(plan, longest, inputs, rows, exact))
    return found


def unsplit(plan: TritonPlan) -> None:
    """One program walks all keys of a row tile."""
    plan.schedule = replace(plan.schedule, splits=1, merged_early=False, workspace_bytes=0)


def same_sign(problem: Problem, device: torch.device) -> Inputs:
    """Scores that hardly differ, so that all keys count, and values that are all positive."""
    p, g = problem, torch.Generator(device).manual_seed(0)
    q = torch.randn(p.batch, p.q_heads, p.q_len, p.head_dim, generator=g, device=device) * 0.1
    k = torch.randn(p.batch, p.kv_heads, p.kv_len, p.head_dim, generator=g, device=device)
    v = torch.rand(p.batch, p.kv_heads, p.kv_len, p.v_head_dim, generator=g, device=device) + 0.5
    return Inputs(q.to(getattr(torch, p.dtype)), quantize(k), quantize(v))


def _compare(plan: Plan, chain: int, inputs: Inputs, rows: torch.Tensor, exact: torch.Tensor) -> Found:
    runner = plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4))
    runner()
    error = (runner.output.out[:, :, rows].double() - exact) / exact
    return Found(chain, float(error.mean()), float(error.abs().max()))


def main() -> int:
    interpreting = availability.interpreting()
    arch, why_not = (CPU, None) if interpreting else gpu_here()
    if arch is None:
        print(f"bias: {why_not} To measure on the CPU, set TRITON_INTERPRET=1.", file=sys.stderr)
        return 2
    print(f"{arch.name}, {TOKENS} tokens, V of one sign, float32 outputs")
    print(f"{'kernel':28}  {'keys in a chain':>15}  {'bias':>10}  {'worst':>10}")
    for name, problem in problems(arch).items():
        for found in measure(problem, arch):
            print(f"{name:28}  {found.chain:15}  {found.bias:10.2e}  {found.worst:10.2e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
