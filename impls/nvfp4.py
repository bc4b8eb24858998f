"""NVFP4, the number format: E2M1 codes, one E4M3 scale per 16 of them, one float32 scale per tensor.

    value = e2m1(code) * e4m3(scale) * global_scale

Layout of an `NVFP4Tensor` made from data [..., n] with blocks along the last axis:

    codes   uint8          [..., ceil(n/16) * 8]   two codes a byte, even element in the low nibble
    scales  float8_e4m3fn  [..., ceil(n/16)]       bytes 0x00 to 0x7E, one per 16 codes, never swizzled
    global  float32        []                      a *decode* multiplier; by default amax / (448 * 6)

The block axis is always stored last: blocks along the tokens of V [B, H, S, D] give codes [B, H, D, ceil(S/16) * 8].

Rounding is to nearest, ties to even, on float32 quotients. Each arrow is one IEEE float32 operation:

    scale = e4m3(max|block| / (6 * global))        saturates at 448; a block below 6 * 2^-10 * global becomes zero
    code  = e2m1(x / (scale * global))             saturates at 6; the sign of a zero is kept

A block whose scale is zero has codes 0 throughout: it has no sign to keep.

Formats: OCP Microscaling Formats v1.0, section 5.3.3 (E2M1); OCP 8-bit Floating Point v1.0 (E4M3).
Other layouts and conventions come in and go out through `impls.layouts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

BLOCK = 16  # values that share one scale
E2M1_MAX = 6.0
E4M3_MAX = 448.0
E4M3_NAN = 0x7F  # the one byte of 0x00..0x7F that is no scale
GLOBAL_MAX_RATIO = E2M1_MAX * E4M3_MAX  # 2688: amax / global_scale when the whole range is used
GLOBAL_SCALE_MIN = 2.0**-126  # the smallest normal float32: a subnormal global scale would lose its own digits
GLOBAL_SCALE_MAX = (2.0**128 - 2.0**104) / GLOBAL_MAX_RATIO  # of the largest float32 (exact): every NVFP4 value is finite
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@dataclass(frozen=True)
class NVFP4Tensor:
    """A tensor of NVFP4 values, the block axis stored last.

    Raises ValueError when the parts do not fit together. Contents are not read: building one never synchronises.
    """

    codes: torch.Tensor
    """uint8 [..., blocks * 8], two E2M1 codes a byte, the even element in the low nibble."""
    scales: torch.Tensor
    """float8_e4m3fn [..., blocks], linear."""
    global_scale: torch.Tensor
    """float32, 0-d, on the same device: value = e2m1 * scale * global_scale."""
    block_axis: int = -1
    """The axis of the original data that blocks run along, counted from the end."""
    length: int = -1
    """Real entries along the block axis; what lies beyond may hold anything. -1: all of them."""

    def __post_init__(self) -> None:
        import torch

        for name in ("codes", "scales", "global_scale"):
            if not isinstance(getattr(self, name), torch.Tensor):
                raise ValueError(f"NVFP4Tensor: {name} must be a tensor, not {type(getattr(self, name)).__name__}.")
            if reason := why_not_plain(getattr(self, name)):
                raise ValueError(f"NVFP4Tensor: {name} {reason}")
        for name in ("block_axis", "length"):
            if not isinstance(getattr(self, name), int) or isinstance(getattr(self, name), bool):
                raise ValueError(f"NVFP4Tensor: {name} must be a whole number, not {getattr(self, name)!r}.")
        blocks = self.scales.shape[-1] if self.scales.ndim else 0
        if self.length == -1:
            object.__setattr__(self, "length", blocks * BLOCK)
        wrong = None
        if self.codes.dtype != torch.uint8:
            wrong = f"codes must be uint8, not {self.codes.dtype}"
        elif self.scales.dtype != torch.float8_e4m3fn:
            wrong = f"scales must be float8_e4m3fn, not {self.scales.dtype}"
        elif self.codes.ndim < 1 or tuple(self.codes.shape) != (*self.scales.shape[:-1], blocks * BLOCK // 2):
            shapes = f"{list(self.codes.shape)} and {list(self.scales.shape)}"
            wrong = f"codes [..., blocks * 8] do not fit scales [..., blocks]: {shapes}"
        elif self.global_scale.dtype != torch.float32 or self.global_scale.ndim != 0:
            wrong = f"global_scale must be a 0-d float32 tensor, not {self.global_scale.dtype} {list(self.global_scale.shape)}"
        elif not self.codes.device == self.scales.device == self.global_scale.device:
            devices = f"{self.codes.device}, {self.scales.device} and {self.global_scale.device}"
            wrong = f"codes, scales and global_scale must be on one device, not {devices}"
        elif not -self.codes.ndim <= self.block_axis <= -1:
            wrong = f"block_axis counts from the end, -1 to -{self.codes.ndim}, and is {self.block_axis}"
        elif self.length < 0 or -(-self.length // BLOCK) != blocks:
            wrong = f"length {self.length} does not end in the last of {blocks} blocks of {BLOCK}"
        if wrong:
            raise ValueError(f"NVFP4Tensor: {wrong}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the data it stands for, in the order of the original axes."""
        stored = [*self.codes.shape[:-1], self.length]
        stored.insert(len(stored) + self.block_axis, stored.pop())
        return tuple(stored)

    @property
    def device(self) -> torch.device:
        return self.codes.device

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales, padding included."""
        return self.codes.numel() + self.scales.numel()

    def to(self, device: torch.device | str) -> NVFP4Tensor:
        """The same tensor on another device."""
        return NVFP4Tensor(
            self.codes.to(device), self.scales.to(device), self.global_scale.to(device), self.block_axis, self.length
        )


def why_not_plain(tensor: torch.Tensor) -> str | None:
    """None if a kernel can read `tensor` by its address and strides, else what follows its name in a sentence."""
    import torch

    if tensor.layout != torch.strided:
        return f"must be a dense tensor, not {str(tensor.layout).removeprefix('torch.')}."
    if tensor.is_neg() or tensor.is_conj():
        return "is a view whose values are negated or conjugated when read; pass resolve_neg() or resolve_conj() of it."
    return None


def quantize(
    x: torch.Tensor,
    *,
    block_axis: int = -1,
    global_scale: torch.Tensor | float | None = None,
    check: bool = True,
    backend: str | None = None,
) -> NVFP4Tensor:
    """Round `x` [any shape, bfloat16, float16, float32 or float64] to NVFP4 with blocks of 16 along `block_axis`.

    `global_scale` is a decode multiplier from 2^-126 to the largest float32 / 2688, a number or a 0-d tensor; left out,
    it is max|x| / 2688 (1 for a tensor of zeros).
    Raises ValueError on NaN or Inf, on data of another dtype or of a tensor without data (meta), or on a global scale out of
    range. The result carries no autograd graph.
    `check=False` reads nothing back, so it never synchronises. A NaN then makes its block NaN, and an Inf saturates like
    any value too large; with the default global scale either of them makes the whole tensor NaN.

    `backend` is "torch" (any device and dtype), "triton" (the kernels of `impls.triton.quantize`; ValueError where they
    cannot run), or None: Triton for what lies on a CUDA device and its kernels take, else torch. Both give the same bits.
    """
    import torch

    if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
        what = x.layout if isinstance(x, torch.Tensor) else type(x).__name__
        raise ValueError(f"quantize takes a dense tensor, not {what}.")
    if not x.is_floating_point() or x.ndim == 0:
        raise ValueError(f"quantize takes a floating-point tensor with at least one axis, not {x.dtype} {list(x.shape)}.")
    if x.dtype not in _dtypes():
        raise ValueError(f"quantize takes bfloat16, float16, float32 or float64, not {str(x.dtype).removeprefix('torch.')}.")
    if check and x.is_meta:
        raise ValueError("quantize cannot check a meta tensor, which has no data; say check=False.")
    x = x.detach().resolve_neg()
    if not isinstance(block_axis, int) or isinstance(block_axis, bool):
        raise ValueError(f"block_axis must be a whole number, not {block_axis!r}.")
    axis = block_axis - x.ndim if block_axis >= 0 else block_axis
    if not -x.ndim <= axis <= -1:
        raise ValueError(f"block_axis {block_axis} is not an axis of a tensor of shape {list(x.shape)}.")
    by_triton = _chooses_triton(backend, x, axis)
    if check and not bool(torch.isfinite(x.float() if x.dtype == torch.float64 else x).all()):
        raise ValueError("quantize: the tensor holds NaN or Inf (float64 beyond the float32 range counts as Inf).")
    scale = None
    if global_scale is not None:
        scale = as_global_scale(global_scale, x.device)
        if scale.ndim != 0:
            raise ValueError(f"quantize: global_scale must be one number, not a tensor of shape {list(scale.shape)}.")
        if check and not GLOBAL_SCALE_MIN <= float(scale) <= GLOBAL_SCALE_MAX:
            limits = f"{GLOBAL_SCALE_MIN:.3g} to {GLOBAL_SCALE_MAX:.3g}"
            raise ValueError(f"quantize: global_scale must be a number from {limits}, not {global_scale!s:.60}.")
    if by_triton:
        from impls.triton.quantize import Quantizer

        quantizer = Quantizer(x, block_axis=axis, global_scale=scale)
        quantizer()
        return quantizer.result
    values = x.movedim(axis, -1).float()
    if scale is None:
        scale = default_global_scale(values)
    codes, scales = _quantize_last_axis(values, scale)
    return NVFP4Tensor(codes, scales, scale, block_axis=axis, length=x.shape[axis])


def _chooses_triton(backend: str | None, x: torch.Tensor, axis: int) -> bool:
    """Whether Triton's kernels are to round `x`. Raises ValueError where they are asked for and cannot."""
    if backend not in (None, "torch", "triton"):
        raise ValueError(f"quantize: backend is torch, triton or None, not {backend!r}.")
    if backend == "torch" or (backend is None and not x.is_cuda):
        return False
    from impls.triton.quantize import why_not

    reason = why_not(x, axis)
    if reason and backend == "triton":
        raise ValueError(f"quantize: {reason}")
    return reason is None


