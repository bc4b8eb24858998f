"""The metrics see what they are for, and NaN, Inf and extreme magnitudes do not blind them."""

from __future__ import annotations

import math

import pytest
import torch

from impls.numerics.bounds import Bound
from impls.numerics.metrics import errors, errors_by_query, errors_by_segment, largest_errors, ratio
from impls.reference import Reference


def exact(out: torch.Tensor, lse: torch.Tensor | None = None) -> Reference:
    rows = out.shape[2]
    return Reference(
        rows=torch.arange(rows) * 10,  # sampled rows
        out=out.double(),
        lse=torch.zeros(out.shape[:3], dtype=torch.float64) if lse is None else lse.double(),
        mass=out.abs().double(),
        score=torch.zeros(out.shape[:3], dtype=torch.float64),
    )


def bound_of(reference: Reference, share: float = 0.01) -> Bound:
    return Bound(reference.out.abs() * share + 1e-6, torch.full_like(reference.lse, share))


@pytest.fixture
def out() -> torch.Tensor:
    return torch.arange(1.0, 1 + 2 * 3 * 4 * 16).view(2, 3, 4, 16)


def test_exact_output_has_no_error(out: torch.Tensor) -> None:
    reference = exact(out)
    found = errors(out, reference.lse.float(), reference, bound_of(reference))
    assert (found.out_over_bound, found.lse_over_bound, found.relative_l2, found.largest_row_error) == (0, 0, 0, 0)
    assert (found.nan_count, found.inf_count) == (0, 0)
    assert found.magnitude_ratio == pytest.approx(1)
    assert found.cosine == pytest.approx(1)


def test_one_wrong_component_is_found_where_it_is(out: torch.Tensor) -> None:
    reference = exact(out)
    wrong = out.clone()
    wrong[1, 2, 3, 5] *= 1.05
    found = errors(wrong, reference.lse.float(), reference, bound_of(reference))
    assert found.worst == (1, 2, 30, 5)  # as a query row, not as an index into the sampled ones
    assert found.out_over_bound == pytest.approx(5, rel=1e-3)
    assert found.relative_l2 < 0.01 < found.largest_row_error


def test_wrong_scale_is_seen_though_the_cosine_is_blind(out: torch.Tensor) -> None:
    reference = exact(out)
    found = errors(out * 6, reference.lse.float(), reference, bound_of(reference))
    assert found.cosine == pytest.approx(1)
    assert found.magnitude_ratio == pytest.approx(6)
    assert found.relative_l2 == pytest.approx(5)
    assert found.out_over_bound > 400


def test_wrong_lse_is_seen_apart_from_the_output(out: torch.Tensor) -> None:
    reference = exact(out)
    lse = reference.lse.float()
    lse[0, 1, 2] = 0.5
    found = errors(out, lse, reference, bound_of(reference))
    assert found.lse_error == 0.5
    assert found.worst_lse == (0, 1, 20)
    assert found.lse_over_bound == pytest.approx(50)
    assert found.out_over_bound == 0


def test_nan_is_counted_and_every_error_is_inf(out: torch.Tensor) -> None:
    reference = exact(out)
    wrong = out.clone()
    wrong[0, 0, 0, :3] = torch.nan
    found = errors(wrong, reference.lse.float(), reference, bound_of(reference))
    assert found.nan_count == 3
    assert math.isinf(found.out_over_bound)
    assert math.isinf(found.relative_l2)
    assert math.isinf(found.largest_row_error)
    assert math.isinf(found.magnitude_ratio)


def test_infinity_is_right_only_where_the_dtype_overflows() -> None:
    out = torch.full((1, 1, 1, 16), 1e5, dtype=torch.float64)
    reference = exact(out)
    found = errors(out.half(), reference.lse.float(), reference, bound_of(reference))
    assert found.inf_count == 16
    assert found.out_over_bound == 0
    finite = errors(torch.full_like(out, 65504).half(), reference.lse.float(), reference, bound_of(reference))
    assert math.isinf(finite.out_over_bound)


def test_rows_that_see_nothing_count_for_no_lse_error(out: torch.Tensor) -> None:
    lse = torch.zeros(out.shape[:3])
    lse[:, :, 0] = -torch.inf
    reference = exact(out, lse)
    found = errors(out, lse, reference, bound_of(reference))
    assert (found.lse_error, found.inf_count, found.nan_count) == (0, 0, 0)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_squares_neither_overflow_nor_underflow(unit: float) -> None:
    x = torch.tensor([3.0, 4.0], dtype=torch.float64) * unit
    assert ratio(x * 0.5, x) == pytest.approx(0.5)


def test_ratio_of_nothing_is_nothing_and_of_something_to_nothing_is_inf() -> None:
    zero, one = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    assert ratio(zero, zero) == 0
    assert ratio(one, zero) == math.inf


def test_largest_errors_are_those_of_an_output_at_its_bound(out: torch.Tensor) -> None:
    reference = exact(out)
    bound = bound_of(reference)
    at_bound = errors(reference.out + bound.out, reference.lse + bound.lse, reference, bound)
    largest = largest_errors(reference, bound)
    assert largest["relative_l2"] == pytest.approx(at_bound.relative_l2)
    assert largest["largest_row_error"] == pytest.approx(at_bound.largest_row_error)
    assert largest["lse_error"] == pytest.approx(at_bound.lse_error)


def test_error_by_query_shows_where_it_is() -> None:
    reference = exact(torch.ones(1, 1, 64, 16))
    wrong = torch.ones(1, 1, 64, 16)
    wrong[:, :, 60:] = 1.5
    bins = errors_by_query(wrong, reference)
    assert [b["relative_l2"] > 0.1 for b in bins] == [False] * 7 + [True]
    assert (bins[0]["first"], bins[-1]["last"]) == (0, 630)


def test_error_by_segment_shows_which_tokens_it_comes_from() -> None:
    reference = exact(torch.ones(1, 1, 1, 20))
    wrong = torch.ones(1, 1, 1, 20)
    wrong[..., 6] = 1.25  # the third of the last 16 dims
    bins = errors_by_segment(wrong, reference, 16, 1600)
    assert [b["relative_l2"] for b in bins] == [0, 0, 0.25] + [0] * 13
    assert (bins[2]["first"], bins[2]["last"]) == (200, 299)
