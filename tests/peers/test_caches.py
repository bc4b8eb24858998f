"""Converted caches hold the values that the reference rounds to, each where the kernel will look for it."""

from __future__ import annotations

import pytest
import torch

from impls.contract import Rounding
from impls.nvfp4 import NVFP4Tensor, dequantize, quantize
from impls.peers import caches
from impls.peers.caches import PAGE_SIZE, decoded, dense_cache, nvfp4_paged_cache, paged, paged_cache
from impls.reference import round_operand

BATCH, HEADS, TOKENS, DIM = 2, 3, 150, 64
PAGES = -(-TOKENS // PAGE_SIZE)


def cache(global_scale: float = 0.37, block_axis: int = -1) -> NVFP4Tensor:
    """Every value differs from its neighbours along each axis, and so do the block scales."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, HEADS, TOKENS, DIM, generator=g) * torch.rand(BATCH, HEADS, TOKENS, 1, generator=g).exp2()
    return quantize(x * global_scale * 300, block_axis=block_axis, global_scale=global_scale)


def from_pages(pages: torch.Tensor) -> torch.Tensor:
    """[B * n, H, PAGE_SIZE, W] back to [B, H, n * PAGE_SIZE, W], token by token."""
    assert pages.shape[:3] == (BATCH * PAGES, HEADS, PAGE_SIZE)
    return torch.stack(
        [
            torch.stack([pages[sequence * PAGES + t // PAGE_SIZE, :, t % PAGE_SIZE] for t in range(PAGES * PAGE_SIZE)], dim=1)
            for sequence in range(BATCH)
        ]
    )


@pytest.mark.parametrize("block_axis", [-1, -2])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
@pytest.mark.parametrize("chunk", [2**28, TOKENS * DIM])
def test_decoded_values_are_those_of_the_declared_rounding(
    dtype: str, block_axis: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "CHUNK", chunk)
    t = cache(block_axis=block_axis)
    found = decoded(t, dtype)
    assert found.dtype == getattr(torch, dtype)
    assert found.is_contiguous()
    wanted = round_operand(dequantize(t, torch.float64), Rounding(dtype.removesuffix("fn")))
    assert torch.equal(found.double(), wanted)
    assert bool((found.float().abs().amax() == 448) == (dtype == "float8_e4m3fn"))  # E4M3 saturates, as the data would have it


@pytest.mark.parametrize("global_scale", [1e-30, 1e30])
def test_decoding_equals_the_exact_product_rounded_once(global_scale: float) -> None:
    t = cache(global_scale)
    assert torch.equal(decoded(t, "bfloat16"), dequantize(t, torch.bfloat16))


def test_values_beyond_float16_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^the decoded cache holds values beyond float16; "):
        decoded(cache(1e3), "float16")


def test_codes_and_scales_of_nvfp4_pages_decode_to_the_tensor() -> None:
    k4, v4 = cache(0.37), cache(5.1)
    packed = nvfp4_paged_cache(k4, v4)
    for t, codes, scales in ((k4, "k", "k_scales"), (v4, "v", "v_scales")):
        parts = [from_pages(packed.extra[name]) for name in (codes, scales)]
        assert parts[0].dtype == torch.uint8
        assert parts[1].dtype == torch.float8_e4m3fn
        there = NVFP4Tensor(parts[0], parts[1], t.global_scale)
        assert torch.equal(dequantize(there)[:, :, :TOKENS], dequantize(t))
        assert not dequantize(there)[:, :, TOKENS:].any()


def test_pages_of_a_strided_cache() -> None:
    t = cache()
    wide = torch.full((BATCH, TOKENS, HEADS, DIM), 0xFF, dtype=torch.uint8)
    wide[..., : DIM // 2] = t.codes.transpose(1, 2)
    assert torch.equal(paged(wide[..., : DIM // 2].transpose(1, 2)), paged(t.codes))


@pytest.mark.parametrize("tokens", [PAGE_SIZE, 2 * PAGE_SIZE, 1])
def test_whole_pages_get_no_more(tokens: int) -> None:
    x = torch.arange(2 * tokens * 16, dtype=torch.bfloat16).view(1, 2, tokens, 16)
    assert paged(x).shape == (-(-tokens // PAGE_SIZE), 2, PAGE_SIZE, 16)
    assert torch.equal(paged(x).transpose(0, 1).flatten(1, 2)[None, :, :tokens], x)


def test_bytes_are_what_a_kernel_can_read() -> None:
    k4, v4 = cache(), cache()
    values = BATCH * HEADS * DIM
    assert dense_cache(k4, v4, "bfloat16").nbytes == 2 * values * TOKENS * 2
    assert paged_cache(k4, v4, "float8_e4m3fn").nbytes == 2 * values * PAGES * PAGE_SIZE
    assert nvfp4_paged_cache(k4, v4).nbytes == 2 * values * PAGES * PAGE_SIZE * 9 // 16


def test_layouts_are_told_in_words() -> None:
    k4, v4 = cache(), cache()
    assert dense_cache(k4, v4, "float16").layout == "float16 dense"
    assert nvfp4_paged_cache(k4, v4).layout == "nvfp4 in pages of 64, HND"
    assert dense_cache(k4, v4, "float16").k4 is k4
