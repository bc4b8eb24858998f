"""The definition in `impls.nvfp4`'s docstring, computed by numpy and ml_dtypes: what the tests compare with, bit by bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

from impls.nvfp4 import NVFP4Tensor

Array = NDArray[Any]
E2M1 = ml_dtypes.float4_e2m1fn
E4M3 = ml_dtypes.float8_e4m3fn
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SCALE_BYTES = np.arange(0x7F, dtype=np.uint8)
SCALES = SCALE_BYTES.view(E4M3).astype(np.float32)


def quantize_last_axis(x: Array, global_scale: np.float32) -> tuple[Array, Array]:
    """(codes [..., n] one a byte, scale bytes [..., n / 16]) of float32 x [..., n], n a multiple of 16."""
    assert x.dtype == np.float32
    blocks = x.reshape(*x.shape[:-1], -1, 16)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        scale = np.abs(blocks).max(axis=-1) / (np.float32(6) * global_scale)
        scale = np.minimum(scale, np.float32(448)).astype(E4M3)
        step = (scale.astype(np.float32) * global_scale)[..., None]
        quotient = np.where(step == 0, np.float32(0), blocks / step)
    codes = np.clip(quotient, -6, 6).astype(E2M1).view(np.uint8) & 0xF
    return codes.reshape(x.shape), scale.view(np.uint8)


def default_global_scale(x: Array) -> np.float32:
    """amax / 2688, not below the smallest normal float32; 1 for zeros."""
    amax = np.abs(x).max() if x.size else np.float32(0)
    return np.float32(1) if amax == 0 else max(amax / np.float32(2688), np.float32(2.0**-126))


def unpacked(t: NVFP4Tensor) -> Array:
    """The codes of `t`, one a byte, block axis last, padding included."""
    packed = t.codes.numpy()
    return np.stack((packed & 0xF, packed >> 4), axis=-1).reshape(*packed.shape[:-1], packed.shape[-1] * 2)


def scale_bytes(t: NVFP4Tensor) -> Array:
    array: Array = t.scales.view(torch.uint8).numpy()
    return array


def values(codes: Array, scales: Array, global_scale: float) -> Array:
    """e2m1 * scale * global in float64, where it is exact."""
    e2m1 = codes.astype(np.uint8).view(E2M1).astype(np.float64)
    e4m3 = scales.astype(np.uint8).view(E4M3).astype(np.float64)
    return e2m1 * np.repeat(e4m3, 16, axis=-1) * np.float64(global_scale)


def pack(codes: Array) -> torch.Tensor:
    """uint8 tensor of codes, two a byte, even element low."""
    pairs = codes.astype(np.uint8).reshape(*codes.shape[:-1], -1, 2)
    return torch.from_numpy(pairs[..., 0] | pairs[..., 1] << 4)


def tensor(codes: Array, scales: Array, global_scale: float = 1.0) -> NVFP4Tensor:
    """An NVFP4Tensor of codes [..., n] one a byte and scale bytes [..., n / 16]."""
    bytes_ = torch.from_numpy(np.ascontiguousarray(scales, dtype=np.uint8)).view(torch.float8_e4m3fn)
    return NVFP4Tensor(pack(codes), bytes_, torch.tensor(global_scale, dtype=torch.float32))


def assert_same_bits(t: NVFP4Tensor, x: Array, global_scale: np.float32) -> None:
    """`t` is what the definition makes of float32 x [..., n] (block axis last, any n)."""
    padded = np.concatenate([x, np.zeros((*x.shape[:-1], -x.shape[-1] % 16), np.float32)], axis=-1)
    codes, scales = quantize_last_axis(padded, global_scale)
    np.testing.assert_array_equal(np.float32(t.global_scale.item()), global_scale)
    np.testing.assert_array_equal(scale_bytes(t), scales)
    np.testing.assert_array_equal(unpacked(t), codes)
