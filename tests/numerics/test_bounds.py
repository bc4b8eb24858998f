"""Each term of the bound against a simulation of the one error that it stands for: it holds, and it is not far off."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from impls.contract import EXACT, Problem, Rounding
from impls.numerics import bounds
from impls.numerics.bounds import U, error_bound, merge_error, score_error, sum_error
from impls.reference import Reference

PROBLEM = Problem(1, 1, 1, 1, 256, 64, 16)


def reference(out: float, mass: float, *, score: float = 0.0, lse: float = 5.0) -> Reference:
    shape = (1, 1, 1)
    return Reference(
        rows=torch.zeros(1, dtype=torch.int64),
        out=torch.full((*shape, PROBLEM.v_head_dim), out, dtype=torch.float64),
        lse=torch.full(shape, lse, dtype=torch.float64),
        mass=torch.full((*shape, PROBLEM.v_head_dim), mass, dtype=torch.float64),
        score=torch.full(shape, score, dtype=torch.float64),
    )


def truncated(x: np.ndarray, bits: int) -> np.ndarray:
    """Float64 `x` cut towards zero to `bits` significant bits."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.trunc(np.ldexp(mantissa, bits)), exponent - bits)


def tensor_core_sum(terms: np.ndarray, *, k: int, bits: int) -> np.ndarray:
    """Sum of `terms` [n, trials] as a tensor core makes it: k terms at a time are cut `bits` below the largest, added to
    the accumulator, and the sum cut to float32."""
    total = np.zeros(terms.shape[1])
    for start in range(0, len(terms), k):
        parts = np.concatenate((terms[start : start + k], total[None]))
        step = np.ldexp(1.0, np.frexp(np.abs(parts).max(0))[1] - 1 - bits)
        total = truncated((np.trunc(parts / step) * step).sum(0), 24)
    return total


@pytest.mark.parametrize(("k", "bits"), [(16, 25), (8, 24)], ids=["hopper", "ampere"])
def test_sum_term_covers_what_a_tensor_core_truncates(k: int, bits: int) -> None:
    terms = np.random.default_rng(0).uniform(0.5, 1.0, (4096, 50))
    error = np.abs(tensor_core_sum(terms, k=k, bits=bits) / terms.sum(0) - 1).max()
    allowed = len(terms) * bounds.SUM_TERM
    assert allowed / 20 < error < allowed


def test_sum_term_covers_float32_in_the_order_that_is_worst() -> None:
    # Each small term is half a unit in the last place of the sum so far, and rounds up to a whole one.
    count = 4096
    total, exact = np.float32(1 + 2.0**-23), 1 + 2.0**-23
    for _ in range(count):
        term = np.float32(2.0**-24 * 1.0001)
        total, exact = np.float32(total + term), exact + float(term)
    error = abs(float(total) / exact - 1)
    assert count * U / 4 < error < count * bounds.SUM_TERM


@pytest.mark.parametrize("largest", [1e-3, 1.0, 10.0, 80.0])  # the first: what is left without a score
def test_score_error_covers_truncated_dot_products_and_float32_exponentials(largest: float) -> None:
    rng = np.random.default_rng(1)
    products = rng.uniform(0.5, 1.0, (128, 1)) * rng.uniform(0.5, 1.0, (128, 2048))  # of one sign, so that cutting adds up
    factor = largest / products.sum(0).max()
    s = products.sum(0) * factor
    dot = tensor_core_sum(products, k=16, bits=25).astype(np.float32)
    s32 = dot * (np.float32(factor) * np.float32(math.log2(math.e)))
    p32 = np.exp2(s32 - (s32.max() - np.float32(15))) / np.float32(2.0**15)
    error = np.abs(p32 / np.exp(s - s.max()) - 1).max()
    allowed = float(torch.expm1(score_error(128, torch.tensor(s.max()))))
    assert allowed / 100 < error < allowed


def test_merge_error_covers_weights_from_rounded_lse() -> None:
    rng = np.random.default_rng(2)
    top = rng.uniform(-100, 100, 100_000).astype(np.float32)
    total = rng.uniform(1, 300, top.size).astype(np.float32)
    exact = np.log(total.astype(np.float64)) + top.astype(np.float64)
    lse = top + np.log2(total) * np.float32(math.log(2))
    shift = np.float32(-40.0)
    weight = np.exp2((lse - shift) * np.float32(math.log2(math.e)) - np.float32(100))
    error = np.abs(weight / np.exp(exact - float(shift) - 100 * math.log(2)) - 1)[weight > 1e-30].max()
    allowed = float(merge_error(torch.tensor(100.0, dtype=torch.float64), 300))
    assert allowed / 50 < error < allowed


