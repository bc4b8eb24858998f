"""What peers round: K and V when they are decoded, the softmax numerators to feed the second product."""

from __future__ import annotations

from impls.contract import Problem, Rounding, Rounds


def numerators(problem: Problem) -> Rounding:
    """Cast to the queries' dtype as they are, at most 1: in float16 without the bias that would keep small ones."""
    return Rounding("float16_unbiased" if problem.dtype == "float16" else "bfloat16")


def sixteen_bit(problem: Problem) -> Rounds:
    """NVFP4 with its global scale has up to 30 significant bits; a 16-bit cache keeps 8 or 11 of them."""
    cache = Rounding(problem.dtype)
    return {"k": cache, "v": cache, "p": numerators(problem)}
