"""Global scales, nibble orders and whole tensors of other libraries, in and out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from impls.layouts import AmaxRatio, GlobalMeaning, Nibbles, from_parts, global_from_amax, swap_nibbles, to_parts
from impls.nvfp4 import NVFP4Tensor, dequantize, quantize
from impls.scale_layouts import ScaleLayout, swizzle

OURS: dict[str, Any] = {
    "global_meaning": GlobalMeaning.DECODE,
    "nibbles": Nibbles.LOW_FIRST,
    "scale_layout": ScaleLayout.LINEAR,
}


def data(*shape: int, seed: int = 0) -> torch.Tensor:
    """Values of both signs with asymmetric neighbours, so that swapped nibbles and permuted scales show."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return x * torch.exp2(torch.arange(x.numel()).view(shape) % 7 - 3.0)


def parts(t: NVFP4Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return t.codes, t.scales, t.global_scale


def assert_same(a: NVFP4Tensor, b: NVFP4Tensor) -> None:
    assert torch.equal(a.codes, b.codes)
    assert torch.equal(a.scales.view(torch.uint8), b.scales.view(torch.uint8))
    assert (a.block_axis, a.length, a.shape) == (b.block_axis, b.length, b.shape)


@pytest.mark.parametrize(
    ("meaning", "nibbles", "layout"), list(itertools.product(GlobalMeaning, Nibbles, ScaleLayout)), ids=lambda e: e.name
)
@pytest.mark.parametrize("axis", [-1, -2])
def test_every_combination_comes_back(meaning: GlobalMeaning, nibbles: Nibbles, layout: ScaleLayout, axis: int) -> None:
    t = quantize(data(2, 3, 64, 128), block_axis=axis)
    how: dict[str, Any] = {"global_meaning": meaning, "nibbles": nibbles, "scale_layout": layout}
    back = from_parts(*to_parts(t, **how), **how, block_axis=axis, length=t.length)
    assert_same(back, t)
    assert abs(back.global_scale.item() / t.global_scale.item() - 1) <= 2.0**-23
    if meaning is GlobalMeaning.DECODE:
        assert torch.equal(back.global_scale, t.global_scale)


def test_length_that_ends_within_a_block_comes_back() -> None:
    t = quantize(data(3, 40))
    assert_same(from_parts(*to_parts(t, **OURS), **OURS, length=40), t)


@pytest.mark.parametrize("wrong", ["nibbles", "scale_layout", "global_meaning"])
def test_a_wrong_convention_gives_other_values(wrong: str) -> None:
    """modular #6600, SGLang #23625, vLLM #50084: divisor for multiplier, nibbles swapped, scales swizzled."""
    t = quantize(data(128, 64))
    other = {
        "nibbles": Nibbles.HIGH_FIRST,
        "scale_layout": ScaleLayout.TILE_128X4,
        "global_meaning": GlobalMeaning.ENCODE,
    }
    codes, scales, g = to_parts(t, **{**OURS, wrong: other[wrong]})
    read = from_parts(codes, scales.view(t.scales.shape), g, **OURS)
    assert not torch.allclose(dequantize(read), dequantize(t), rtol=1e-3)


def test_nibbles() -> None:
    every_byte = torch.arange(256, dtype=torch.uint8)
    assert swap_nibbles(every_byte).tolist() == [(byte % 16) * 16 + byte // 16 for byte in range(256)]
    t = quantize(torch.tensor([1.0, -2.0, *[0.0] * 13, 6.0]), global_scale=1.0)
    assert t.codes[0] == 0xC2
    assert to_parts(t, **{**OURS, "nibbles": Nibbles.HIGH_FIRST})[0][0] == 0x2C


# --- global scales: each row is a library's own number for a tensor of largest magnitude 3 ------------------------------


@pytest.mark.parametrize(
    ("stored", "meaning", "decode"),
    [
        (3 / 2688, GlobalMeaning.DECODE, 3 / 2688),  # torchao
        (448 * 6 / 3, GlobalMeaning.ENCODE, 3 / 2688),  # FlashInfer nvfp4_quantize, compressed-tensors' divisor
        (448 / 3, GlobalMeaning.ENCODE, 3 / 448),  # FlashInfer nvfp4_quantize_paged_kv_cache
        (3 / 448, GlobalMeaning.DECODE, 3 / 448),  # vLLM k_scale
    ],
)
def test_what_libraries_store(stored: float, meaning: GlobalMeaning, decode: float) -> None:
    t = quantize(data(4, 32))
    for given in (stored, torch.tensor(stored), torch.tensor([stored]), torch.tensor(stored, dtype=torch.float64)):
        got = from_parts(t.codes, t.scales, given, **{**OURS, "global_meaning": meaning}).global_scale
        assert (got.dtype, got.shape) == (torch.float32, ())
        assert got.item() == pytest.approx(decode, rel=2.0**-22)


def test_an_encode_multiplier_is_what_a_quantiser_multiplies_by() -> None:
    """FlashInfer's quantiser: scale = e4m3(amax / 6 * encode), value = e2m1 * scale / encode. On powers of two, exact."""
    x = data(4, 64).bfloat16().float()
    encode = 64.0
    blocks = x.view(4, 4, 16)
    scales = (blocks.abs().amax(-1) / 6 * encode).to(torch.float8_e4m3fn)
    ours = quantize(x, global_scale=1 / encode)
    theirs = from_parts(ours.codes, scales, encode, **{**OURS, "global_meaning": GlobalMeaning.ENCODE})
    assert_same(theirs, ours)
    assert torch.equal(dequantize(theirs), dequantize(ours))


def test_global_from_amax() -> None:
    x = data(8, 64)
    amax = x.abs().max().item()
    full = global_from_amax(amax, AmaxRatio.FULL)
    assert full == pytest.approx(quantize(x).global_scale.item(), rel=2.0**-23)
    assert quantize(x, global_scale=full).scales.float().max() == 448
    # 448 / 6 = 74.67 lies between the E4M3 numbers 72 and 80
    assert quantize(x, global_scale=global_from_amax(amax, AmaxRatio.SCALE_ONLY)).scales.float().max() == 72


@pytest.mark.parametrize("amax", [0.0, -1.0, float("nan"), float("inf"), 1e-40])
def test_amax_that_gives_no_global_scale(amax: float) -> None:
    with pytest.raises(ValueError, match=rf"^amax {amax} means value = .* must be a number from 1.18e-38 to 1.27e\+35\.$"):
        global_from_amax(amax, AmaxRatio.FULL)


# --- parts that do not fit --------------------------------------------------------------------------------------------


def test_bytes_of_other_dtypes_are_taken() -> None:
    t = quantize(data(4, 32))
    assert_same(from_parts(t.codes.view(torch.float4_e2m1fn_x2), t.scales.view(torch.uint8), t.global_scale, **OURS), t)


def test_swizzled_padding_may_hold_anything() -> None:
    t = quantize(data(5, 48))
    buffer = swizzle(torch.ones(128, 4).to(torch.float8_e4m3fn), ScaleLayout.TILE_128X4).view(torch.uint8)
    own = swizzle(t.scales, ScaleLayout.TILE_128X4).view(torch.uint8)
    poisoned = torch.where(own == 0, torch.full_like(buffer, 0xFF), own).view(torch.float8_e4m3fn)
    assert_same(from_parts(t.codes, poisoned, t.global_scale, **{**OURS, "scale_layout": ScaleLayout.TILE_128X4}), t)


@pytest.mark.parametrize("byte", [0x7F, 0x80, 0x81, 0xFE, 0xFF])
def test_scale_bytes_that_are_no_scales(byte: int) -> None:
    t = quantize(data(4, 32))
    scales = t.scales.view(torch.uint8).clone()
    scales[2, 1] = byte
    with pytest.raises(ValueError, match=r"^scales hold a negative number or NaN \(a byte above 0x7E\)"):
        from_parts(t.codes, scales, t.global_scale, **OURS)
    assert from_parts(t.codes, scales, t.global_scale, **OURS, check=False).scales.view(torch.uint8)[2, 1] == byte


@pytest.mark.parametrize(
    ("g", "meaning", "sentence"),
    [
        (0.0, "DECODE", "global scale 0 (decode) means value = e2m1 * scale * 0;"),
        (0.0, "ENCODE", "global scale 0 (encode) means value = e2m1 * scale * inf;"),
        (-2.0, "ENCODE", "global scale -2 (encode) means value = e2m1 * scale * -0.5;"),
        (float("nan"), "DECODE", "global scale nan (decode) means value = e2m1 * scale * nan;"),
        (1e36, "DECODE", "global scale 1e+36 (decode) means value = e2m1 * scale * 1e+36;"),
        (1e-36, "ENCODE", "global scale 1e-36 (encode) means value = e2m1 * scale * 1e+36;"),
        (1e300, "DECODE", "global scale inf (decode) means value = e2m1 * scale * inf;"),
        (torch.ones(2), "DECODE", "global_scale must be one number, not a tensor of shape [2]."),
    ],
)
def test_global_scales_that_are_refused(g: torch.Tensor | float, meaning: str, sentence: str) -> None:
    t = quantize(data(4, 32))
    with pytest.raises(ValueError) as caught:
        from_parts(t.codes, t.scales, g, **{**OURS, "global_meaning": GlobalMeaning[meaning]})
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("codes", "scales", "layout", "sentence"),
    [
        (torch.zeros(4, 16), None, "LINEAR", "codes must be bytes, of uint8 or an 8-bit float type, not torch.float32."),
        (None, torch.zeros(4, 2), "LINEAR", "scales must be bytes, of uint8 or an 8-bit float type, not torch.float32."),
        (torch.zeros(4, 15, dtype=torch.uint8), None, "LINEAR", "codes must be [..., rows, blocks * 8], not [4, 15]."),
        (torch.zeros((), dtype=torch.uint8), None, "LINEAR", "codes must be [..., rows, blocks * 8], not []."),
        (torch.zeros(16, dtype=torch.uint8), None, "TILE_64", "codes must be [..., rows, blocks * 8] for TILE_64 scales"),
        (None, None, "TILE_64", "TILE_64 scales of 4 rows x 2 columns must be [..., 64 * 4] of an 8-bit type, not [4, 2]"),
        (torch.zeros(3, 16, dtype=torch.uint8), None, "LINEAR", "NVFP4Tensor: codes [..., blocks * 8] do not fit scales"),
    ],
)
def test_shapes_and_types_that_are_refused(
    codes: torch.Tensor | None, scales: torch.Tensor | None, layout: str, sentence: str
) -> None:
    t = quantize(data(4, 32))
    codes = t.codes if codes is None else codes
    scales = t.scales if scales is None else scales
    with pytest.raises(ValueError) as caught:
        from_parts(codes, scales, 1.0, **{**OURS, "scale_layout": ScaleLayout[layout]})
    assert str(caught.value).startswith(sentence)


def test_no_choice_has_a_default() -> None:
    t = quantize(data(4, 32))
    for left_out in OURS:
        some = {name: choice for name, choice in OURS.items() if name != left_out}
        with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{left_out}'"):
            from_parts(*parts(t), **some)


def test_without_check_nothing_is_read() -> None:
    """On the meta device there is nothing to read: only the check needs contents."""
    t = quantize(torch.ones(130, 48, device="meta"), check=False)
    for layout in (ScaleLayout.LINEAR, ScaleLayout.TILE_128X4, ScaleLayout.TILE_64):
        how: dict[str, Any] = {"global_meaning": GlobalMeaning.ENCODE, "nibbles": Nibbles.HIGH_FIRST, "scale_layout": layout}
        codes, scales, g = to_parts(t, **how)
        assert from_parts(codes, scales, g, **how, check=False).shape == (130, 48)
        with pytest.raises(RuntimeError, match="meta"):
            from_parts(codes, scales, g, **how)