def as_global_scale(given: torch.Tensor | float, device: torch.device) -> torch.Tensor:
    """A number or a tensor as float32 on `device`, Inf where it is beyond float32.

    A number is filled in on the device: copying it over would synchronise.
    """
    import torch

    if isinstance(given, torch.Tensor):
        if given.is_complex() or given.layout != torch.strided:
            raise ValueError(f"global_scale must be dense and real, not {given.layout}, {given.dtype}.")
        return given.detach().resolve_neg().to(device, torch.float32)
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise ValueError(f"global_scale must be a number or a tensor, not {given!r}.")
    try:
        number = float(given)
    except OverflowError:  # a whole number may be beyond every float
        number = math.inf if given > 0 else -math.inf
    return torch.full((), number, dtype=torch.float64, device=device).float()


def _dtypes() -> tuple[torch.dtype, ...]:
    """What can be rounded, and what values are given in."""
    import torch

    return torch.bfloat16, torch.float16, torch.float32, torch.float64


def default_global_scale(values: torch.Tensor, *, per_row: bool = False) -> torch.Tensor:
    """max|values| / 2688 as float32 [] (or [..., 1], one per row of the last axis); 1 where all is zero."""
    import torch

    if values.numel() == 0:
        return torch.ones((*values.shape[:-1], 1) if per_row else (), dtype=torch.float32, device=values.device)
    amax = values.abs().amax(dim=-1, keepdim=True) if per_row else values.abs().amax()
    amax = amax.float()
    # by a tensor: torch divides by a number on a GPU as a product with its reciprocal, which may be one bit off
    scale = (amax / torch.full_like(amax, GLOBAL_MAX_RATIO)).clamp(min=GLOBAL_SCALE_MIN)
    return torch.where(amax == 0, torch.ones_like(scale), scale)


