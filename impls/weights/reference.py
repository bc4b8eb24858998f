"""What a projection is, in float64, and how far a correct kernel may be from it, component by component.

The kernel that the bound is derived for keeps products exact, sums K of them in float32 in any order and in any parts, and
multiplies by the global scale and a power of two at the end. With mass = sum_k |x_k| |w_k| and the terms of
`impls.numerics.bounds`,

    |out - ref| <= u_out |ref| + (1 + u_out) (K t + 4 u + 2 u_parts) mass + lost

where t is what a term adds to a sum (a part of a sum is one more term, and there are no more parts than terms: 2K t), u_parts
what parts may be rounded to before they are added, and `lost` what underflows: a term in float32, and the output.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from impls.contract import FLOAT32_MIN, Rounding
from impls.numerics.bounds import OUTPUT_FLOOR, OUTPUT_ROUNDOFF, SUM_TERM, U
from impls.nvfp4 import NVFP4Tensor, dequantize
from impls.weights.contract import ProjectionRounds

UNIT = 2.0**7
"""The global scale is multiplied by at most this much at the end, so that what underflows before grows by as much."""


@dataclass(frozen=True)
class ProjectionReference:
    """Float64 [M, N]."""

    out: torch.Tensor
    mass: torch.Tensor
    """sum_k |x_k| |w_k|"""
    bound: torch.Tensor
    """Largest error of a correct kernel."""


def reference_projection(x: torch.Tensor, w4: NVFP4Tensor, rounds: ProjectionRounds) -> ProjectionReference:
    """x [M, K] times w4 [N, K] whose values are rounded as `rounds` has it, and its bound. M should be few: this is float64."""
    weights = _rounded(dequantize(w4, torch.float64), rounds.weights)
    exact = x.double()
    out, mass = exact @ weights.T, exact.abs() @ weights.abs().T
    dtype = str(x.dtype).removeprefix("torch.")
    inputs = x.shape[1]
    relative = 2 * inputs * SUM_TERM + 4 * U + 2 * rounds.parts.unit_roundoff
    lost = inputs * FLOAT32_MIN * (UNIT * w4.global_scale.double() + 1) + OUTPUT_FLOOR[dtype]
    u_out = OUTPUT_ROUNDOFF[dtype]
    return ProjectionReference(out, mass, u_out * out.abs() + (1 + u_out) * relative * mass + lost)


def over_bound(out: torch.Tensor, reference: ProjectionReference) -> float:
    """The largest error of `out` [M, N] over its bound: at most 1 for a correct kernel; inf where it is no number.

    Where the bound reaches beyond the largest number of the dtype, an infinity of the right sign is right.
    """
    largest = torch.finfo(out.dtype).max
    error = (out.double() - reference.out).abs()
    beyond = (reference.out.abs() + reference.bound >= largest) & (out.double() == reference.out.sign() * torch.inf)
    ratio = torch.where(beyond, torch.zeros_like(error), error / reference.bound)
    return float(ratio.nan_to_num(nan=torch.inf).max())


def _rounded(values: torch.Tensor, rounding: Rounding) -> torch.Tensor:
    """Float64 `values` rounded by way of float32, as decoding does."""
    return values if rounding.name == "exact" else values.float().to(getattr(torch, rounding.name)).double()