def test_p_rounding_is_the_unit_roundoff_on_mass_and_result() -> None:
    # Numerators just above a tie of bfloat16 round down, those of the other sign of v up: the worst there is.
    p = torch.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8], dtype=torch.float64)
    v = torch.tensor([1.0, -1.0], dtype=torch.float64)
    exact = (p * v).sum() / p.sum()
    rounded = p.bfloat16().double()
    error = float(((rounded * v).sum() / p.sum() - exact).abs())
    bound = error_bound(replace(PROBLEM, kv_len=2), reference(float(exact), 1.0), p=Rounding("bfloat16"), chain=2, v_max=1.0)
    exact_bound = error_bound(replace(PROBLEM, kv_len=2), reference(float(exact), 1.0), p=EXACT, chain=2, v_max=1.0)
    assert float(exact_bound.out.max()) < error < float(bound.out.max()) < 2 * error


def test_partial_results_are_rounded_once_more_on_the_mass() -> None:
    """Two parts of opposite sign and equal weight, each just below a tie of bfloat16 on the side that makes the sum worse."""
    parts = torch.tensor([1 + 0.99 * 2.0**-8, -(1 - 0.99 * 2.0**-9)], dtype=torch.float64)
    exact, error = float(parts.mean()), float((parts.bfloat16().double().mean() - parts.mean()).abs())
    problem, given = replace(PROBLEM, kv_len=2), reference(float(parts.mean()), float(parts.abs().mean()))
    once = error_bound(problem, given, p=EXACT, chain=2, v_max=1.0)
    twice = error_bound(problem, given, p=EXACT, chain=2, v_max=1.0, partial=Rounding("bfloat16"))
    in_float32 = error_bound(problem, given, p=EXACT, chain=2, v_max=1.0, partial=Rounding("float32"))
    assert abs(exact) < 2.0**-7
    assert float(once.out.max()) < error < float(twice.out.max()) < 4 * error
    assert float(once.out.max()) < float(in_float32.out.max()) < float(once.out.max()) + 64 * U
    assert float(once.lse.max()) < float(twice.lse.max()) < float(once.lse.max()) + 32 * U


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_output_rounding_to_nearest_holds_and_towards_zero_does_not(dtype: str) -> None:
    problem = replace(PROBLEM, dtype=dtype)
    ulp = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
    value = 1 + 0.499 * ulp
    bound = float(error_bound(problem, reference(value, value), p=EXACT, chain=256, v_max=2.0).out.max())
    nearest = float(torch.tensor(value, dtype=torch.float64).to(getattr(torch, dtype)))
    assert abs(nearest - value) < bound
    assert abs(1 + 0.99 * ulp - 1) > bound  # cutting off nearly a whole ulp


def test_float16_tail_is_covered_with_a_bias_and_not_without() -> None:
    tail, count = 2.0**-26 * 0.9, 256
    exact = count * tail / (1 + count * tail)
    problem = replace(PROBLEM, dtype="bfloat16")
    given = reference(exact, exact, lse=0.0)
    bound = float(error_bound(problem, given, p=Rounding("float16"), chain=256, v_max=1.0).out.max())
    biased = float(torch.tensor(tail * 2.0**15).half().double()) / 2.0**15
    unbiased = float(torch.tensor(tail).half().double())
    assert unbiased == 0.0
    assert abs(count * biased - count * tail) < bound < exact
    declared = error_bound(problem, given, p=Rounding("float16_unbiased"), chain=256, v_max=1.0)
    assert exact < float(declared.out.max()) < 10 * exact


def test_lse_bound_is_tight_where_numerators_are_exact_and_far_below_a_wrong_base() -> None:
    bound = float(error_bound(PROBLEM, reference(0.0, 1.0, score=8.0), p=EXACT, chain=256, v_max=1.0).lse.max())
    assert 8 * U < bound < 2e-4 < 5.0 * (1 / math.log(2) - 1)


def test_longer_chain_widens_the_bound_and_chunks_narrow_it() -> None:
    one_chain, chunks = sum_error(131072, 131072), sum_error(512, 131072)
    assert one_chain > 100 * chunks
    assert chunks > sum_error(512, 512)


def test_score_that_float32_cannot_know_bounds_nothing() -> None:
    bound = error_bound(PROBLEM, reference(1.0, 1.0, score=1e9), p=EXACT, chain=256, v_max=1.0)
    assert bool(torch.isinf(bound.out).all())


def test_masked_component_is_bounded_by_underflow_alone() -> None:
    bound = error_bound(PROBLEM, reference(0.0, 0.0), p=Rounding("bfloat16"), chain=256, v_max=1.0)
    assert float(bound.out.max()) < 1e-30


@pytest.mark.parametrize("chain", [0, -(2**20), 64.0])
def test_chain_that_would_shrink_the_bound_is_refused(chain: Any) -> None:
    with pytest.raises(ValueError, match="accumulator_chain must be a number of tokens"):
        error_bound(PROBLEM, reference(1.0, 1.0, lse=0.0), p=Rounding("bfloat16"), chain=chain, v_max=1.0)


def test_rounding_without_a_derived_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="no error bound is derived for softmax numerators rounded to nvfp4"):
        error_bound(PROBLEM, reference(1.0, 1.0), p=Rounding("nvfp4"), chain=256, v_max=1.0)
