"""What the planners of all kernels go by: plain numbers, no torch, no compiler."""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Problem

SMS = 132
"""Streaming multiprocessors that splits are to fill, those of an H200. A GPU with fewer runs its blocks in more waves."""
LARGEST_SCALE = 2.0**126
"""Softmax scale at most: times log2(e) it is still a float32."""
VECTOR_BYTES = 16
"""The widest load of a thread: no kernel gains from more alignment."""


def has_e4m3(arch: Arch) -> bool:
    """Whether the GPU converts E4M3 to float16 by an instruction."""
    return arch.is_gpu and arch.compute_capability >= (8, 9)


def most_keys(problem: Problem, rows: int, keys_of_a_step: int) -> int:
    """Keys of the steps that one tile of `rows` packed query rows walks, at most."""
    p = problem
    if p.window is None or p.window >= p.kv_len:
        return p.kv_len
    queries = min(p.q_len, -(-rows // p.group) + 1) if p.causal else 1
    return min(p.kv_len, p.window + queries - 1) + keys_of_a_step  # a window begins anywhere in its first step
