"""Caches in the formats that peers read, made of NVFP4 tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from impls.contract import Cache
from impls.nvfp4 import E4M3_MAX, NVFP4Tensor, decode

PAGE_SIZE = 64
"""Tokens in a page of what FlashInfer reads."""
CHUNK = 2**28
"""Values decoded at a time: they pass through several float32 temporaries."""


@dataclass(frozen=True)
class ConvertedCache(Cache):
    """K and V in another format, in `extra`; the NVFP4 tensors stay for their shapes alone, and no kernel reads them."""

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.extra.values())


def decoded(t: NVFP4Tensor, dtype: str) -> torch.Tensor:
    """[B, H, S, D] in bfloat16, float16 or float8_e4m3fn of a dense cache: the float32 value, rounded once.

    The values are those of `nvfp4.dequantize`: e2m1 * scale is exact in float32, so its product with the global scale is
    rounded as the exact product is. E4M3 takes no scale of its own and saturates at 448, as the reference's rounding does.
    Raises ValueError where float16 cannot hold a value.
    """
    batch, heads, tokens, dim = t.shape
    codes, scales = t.codes.flatten(0, 1), t.scales.flatten(0, 1)
    out = torch.empty(batch * heads, tokens, dim, dtype=getattr(torch, dtype), device=t.device)
    step = max(1, CHUNK // max(tokens * dim, 1))
    for first in range(0, batch * heads, step):
        part = slice(first, first + step)
        block_axis = -1 if t.block_axis == -1 else -2
        values = decode(NVFP4Tensor(codes[part], scales[part], t.global_scale, block_axis, t.length)) * t.global_scale
        out[part] = values.clamp(-E4M3_MAX, E4M3_MAX) if dtype == "float8_e4m3fn" else values
    if dtype == "float16" and not bool(torch.isfinite(out).all()):
        raise ValueError("the decoded cache holds values beyond float16; use bfloat16 queries, whose caches reach as far.")
    return out.unflatten(0, (batch, heads))


def paged(x: torch.Tensor) -> torch.Tensor:
    """[B, H, S, W] cut into pages [B * n, H, PAGE_SIZE, W] (HND), n a sequence, one after the other; the rest is zero."""
    data = x.view(torch.uint8) if x.element_size() == 1 else x  # E4M3 is not padded as such
    data = pad(data, (0, 0, 0, -x.shape[2] % PAGE_SIZE))
    pages = data.unflatten(2, (-1, PAGE_SIZE)).transpose(1, 2).flatten(0, 1).contiguous()
    return pages.view(x.dtype)


def dense_cache(k4: NVFP4Tensor, v4: NVFP4Tensor, dtype: str) -> ConvertedCache:
    """`k` [B, Hkv, Sk, D] and `v` [B, Hkv, Sk, Dv] in `dtype`."""
    return ConvertedCache(k4, v4, {"k": decoded(k4, dtype), "v": decoded(v4, dtype)}, layout=f"{dtype} dense")


def paged_cache(k4: NVFP4Tensor, v4: NVFP4Tensor, dtype: str) -> ConvertedCache:
    """`k` and `v` in `dtype`, in pages [pages, Hkv, PAGE_SIZE, D]."""
    extra = {"k": paged(decoded(k4, dtype)), "v": paged(decoded(v4, dtype))}
    return ConvertedCache(k4, v4, extra, layout=_layout(dtype))


def nvfp4_paged_cache(k4: NVFP4Tensor, v4: NVFP4Tensor) -> ConvertedCache:
    """The codes `k`, `v` [pages, Hkv, PAGE_SIZE, D / 2] and scales `k_scales`, `v_scales` [..., D / 16], both linear."""
    parts = {"k": k4.codes, "v": v4.codes, "k_scales": k4.scales, "v_scales": v4.scales}
    return ConvertedCache(k4, v4, {name: paged(t) for name, t in parts.items()}, layout=_layout("nvfp4"))


def _layout(what: str) -> str:
    return f"{what} in pages of {PAGE_SIZE}, HND"