def dequantize(t: NVFP4Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The values of `t` in the order of the original axes, float32 unless `dtype` is given.

    The product is formed in float64, where it is exact, and rounded to float32; a 16-bit `dtype` rounds once more.
    Raises ValueError on what is no NVFP4Tensor, and on a dtype other than bfloat16, float16, float32 and float64.
    """
    import torch

    if not isinstance(t, NVFP4Tensor):
        raise ValueError(f"dequantize takes an NVFP4Tensor, not {type(t).__name__}.")
    if dtype is not None and dtype not in _dtypes():
        raise ValueError(f"dequantize gives bfloat16, float16, float32 or float64, not {dtype!r}.")
    exact = decode(t).double() * t.global_scale.double()
    return exact if dtype == torch.float64 else exact.float().to(dtype or torch.float32)


def decode(t: NVFP4Tensor) -> torch.Tensor:
    """e2m1 * scale without the global scale, float32, original axes: 6 significant bits, so exact in bf16 and f16 too."""
    values = unpack_codes(t.codes)
    values = values.unflatten(-1, (-1, BLOCK)) * t.scales.float().unsqueeze(-1)
    return values.flatten(-2)[..., : t.length].movedim(-1, t.block_axis)


def round_rows(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round each row of `q` [..., D] to NVFP4 with a global scale of its own, the meaning of `nvfp4` for queries.

    Returns (values [..., D] float32 without the row factor, row factor [..., 1] float32).
    """
    import torch

    rows = q.float()
    factor = default_global_scale(rows, per_row=True)
    codes, scales = _quantize_last_axis(rows, factor)
    unit = torch.ones((), dtype=torch.float32, device=q.device)
    return decode(NVFP4Tensor(codes, scales, unit, length=q.shape[-1])), factor


def unpack_codes(codes: torch.Tensor) -> torch.Tensor:
    """E2M1 values [..., 2n] float32 of packed codes [..., n] uint8.

    The sign, exponent and mantissa bits of E2M1 are put where float16 has them, subnormals included; its exponent bias
    is larger by 15 - 1. A table of the values would have to be copied to the device, and waited for, at every call.
    """
    import torch

    nibbles = torch.stack((codes & 0xF, codes >> 4), dim=-1).flatten(-2).to(torch.int16)
    float16_bits = (nibbles & 0x7) << 9 | (nibbles & 0x8) << 12
    return float16_bits.view(torch.float16).float() * 2.0**14


def _quantize_last_axis(values: torch.Tensor, global_scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes, scales) of float32 `values` [..., n]; `global_scale` is [] or [..., 1]."""
    import torch

    padding = -values.shape[-1] % BLOCK
    # contiguous, or the strides of a moved block axis would live on in codes and scales
    blocks = torch.nn.functional.pad(values.contiguous(), (0, padding)).unflatten(-1, (-1, BLOCK))
    amax = blocks.abs().amax(dim=-1)
    # abs: the sign of a NaN that is made here would differ from processor to processor
    scales = (amax / (E2M1_MAX * global_scale)).abs().clamp(max=E4M3_MAX).to(torch.float8_e4m3fn)
    step = (scales.float() * global_scale).unsqueeze(-1)
    zero = torch.zeros_like(blocks)
    codes = _e2m1_codes(torch.where(step == 0, zero, blocks / step), torch.where(step == 0, zero, blocks)).flatten(-2)
    return codes[..., 0::2] | codes[..., 1::2] << 4, scales


def _e2m1_codes(x: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """uint8 codes of the magnitudes of float32 `x`, to nearest, ties to even, saturating at 6, and the signs of `signs`.

    E2M1 has three spacings: 0.5 below 2 (codes 0-3), 1 up to 4 (codes 4-5), 2 above (codes 6-7), so
    code = round_half_even(|x| / spacing) + (0, 2 or 4). NaN becomes 6: its block's scale is NaN already.
    """
    import torch

    magnitude = x.abs().clamp(max=E2M1_MAX).nan_to_num(nan=E2M1_MAX)
    spacing = torch.where(magnitude < 2, 0.5, torch.where(magnitude < 4, 1.0, 2.0))
    code = torch.round(magnitude / spacing) + 2.0 * (spacing > 0.5) + 2.0 * (spacing > 1.0)
    return code.to(torch.uint8) | torch.signbit(signs).to(torch.uint8) << 3
