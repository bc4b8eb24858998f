"""Converters between `NVFP4Tensor` and what other libraries store: global scales, nibble order, scale layouts.

    flashinfer = {"global_meaning": GlobalMeaning.ENCODE, "nibbles": Nibbles.LOW_FIRST, "scale_layout": ScaleLayout.TILE_128X4}
    t = from_parts(codes, scales, g, **flashinfer)
    codes, scales, g = to_parts(t, **flashinfer)

Nothing has a default, because every choice is the right one for some library and silently wrong for the others:

    library                                         global meaning   scale layout
    torchao, compressed-tensors                     DECODE, ENCODE   LINEAR (torchao also TILE_128X4)
    FlashInfer nvfp4_quantize, ThunderKittens       ENCODE           TILE_128X4 (FlashInfer also LINEAR)
    cuBLAS, CUTLASS, Transformer Engine             DECODE           TILE_128X4
    FlashInfer FA2 and XQA, nvfp4_kv_quantize       DECODE           LINEAR
    trtllm-gen and vLLM pages (k_scale, v_scale)    DECODE           LINEAR for K, TOKEN_4 for V
    SageAttention3, FlashInfer sm_120 attention     none: pass 1     TILE_64

All of these keep the even element in the low nibble. Scale layouts are in `impls.scale_layouts`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from impls.nvfp4 import (
    BLOCK,
    E4M3_MAX,
    E4M3_NAN,
    GLOBAL_MAX_RATIO,
    GLOBAL_SCALE_MAX,
    GLOBAL_SCALE_MIN,
    NVFP4Tensor,
    as_global_scale,
)
from impls.scale_layouts import ScaleLayout, swizzle, unswizzle

if TYPE_CHECKING:
    import torch


class GlobalMeaning(Enum):
    """What a stored global scale g does to a value."""

    DECODE = "decode"
    """value = e2m1 * scale * g: our own, amax / 2688, and vLLM's k_scale, amax / 448."""
    ENCODE = "encode"
    """value = e2m1 * scale / g: the multiplier of a quantiser, 2688 / amax or 448 / amax, and any stored divisor."""


class AmaxRatio(Enum):
    """How much of the range of e2m1 * scale the largest magnitude of a tensor is mapped to."""

    FULL = GLOBAL_MAX_RATIO
    """448 * 6 = 2688: the largest scale is 448."""
    SCALE_ONLY = E4M3_MAX
    """448, as vLLM's k_scale and FlashInfer's paged quantiser: the largest scale is 448 / 6, about 75."""


class Nibbles(Enum):
    """Which half of a byte holds the element of even index."""

    LOW_FIRST = "low"
    HIGH_FIRST = "high"


def from_parts(
    codes: torch.Tensor,
    scales: torch.Tensor,
    global_scale: torch.Tensor | float,
    *,
    global_meaning: GlobalMeaning,
    nibbles: Nibbles,
    scale_layout: ScaleLayout,
    block_axis: int = -1,
    length: int = -1,
    check: bool = True,
) -> NVFP4Tensor:
    """The `NVFP4Tensor` of another library's `codes` [..., rows, blocks * 8], `scales` and `global_scale`.

    `codes` are bytes of any 8-bit dtype, `scales` float8_e4m3fn or their bytes: [..., rows, blocks] where linear, else
    [..., n] as `swizzle` gives them (flatten the last axes of a buffer that has more). The block axis is stored last;
    `block_axis` and `length` are those of `NVFP4Tensor`.
    Raises ValueError when the parts do not fit, when a scale is negative or NaN, or when the global scale is out of
    range; `check=False` reads no contents, so it never synchronises.
    """
    import torch

    for name, tensor in (("codes", codes), ("scales", scales)):
        if tensor.element_size() != 1:
            raise ValueError(f"{name} must be bytes, of uint8 or an 8-bit float type, not {tensor.dtype}.")
    codes = codes.view(torch.uint8)
    if codes.ndim == 0 or codes.shape[-1] % (BLOCK // 2):
        raise ValueError(f"codes must be [..., rows, blocks * 8], not {list(codes.shape)}.")
    blocks = codes.shape[-1] * 2 // BLOCK
    if scale_layout is not ScaleLayout.LINEAR:
        if codes.ndim < 2:
            raise ValueError(f"codes must be [..., rows, blocks * 8] for {scale_layout.name} scales, not {list(codes.shape)}.")
        scales = unswizzle(scales, scale_layout, codes.shape[-2], blocks)
    scales = scales.view(torch.float8_e4m3fn)
    if check and bool((scales.view(torch.uint8) >= E4M3_NAN).any()):
        raise ValueError("scales hold a negative number or NaN (a byte above 0x7E), or are not in the layout that was named.")
    return NVFP4Tensor(
        codes if nibbles is Nibbles.LOW_FIRST else swap_nibbles(codes),
        scales,
        _as_decode(global_scale, global_meaning, codes.device, check),
        block_axis,
        length,
    )


def to_parts(
    t: NVFP4Tensor, *, global_meaning: GlobalMeaning, nibbles: Nibbles, scale_layout: ScaleLayout
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(codes, scales, global scale) of `t` as another library wants them; the inverse of `from_parts`.

    Codes, scales and their layouts come back bit by bit. A global scale that goes through ENCODE is a reciprocal twice,
    which may move it by one unit in the last place.
    """
    return (
        t.codes if nibbles is Nibbles.LOW_FIRST else swap_nibbles(t.codes),
        t.scales if scale_layout is ScaleLayout.LINEAR else swizzle(t.scales, scale_layout),
        t.global_scale if global_meaning is GlobalMeaning.DECODE else t.global_scale.reciprocal(),
    )


def global_from_amax(amax: float, ratio: AmaxRatio) -> float:
    """The decode global scale of a tensor whose largest magnitude is, or was calibrated to be, `amax`: amax / ratio.

    Raises ValueError unless the result is a normal float32 that leaves every value finite.
    """
    return _in_range(amax / ratio.value, f"amax {amax}")


def swap_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """uint8 `codes` with the halves of each byte exchanged: high-nibble-first to low-nibble-first, and back."""
    return codes >> 4 | codes << 4


def _as_decode(given: torch.Tensor | float, meaning: GlobalMeaning, device: torch.device, check: bool) -> torch.Tensor:
    """The decode multiplier as a 0-d float32 tensor on `device`."""
    g = as_global_scale(given, device)
    if g.numel() != 1:
        raise ValueError(f"global_scale must be one number, not a tensor of shape {list(g.shape)}.")
    g = g.reshape(())
    decode = g if meaning is GlobalMeaning.DECODE else g.reciprocal()
    if check:
        _in_range(float(decode), f"global scale {float(g):.6g} ({meaning.value})")
    return decode


def _in_range(decode: float, origin: str) -> float:
    if not GLOBAL_SCALE_MIN <= decode <= GLOBAL_SCALE_MAX:
        limits = f"{GLOBAL_SCALE_MIN:.3g} to {GLOBAL_SCALE_MAX:.3g}"
        raise ValueError(f"{origin} means value = e2m1 * scale * {decode:.6g}; that factor must be a number from {limits}.")
    return decode
