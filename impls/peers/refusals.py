"""What no peer does, each in one sentence."""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Paged, Problem

NO_GPU = "it is a kernel of a CUDA library, and there is no GPU."
NO_PAGES = "it takes a dense cache; pages named by a block table that may change under it are left to our own kernels."
NO_LENGTHS = "it is planned for lengths that the host knows, and cannot follow kv_lens that change on the device."
NO_WINDOW = "it is compared without windows."
NO_KEYS = "it gives no result for an empty cache."
EMPTY_ROWS = "where a query sees no key it gives another LSE than minus infinity, so it takes no more causal queries than keys."


def why_not(problem: Problem, arch: Arch) -> str | None:
    """None if nothing that all peers lack is asked for, else one sentence."""
    if not arch.is_gpu:
        return NO_GPU
    if isinstance(problem.layout, Paged):
        return NO_PAGES
    if problem.ragged:
        return NO_LENGTHS
    if problem.window is not None:
        return NO_WINDOW
    if problem.kv_len == 0:
        return NO_KEYS
    if problem.causal and problem.q_len > problem.kv_len:
        return EMPTY_ROWS
    return None


def same_head_dims(problem: Problem) -> str | None:
    if problem.head_dim != problem.v_head_dim:
        return f"it is given one head dim for K and V, not {problem.head_dim} and {problem.v_head_dim}."
    return None
