"""The corrected quotients of `impls.triton.rounding`, held against division where they decide on a code."""

from __future__ import annotations

# ruff: noqa: N803
import numpy as np
import torch
import triton
import triton.language as tl

from impls.triton.rounding import divide
from tests.triton.quantize_cases import E2M1_BOUNDARIES

NEIGHBOURS = 4
"""Divisors on each side of a boundary. A quotient is wrong by less than one unit in its last place, which is at most two
neighbouring divisors apart."""
BLOCK = 4096


@triton.jit
def _quotients(x, divisor, quotient, count, CORRECTIONS: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = index < count
    b = tl.load(divisor + index, mask=exists, other=1.0)
    a = tl.load(x + index, mask=exists, other=1.0)
    result = divide(a, -b, tl.div_rn(tl.full([BLOCK], 1.0, tl.float32), b), CORRECTIONS)
    tl.store(quotient + index, result, mask=exists)


def pairs(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(dividends, divisors) float32: dividends of `bits` significant bits in [1, 2), all of them or, of more than 11 bits,
    a sample; with each of them the divisors whose quotients lie nearest to each boundary between two codes."""
    count = min(2 ** (bits - 1), 2**13)
    mantissas = np.arange(count) if count == 2 ** (bits - 1) else np.random.default_rng(0).integers(0, 2 ** (bits - 1), count)
    x = (1 + mantissas / 2 ** (bits - 1)).astype(np.float32)
    nearest = (x[:, None] / np.array(E2M1_BOUNDARIES, np.float32)).astype(np.float32)
    near = nearest.view(np.int32)[..., None] + np.arange(-NEIGHBOURS, NEIGHBOURS + 1, dtype=np.int32)
    divisors = near.view(np.float32)
    return np.broadcast_to(x[:, None, None], divisors.shape).ravel().copy(), divisors.ravel()


def wrong_quotients(bits: int, corrections: int, device: torch.device) -> int:
    """How many of `pairs` are not divided as IEEE division rounds them."""
    x, divisors = (torch.from_numpy(each).to(device) for each in pairs(bits))
    got = torch.empty_like(x)
    grid = (-(-len(x) // BLOCK), 1, 1)
    _quotients[grid](x, divisors, got, len(x), corrections, BLOCK)
    return int((got != x / divisors).sum())
