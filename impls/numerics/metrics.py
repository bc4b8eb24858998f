"""Errors of one output against its reference and bound."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch

from impls.numerics.bounds import Bound
from impls.reference import Reference

POSITION_BINS = 8


@dataclass(frozen=True)
class Errors:
    """Errors over the reference's rows. With a NaN or an unexpected Inf in the output, all but the counts are Inf."""

    out_over_bound: float
    """Largest |out - ref| / bound over all components."""
    lse_over_bound: float
    """Largest |lse - ref| / bound over rows that see a key."""
    worst: tuple[int, int, int, int]
    """(sequence, head, query row, dim) of the component that is worst."""
    worst_lse: tuple[int, int, int]
    """(sequence, head, query row) whose lse is worst."""
    relative_l2: float
    """||out - ref|| / ||ref||."""
    largest_row_error: float
    """Largest over sequences, heads and rows of ||out - ref|| / ||ref|| of that row."""
    magnitude_ratio: float
    """||out|| / ||ref||; 1 where both are 0."""
    lse_error: float
    """Largest |lse - ref| over rows that see a key."""
    cosine: float
    """Between the whole outputs. Blind to a wrong scale, so reported and never checked."""
    nan_count: int
    """NaNs in out and lse."""
    inf_count: int
    """Infs in out, and in lse those of rows that see a key."""


def errors(out: torch.Tensor, lse: torch.Tensor, reference: Reference, bound: Bound) -> Errors:
    """Compare out [B, Hq, R, Dv] and lse [B, Hq, R], rows as the reference's, on the reference's device."""
    got, got_lse = out.double(), lse.double()
    wanted = _representable(reference.out, out.dtype)
    seen = reference.lse > -torch.inf
    nan_count = int(torch.isnan(got).sum() + torch.isnan(got_lse).sum())
    inf_count = int(torch.isinf(got).sum() + torch.isinf(got_lse[seen]).sum())

    difference = _difference(got, wanted)
    over = difference / bound.out
    lse_difference = torch.where(seen, _difference(got_lse, reference.lse), 0.0)
    lse_over = lse_difference / bound.lse
    rows = _norm(difference) / _norm(wanted)
    return Errors(
        out_over_bound=_largest(over),
        lse_over_bound=_largest(lse_over),
        worst=_where(over, reference.rows),
        worst_lse=_where(lse_over.unsqueeze(-1), reference.rows)[:3],
        relative_l2=ratio(difference, wanted),
        largest_row_error=_largest(rows[_norm(wanted) > 0]),
        magnitude_ratio=_magnitude_ratio(got, wanted),
        lse_error=_largest(lse_difference),
        cosine=_cosine(got, wanted),
        nan_count=nan_count,
        inf_count=inf_count,
    )


def largest_errors(reference: Reference, bound: Bound) -> dict[str, float]:
    """What `relative_l2`, `largest_row_error` and `lse_error` are where every component is at its bound."""
    rows = _norm(bound.out) / _norm(reference.out)
    seen = reference.lse > -torch.inf
    return {
        "relative_l2": ratio(bound.out, reference.out),
        "largest_row_error": _largest(rows[_norm(reference.out) > 0]),
        "lse_error": _largest(bound.lse[seen]),
    }


def errors_by_query(out: torch.Tensor, reference: Reference) -> list[dict[str, float]]:
    """Relative L2 error in up to 8 ranges of query rows: [{first, last, relative_l2}], positions in the queries."""
    count = len(reference.rows)
    edges = sorted({count * i // POSITION_BINS for i in range(POSITION_BINS + 1)})
    return [
        {
            "first": int(reference.rows[a]),
            "last": int(reference.rows[b - 1]),
            "relative_l2": ratio(out[:, :, a:b].double() - reference.out[:, :, a:b], reference.out[:, :, a:b]),
        }
        for a, b in itertools.pairwise(edges)
    ]


def errors_by_segment(out: torch.Tensor, reference: Reference, segments: int, tokens: int) -> list[dict[str, float]]:
    """Relative L2 error by position in the cache: [{first, last, relative_l2}], positions in the `tokens` keys.

    For a V whose last `segments` dims each hold one of as many equal ranges of tokens, and zero elsewhere.
    """
    first_dim, size = out.shape[-1] - segments, tokens // segments
    return [
        {
            "first": i * size,
            "last": (i + 1) * size - 1,
            "relative_l2": ratio(
                out[..., first_dim + i].double() - reference.out[..., first_dim + i], reference.out[..., first_dim + i]
            ),
        }
        for i in range(segments)
    ]


def ratio(x: torch.Tensor, y: torch.Tensor) -> float:
    """||x|| / ||y||, taken over a common unit so that squares neither over- nor underflow. 0 where x is 0."""
    unit = torch.cat([x.abs().flatten(), y.abs().flatten(), y.new_zeros(1)]).amax()
    if not bool(torch.isfinite(unit)):
        return math.inf
    if unit == 0:
        return 0.0
    above, below = float((x / unit).norm()), float((y / unit).norm())
    return above / below if below else (math.inf if above else 0.0)


def _magnitude_ratio(got: torch.Tensor, wanted: torch.Tensor) -> float:
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return ratio(got, wanted) if bool(wanted.any()) or bool(got.any()) else 1.0


def _representable(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The reference, Inf where `dtype` overflows."""
    overflows = torch.isinf(reference.to(dtype))
    return torch.where(overflows, torch.copysign(torch.full_like(reference, torch.inf), reference), reference)


def _difference(got: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """|got - wanted|: 0 for the Inf that was wanted, Inf for a NaN."""
    difference = torch.where(got == wanted, 0.0, (got - wanted).abs())
    return difference.nan_to_num(nan=torch.inf, posinf=torch.inf)


def _norm(x: torch.Tensor) -> torch.Tensor:
    """Euclidean norm along the last axis."""
    unit = x.abs().amax(-1, keepdim=True)
    safe = torch.where((unit == 0) | torch.isinf(unit), 1.0, unit)
    return (x / safe).norm(dim=-1) * safe.squeeze(-1)


def _largest(x: torch.Tensor) -> float:
    return float(x.max()) if x.numel() else 0.0


def _where(x: torch.Tensor, rows: torch.Tensor) -> tuple[int, int, int, int]:
    """(sequence, head, query row, dim) of the largest element of x [B, Hq, R, Dv]."""
    batch, head, row, dim = (int(i) for i in torch.unravel_index(x.argmax(), x.shape))
    return batch, head, int(rows[row]), dim


def _cosine(x: torch.Tensor, y: torch.Tensor) -> float:
    x, y = x.flatten(), y.flatten()
    units = float(x.abs().max()), float(y.abs().max())
    if not all(map(math.isfinite, units)):
        return math.nan
    if 0.0 in units:
        return 1.0 if units[0] == units[1] else 0.0
    x, y = x / units[0], y / units[1]
    return float(x @ y / (x.norm() * y.norm()))
