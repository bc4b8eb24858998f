"""How far a correct kernel may be from the float64 reference, component by component.

The kernel that the bound is derived for keeps products exact and sums in float32, in any order, in chunks that it merges:

    s_j = scale * q . k_j            p_j = exp(s_j - running maximum), rounded as declared
    out = (sum_j p_j v_j) / (sum_j p_j) * global            lse = maximum + log(sum_j p_j)

Every error up to the last step is a relative error of some p_j or of a sum of terms p_j v_j or p_j. With `a` the largest
relative error of a numerator term and `b` that of the denominator,

    |out - ref| <= (a mass + b |ref|) / (1 - b)       mass = sum_j p_j |v_j| / sum_j p_j,

and the functions below say what makes up a = b. What is rounded before (q, k, v) the reference executes itself.
u = 2^-24 is the unit roundoff of float32. Sources: Higham, "Accuracy and Stability of Numerical Algorithms", 2002, sections 3.1
and 4.2 (sums in any order); PTX ISA 9.0, ex2.approx, lg2.approx and div.full (2 ulp each); Khattak and Mikaitis,
arXiv 2512.07004, and MMA-Sim, for what tensor cores truncate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from impls.contract import EXACT, Implementation, Problem, Rounding
from impls.reference import Reference

U = 2.0**-24

SUM_TERM = 11 / 8 * U
"""Relative error that each term adds to a sum.

Rounding to nearest in any order adds u a term. A tensor core truncates: of K products and the accumulator each loses 2^-25,
and the sum 2^-23, where K = 16 and 25 bits are kept (Hopper and newer): (17 * 2^-25 + 2^-23) / 16 < u. Ampere and Ada keep
24 bits and sum K = 8 at a time: (9 * 2^-24 + 2^-23) / 8 = 11/8 u, the largest of the three.
"""

RESCALE_KEY = 3 / 8 * U
"""Relative error that rescaling to a new maximum adds per key: with tiles of 16 keys or more, one rounded multiplication (u)
and one exp2 (2 ulp = 4u, argument u) a tile."""

EXP2 = 4 * U
BIAS = 2 * 15 * math.log(2) * U
"""A bias of up to 15 added to the exponent of p, to use all of float16's range, is rounded twice: with the maximum, with s."""

FINISH = 12 * U
"""Two divisions of 2 ulp (of a chunk, of the merge) and four multiplications (by the global scale, a unit, a merge weight)."""

OUTPUT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
OUTPUT_FLOOR = {"float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-25}
"""Absolute error where the output (in float32, a partial one) underflows: float32 subnormals may be flushed; float16 rounds
to multiples of 2^-24."""

P_FLOOR = {
    "exact": 2.0**-126,
    "bfloat16": 2.0**-126,
    "float16": 2.0**-40,
    "float16_unbiased": 2.0**-25,
    "float8_e4m3": 2.0**-18,
}
"""Absolute error of a p that underflows, in units of the largest p.

Half the smallest subnormal, with the largest p put at the top of the range: 2^-25 / 2^15 in float16, 2^-10 / 2^8 in E4M3.
Without such a bias float16 loses what is below 2^-25 of the largest, which this bound forgives only where it is declared.
"""


@dataclass(frozen=True)
class Bound:
    """Largest errors that a correct kernel may make, float64. Inf where its scores cannot be known at all."""

    out: torch.Tensor
    """[B, Hq, R, Dv]."""
    lse: torch.Tensor
    """[B, Hq, R]."""


def error_bound(
    problem: Problem, reference: Reference, *, p: Rounding, chain: int, v_max: float, partial: Rounding = EXACT
) -> Bound:
    """The bound for a kernel that rounds its softmax numerators to `p` and sums `chain` keys in one accumulator.

    `partial` is what results over parts of the keys are rounded to where they are merged once more; EXACT: they are not.
    `v_max` is the largest |value| in V. Raises ValueError for a rounding of p that no bound is
    derived for, and for a chain that is no number of tokens.
    """
    if p.name not in P_FLOOR:
        raise ValueError(f"no error bound is derived for softmax numerators rounded to {p.name}.")
    if not isinstance(chain, int) or chain < 1:
        raise ValueError(f"accumulator_chain must be a number of tokens, at least 1, not {chain!r}.")
    keys = max(problem.kv_len if problem.window is None else min(problem.kv_len, problem.window), 1)
    relative = (
        score_error(problem.head_dim, reference.score)
        + merge_error(reference.score, keys)
        + sum_error(min(chain, keys), keys)
        + p.unit_roundoff
    )  # [B, Hq, R]
    rounded = underflown = 0.0  # of the output alone: a numerator's error, which no denominator shares
    if partial != EXACT:
        relative = relative + merge_error(reference.score, keys)
        rounded, underflown = partial.unit_roundoff + FINISH, OUTPUT_FLOOR[partial.name]
    lost = keys * P_FLOOR[p.name]  # the denominator is at least 1, the largest p
    spread = torch.expm1(relative + lost).unsqueeze(-1)
    magnitude = reference.out.abs()
    before_rounding = torch.where(
        spread < 1,
        (spread * (reference.mass + magnitude) + (1 + spread) * rounded * reference.mass + lost * v_max + underflown)
        / (1 - spread)
        + FINISH * magnitude,
        torch.inf,
    )
    u_out = OUTPUT_ROUNDOFF[problem.dtype]
    out = u_out * magnitude + (1 + u_out) * before_rounding + OUTPUT_FLOOR[problem.dtype]
    lse = relative + lost + merge_error(reference.score, keys)
    return Bound(out, lse)


def declared_bound(chosen: Implementation, problem: Problem, reference: Reference, *, v_max: float) -> Bound:
    """`error_bound` for all that `chosen` declares about `problem`. `reference` has executed its roundings of q, k and v."""
    rounds = chosen.rounds(problem)
    return error_bound(
        problem,
        reference,
        p=rounds.get("p", EXACT),
        partial=rounds.get("partial", EXACT),
        chain=chosen.accumulator_chain(problem),
        v_max=v_max,
    )


def score_error(head_dim: int, score: torch.Tensor) -> torch.Tensor:
    """Error of s_j, and so relative error of p_j. `score` [...] bounds scale * sum_d |q_d k_jd|.

    The sum over the head dim; four factors rounded into s (scale, log2 e, global scale, the product); s - maximum, which
    is at most twice the score, and the bias; exp2.
    """
    return score * (head_dim * SUM_TERM + (4 + 2 + 1) * U) + BIAS + EXP2


def merge_error(score: torch.Tensor, keys: int) -> torch.Tensor:
    """Relative error of the weight exp(lse) that a chunk is merged by; also the error of writing lse itself.

    |lse| and the maximum are at most m = score + log(keys). log2 (2 ulp = 4u of at most 1 + m), times log 2, plus the maximum,
    minus the merge's maximum (2m), times log2 e (2m), exp2: 10 u m + 8 u. A merge in several steps rescales what it has by
    one more exp2 and multiplication a step; their arguments are parts of the same 2m, and their rounding, 6u a step of 64
    chunks, is less than the u a chunk that `sum_error` allows.
    """
    return (10 * (score + math.log(keys)) + 8) * U


def sum_error(chain: int, keys: int) -> float:
    """Relative error of the sums over keys: `chain` of them in one accumulator, then the chunks."""
    return chain * (SUM_TERM + RESCALE_KEY) + math.ceil(keys / chain) * U
