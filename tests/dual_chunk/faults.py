"""Inner implementations with one fault each, in chunks: what merges them cannot see it, and the gate must.

nvfp4bench gate --on cpu --impl tests/dual_chunk/faults.py:BaseTwo
"""

from __future__ import annotations

import math

from impls.contract import Inputs, Output
from impls.dual_chunk import DualChunkAttention
from tests.numerics.faults import Unfaulted


class _BaseTwoInside(Unfaulted):
    """States its LSE to the base 2, as kernels hold it, and not as the contract has it."""

    def after(self, i: Inputs, output: Output) -> None:
        output.lse.div_(math.log(2))


class _EmptyIsZeroInside(Unfaulted):
    """States the LSE of a row that sees no key as 0: a chunk that nothing is seen of counts as one key."""

    def after(self, i: Inputs, output: Output) -> None:
        output.lse.nan_to_num_(neginf=0.0)


class RightInside(DualChunkAttention):
    def __init__(self) -> None:
        super().__init__("RightInside", Unfaulted())


class BaseTwo(DualChunkAttention):
    def __init__(self) -> None:
        super().__init__("BaseTwo", _BaseTwoInside())


class EmptyIsZero(DualChunkAttention):
    def __init__(self) -> None:
        super().__init__("EmptyIsZero", _EmptyIsZeroInside())
