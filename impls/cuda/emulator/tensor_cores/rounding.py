"""From the adder's exact sum to the bits of D. A zero is +0, and there is one NaN."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from impls.cuda.emulator.tensor_cores.formats import Floats

Output = Literal["f32", "f32 of 13 bits", "f16"]
"""What D is rounded to; 13 fraction bits of an f32 are what Ada's fp8 MMA keeps."""

SINGLE_NAN = np.uint32(0x7FFFFFFF)
HALF_NAN = np.uint16(0x7FFF)


def single_toward_zero(value: Floats) -> npt.NDArray[np.uint32]:
    """f32 bits of `value`, truncated; infinity from 2^128 on."""
    magnitude = np.abs(value)
    single = value.astype(np.float32)  # to nearest: one step too far from zero, or right
    too_far = (np.abs(single) > magnitude) & (magnitude < 2.0**128)
    bits = (single.view(np.uint32) - too_far).view(np.float32)
    bits += np.float32(0)  # -0 + 0 is +0
    return np.where(np.isnan(value), SINGLE_NAN, bits.view(np.uint32))


def half_to_nearest(value: Floats) -> npt.NDArray[np.uint16]:
    """f16 bits of `value`, rounded to nearest even."""
    half = value.astype(np.float16)
    half += np.float16(0)
    return np.where(np.isnan(value), HALF_NAN, half.view(np.uint16))


def single_of_13_bits(value: Floats) -> npt.NDArray[np.uint32]:
    """f32 bits of `value`, truncated to 13 fraction bits."""
    bits = single_toward_zero(value)
    kept = (bits & np.uint32(0xFFFFFC00)).view(np.float32) + np.float32(0)
    return np.where(np.isnan(value), bits, kept.view(np.uint32))


def to(output: Output, value: Floats) -> npt.NDArray[np.unsignedinteger]:
    """Bits of `value` rounded as `output` is."""
    if output == "f16":
        return half_to_nearest(value)
    return single_toward_zero(value) if output == "f32" else single_of_13_bits(value)


def sum_to_nearest(a: npt.NDArray[np.unsignedinteger], b: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.unsignedinteger]:
    """Bits of a + b, both f32 or both f16, rounded to nearest even: FADD and HADD2."""
    floating, nan = (np.float16, HALF_NAN) if a.dtype == np.uint16 else (np.float32, SINGLE_NAN)
    total = a.view(floating) + b.view(floating)
    return np.where(np.isnan(total), nan, total.view(a.dtype))
