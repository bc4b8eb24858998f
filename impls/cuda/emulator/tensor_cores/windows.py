"""The tensor core's adder: terms and C are cut to one window of bits, then summed without error.

            q + window = the largest encoded exponent
            |
    term 0  1xxxxxxxxxxxxxxx|xxx      each term and C is truncated toward zero to a multiple of 2^q,
    term 1      1xxxxxxxxxxx|xxxxxx   the multiples are summed as integers,
    C         1xxxxxxxxxxxxx|xx       the sum is rounded once, to D
                            q

A float64 holds it all: a term has at most 2^(window + 12) units and there are at most 32 (window 25) or 4 (window 35), so the
sum stays below 2^53. Infinities and NaNs go through the same operations and meet as IEEE 754 says.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from impls.cuda.emulator.tensor_cores.formats import Exponents, Floats

_LOWEST = -600
"""Exponent of a sum without a term, below that of any term."""


def fused_sum(terms: Floats, exponents: Exponents, c: Floats, c_exponents: Exponents, window: int) -> Floats:
    """Sum of `terms` [k, ...] and `c` [...], each truncated to 2^(largest exponent - window). `terms` is scratch afterwards."""
    largest = np.maximum(exponents.max(axis=0), c_exponents)
    quantum = np.maximum(largest, _LOWEST).astype(np.int64) - window
    units = _power_of_two(-quantum)
    terms *= units
    np.trunc(terms, out=terms)
    total = terms.sum(axis=0)
    total += np.trunc(c * units)
    total *= _power_of_two(quantum)
    return total


def _power_of_two(exponent: npt.NDArray[np.int64]) -> Floats:
    return ((exponent + 1023) << 52).view(np.float64)
