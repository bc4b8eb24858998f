"""`dual-chunk:triton` against `triton` in one pass, prefill, causal, 16 heads: python -m tests.dual_chunk.on_gpu speed.

Both are called in turns. Times are medians of GPU time between events, of calls whose work is seconds long: nothing is flushed.
`nvfp4bench run --cell 'prefill-long/*'` measures the same as a cell. Exit status 1 where chunks are more than 5 % slower.
"""

from __future__ import annotations

import statistics
import sys

import torch

from impls.arch import Arch
from impls.contract import Problem, Runner
from impls.host import gpu_here
from impls.nvfp4 import quantize
from impls.registry import implementation

NAMES = ("triton", "dual-chunk:triton")
ROUNDS = 3
ALLOWED = 1.05


def milliseconds(runner: Runner) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    runner()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def compare(problem: Problem, arch: Arch) -> dict[str, float]:
    """{name: median in ms}."""
    p = problem
    q = torch.randn(p.batch, p.q_heads, p.q_len, p.head_dim, device="cuda", dtype=torch.bfloat16)
    k4 = quantize(torch.randn(p.batch, p.kv_heads, p.kv_len, p.head_dim, device="cuda", dtype=torch.bfloat16))
    v4 = quantize(torch.randn(p.batch, p.kv_heads, p.kv_len, p.v_head_dim, device="cuda", dtype=torch.bfloat16))
    runners = {}
    for name in NAMES:
        plan = implementation(name).plan(p, arch)
        runners[name] = plan.bind(q, plan.pack(k4, v4))
        runners[name]()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(ROUNDS):
        for name, runner in runners.items():
            times[name].append(milliseconds(runner))
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"speed: {why_not}", file=sys.stderr)
        return 2
    slowest = 0.0
    print(f"{'prefill, causal, 16 heads':28}  {'one pass':>10}  {'chunks':>10}  ratio")
    for head_dim, tokens in ((128, 131072), (512, 131072)):
        found = compare(Problem(1, 16, 16, tokens, tokens, head_dim, head_dim), arch)
        ratio = found[NAMES[1]] / found[NAMES[0]]
        slowest = max(slowest, ratio)
        label = f"{tokens} tokens, head dim {head_dim}"
        print(f"{label:28}  {found[NAMES[0]]:7.1f} ms  {found[NAMES[1]]:7.1f} ms  {ratio:.3f}", flush=True)
    return 1 if slowest > ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
