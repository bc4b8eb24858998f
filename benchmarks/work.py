"""What a call has to do: plain arithmetic over a problem."""

from __future__ import annotations

from functools import cache

from benchmarks.layers import LayerProblem
from impls.contract import Problem
from impls.weights.contract import Projection

AnyProblem = Problem | Projection | LayerProblem

FLOPS_PER_S, BYTES_PER_S = 100e12, 1e12
"""What a middling implementation reaches on a data-centre GPU."""


def predicted_call(problem: AnyProblem) -> float:
    """Seconds of one call on a GPU, roughly: for plans, budgets and time limits."""
    return flops(problem) / FLOPS_PER_S + nvfp4_bytes(problem) / BYTES_PER_S


def predicted_pack(problem: AnyProblem) -> float:
    """Seconds of converting the whole cache to 16 bits, roughly: it is read, and 2 bytes are written for each 9/16."""
    if isinstance(problem, Projection):
        return 0.0
    cached = problem.attention if isinstance(problem, LayerProblem) else problem
    return cached.kv_bytes * (1 + 2 * 16 / 9) / BYTES_PER_S


def flops(problem: AnyProblem) -> int:
    """Floating-point operations, a multiplication and an addition each: of Q @ K^T and P @ V over visible keys only."""
    if isinstance(problem, Projection):
        return problem.flops
    if isinstance(problem, LayerProblem):
        return problem.qkv.flops + flops(problem.attention) + problem.output.flops
    p = problem
    return 2 * (p.head_dim + p.v_head_dim) * p.batch * p.q_heads * visible_pairs(p.q_len, p.kv_len, p.causal, p.window)


def nvfp4_bytes(problem: AnyProblem) -> int:
    """Bytes of the NVFP4 cache that a call attends to, and of its NVFP4 weights."""
    if isinstance(problem, Projection):
        return problem.weight_bytes
    if isinstance(problem, LayerProblem):
        return problem.qkv.weight_bytes + attended_bytes(problem.attention) + problem.output.weight_bytes
    return attended_bytes(problem)


@cache
def visible_pairs(q_len: int, kv_len: int, causal: bool, window: int | None) -> int:
    """(query, key) pairs of one head that are not masked, as `impls.reference` defines them."""
    pairs = 0
    for query in range(q_len):
        first, last = _visible(query, q_len, kv_len, causal, window)
        pairs += max(last - first + 1, 0)
    return pairs


def attended_bytes(problem: Problem) -> int:
    """Bytes of the NVFP4 K and V that some query sees, each counted once: 9 bytes per block of 16 values."""
    p = problem
    first, _ = _visible(0, p.q_len, p.kv_len, p.causal, p.window)
    _, last = _visible(p.q_len - 1, p.q_len, p.kv_len, p.causal, p.window)
    return p.batch * p.kv_heads * max(last - first + 1, 0) * (p.head_dim + p.v_head_dim) * 9 // 16


def _visible(query: int, q_len: int, kv_len: int, causal: bool, window: int | None) -> tuple[int, int]:
    """(first, last) key that a query sees, inclusive; first > last where it sees none."""
    last = query + kv_len - q_len if causal else kv_len - 1
    first = 0 if window is None else last - window + 1
    return max(first, 0), min(last, kv_len - 1)
