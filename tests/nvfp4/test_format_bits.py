"""Codes and scales are those of round-to-nearest-even, bit by bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from impls.nvfp4 import (
    E2M1_VALUES,
    GLOBAL_SCALE_MAX,
    NVFP4Tensor,
    decode,
    dequantize,
    quantize,
    round_rows,
    unpack_codes,
)
from tests.nvfp4.definition import (
    E4M3,
    MAGNITUDES,
    SCALE_BYTES,
    SCALES,
    Array,
    assert_same_bits,
    default_global_scale,
    pack,
    scale_bytes,
    tensor,
    unpacked,
    values,
)

F32_MAX = float(np.finfo(np.float32).max)


def block_with_scale_one(*elements: float) -> torch.Tensor:
    """[16] float32 whose largest magnitude is 6, so that under a global scale of 1 each element is its own quotient."""
    return torch.tensor([*elements, *[0.0] * (15 - len(elements)), 6.0])


def one_block(amax: float) -> torch.Tensor:
    return torch.tensor([amax, *[0.0] * 15])


def below(x: float) -> float:
    return float(np.nextafter(np.float32(x), np.float32(0)))


def above(x: float) -> float:
    return float(np.nextafter(np.float32(x), np.float32(np.inf)))


# tie -> the neighbour whose mantissa bit is 0 (OCP Microscaling Formats v1.0, table of E2M1)
E2M1_TIES = {0.25: 0.0, 0.75: 1.0, 1.25: 1.0, 1.75: 2.0, 2.5: 2.0, 3.5: 4.0, 5.0: 4.0}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("tie", "even"), E2M1_TIES.items())
def test_code_ties_go_to_even(tie: float, even: float, sign: int) -> None:
    lower = max(m for m in MAGNITUDES if m < tie)
    upper = min(m for m in MAGNITUDES if m > tie)
    x = block_with_scale_one(sign * below(tie), sign * tie, sign * above(tie))
    got = dequantize(quantize(x, global_scale=1.0))[:3].tolist()
    assert got == [sign * lower, sign * even, sign * upper]


def test_code_values_are_exact() -> None:
    x = block_with_scale_one(*MAGNITUDES, *(-m for m in MAGNITUDES[1:6]))
    assert dequantize(quantize(x, global_scale=1.0)).tolist() == x.tolist()


def test_negative_zero_keeps_its_sign_and_so_does_what_rounds_to_it() -> None:
    codes = unpacked(quantize(block_with_scale_one(0.0, -0.0, 0.1, -0.1, 1e-45, -1e-45), global_scale=1.0))
    assert codes[:6].tolist() == [0, 8, 0, 8, 0, 8]
    back = dequantize(quantize(block_with_scale_one(0.0, -0.0), global_scale=1.0))
    assert torch.signbit(back[:2]).tolist() == [False, True]


def test_even_element_is_in_the_low_nibble() -> None:
    t = quantize(block_with_scale_one(1.0, -2.0), global_scale=1.0)
    assert t.codes[0].item() == 0x2 | 0xC << 4


@pytest.mark.parametrize("global_scale", [2.0**-20, 1.0, 2.0**30])
def test_scale_ties_go_to_even(global_scale: float) -> None:
    """All midpoints of neighbouring E4M3 values, the subnormals and the flush to zero at 2^-10 among them."""
    middle = (SCALES[:-1] + SCALES[1:]) / 2
    for lower, tie in enumerate(middle.tolist()):
        amax = 6 * tie * global_scale  # exact: six significant bits
        got = [scale_bytes(quantize(one_block(x), global_scale=global_scale))[0] for x in (below(amax), amax, above(amax))]
        assert got == [lower, lower + lower % 2, lower + 1], f"between scale bytes {lower:#x} and {lower + 1:#x}"


def test_scale_saturates_at_448_and_code_at_6() -> None:
    for amax in (6 * 448.0, 6 * 464.0, above(6 * 464.0), 6 * 480.0, 1e30):
        t = quantize(one_block(amax), global_scale=1.0)
        assert scale_bytes(t)[0] == 0x7E
        assert dequantize(t)[0] == 2688.0
    # a scale that was rounded down leaves a quotient above 6: 6.75 * 2^-9 / 2^-9
    t = quantize(torch.tensor([-8.7 * 2.0**-9, *[0.0] * 15]), global_scale=1.0)
    assert (scale_bytes(t)[0], dequantize(t)[0].item()) == (1, -6 * 2.0**-9)


@pytest.mark.parametrize("global_scale", [1.0, 0.37, 1e-30, 1e30, 3.1e-5])
def test_block_around_the_flush_threshold(global_scale: float) -> None:
    """A block of amax 6 * 2^-10 * global is a tie between scales 0 and 2^-9, and becomes zero; a larger one does not."""
    g = np.float32(global_scale)
    threshold = np.float32(6 * 2.0**-10) * g
    for factor, byte in ((1 - 1e-6, 0), (1 + 1e-6, 1)):
        t = quantize(one_block(float(threshold * np.float32(factor))), global_scale=float(g))
        assert scale_bytes(t)[0] == byte
        assert bool(dequantize(t)[0] > 0) == bool(byte)
    assert_same_bits(quantize(one_block(float(threshold)), global_scale=float(g)), one_block(float(threshold)).numpy(), g)


def test_flushed_block_has_codes_zero() -> None:
    x = torch.tensor([[-1e-9, 1e-9, -0.0, *[0.0] * 13], [1.0] * 16])
    t = quantize(x)
    assert scale_bytes(t)[0] == 0
    assert not unpacked(t)[0].any()


# --- decoding ---------------------------------------------------------------------------------------------------------


def e2m1_by_formula(code: int) -> Fraction:
    """Sign, two bits of exponent with bias 1, one of mantissa; exponent 0 is subnormal."""
    sign, exponent, mantissa = code >> 3, code >> 1 & 3, code & 1
    magnitude = Fraction(mantissa, 2) if exponent == 0 else (1 + Fraction(mantissa, 2)) * Fraction(2) ** (exponent - 1)
    return -magnitude if sign else magnitude


def e4m3_by_formula(byte: int) -> Fraction:
    """Four bits of exponent with bias 7, three of mantissa; exponent 0 is subnormal."""
    exponent, mantissa = byte >> 3 & 15, byte & 7
    return (
        Fraction(mantissa, 8) * Fraction(1, 64)
        if exponent == 0
        else (1 + Fraction(mantissa, 8)) * Fraction(2) ** (exponent - 7)
    )


def all_pairs(global_scale: float = 1.0) -> NVFP4Tensor:
    """[256, 16]: row s is the 16 codes under scale byte s."""
    return tensor(np.tile(np.arange(16), (256, 1)), np.arange(256)[:, None], global_scale)


@pytest.mark.parametrize("global_scale", [1.0, 0.1, 1e-30, 1e30, 2.0**-126])
def test_all_scale_bytes_times_all_codes(global_scale: float) -> None:
    t = all_pairs(global_scale)
    g = Fraction(t.global_scale.item())
    got = dequantize(t, torch.float64)
    for byte in range(0x7F):
        for code in range(16):
            exact = e2m1_by_formula(code) * e4m3_by_formula(byte) * g
            assert Fraction(got[byte, code].item()) == exact, f"scale {byte:#x}, code {code:#x}"
    assert torch.isnan(got[0x7F]).all()
    assert torch.isnan(got[0xFF]).all()
    np.testing.assert_array_equal(dequantize(t).numpy()[:0x7F], got.numpy().astype(np.float32)[:0x7F])


def test_code_table_and_unpacking() -> None:
    assert [Fraction(value) for value in E2M1_VALUES] == [e2m1_by_formula(code) for code in range(16)]
    every_byte = torch.arange(256, dtype=torch.uint8)
    pairs = unpack_codes(every_byte).view(256, 2)
    wanted = [[E2M1_VALUES[byte & 15], E2M1_VALUES[byte >> 4]] for byte in range(256)]
    assert pairs.tolist() == wanted
    assert torch.signbit(pairs).tolist() == [[bool(byte & 8), bool(byte & 0x80)] for byte in range(256)]


def test_decoding_is_exact_in_both_16_bit_formats() -> None:
    exact = decode(all_pairs())[:0x7F]
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(exact.to(dtype).float(), exact)


def test_16_bit_dequantisation_rounds_by_way_of_float32() -> None:
    """11915901 * 45 lies a little off the middle of two float16; float32 rounds it onto the middle, float16 then to even."""
    t = tensor(np.full(16, 3), np.full(1, 0x3F), 11915901 * 2.0**-24)  # 1.5 * 1.875 * g
    exact = dequantize(t, torch.float64)[0].item()
    assert Fraction(exact) == Fraction(45, 16) * Fraction(11915901, 2**24)
    assert dequantize(t, torch.float16)[0].item() == float(np.float16(np.float32(exact)))
    assert dequantize(t, torch.bfloat16)[0].item() == float(torch.tensor(exact, dtype=torch.float32).bfloat16())


def test_every_scale_with_every_code_comes_back() -> None:
    """A block that holds a 6 keeps its scale: amax / (6 * global) is the scale."""
    t = all_pairs(0.37)
    once = dequantize(NVFP4Tensor(t.codes[:0x7F], t.scales[:0x7F], t.global_scale))
    again = quantize(once, global_scale=t.global_scale)
    np.testing.assert_array_equal(scale_bytes(again)[:, 0], SCALE_BYTES)
    np.testing.assert_array_equal(unpacked(again)[1:], unpacked(t)[1:0x7F])
    assert not unpacked(again)[0].any()


# --- the whole definition ---------------------------------------------------------------------------------------------


def samples(n: int, seed: int = 0) -> Array:
    """Float32 of all magnitudes that a tensor of amax 1 can tell apart, many of them ties of codes and scales."""
    rng = np.random.default_rng(seed)
    ties = rng.choice(np.array([*E2M1_TIES, *MAGNITUDES]), n) * rng.choice(SCALES, n) / 2688
    spread = rng.standard_normal(n) * np.exp2(rng.integers(-20, 1, n))
    return np.where(rng.random(n) < 0.5, ties * rng.choice([-1, 1], n), spread).astype(np.float32)


@pytest.mark.parametrize("magnitude", [1.0, 1e-30, 1e30, 3e-36, 1e-38, 1e-42, 1e38, 3e38])
def test_bits_at_every_magnitude(magnitude: float) -> None:
    x = samples(64 * 160).reshape(64, 160)
    x = (x / np.abs(x).max()).astype(np.float32) * np.float32(magnitude)
    t = quantize(torch.from_numpy(x))
    assert_same_bits(t, x, default_global_scale(x))
    assert torch.isfinite(dequantize(t)).all()
    flushed = magnitude < 6 * 2.0**-10 * 2.0**-126  # the global scale goes no lower than 2^-126
    assert bool(dequantize(t).abs().max() > 0) is not flushed


@pytest.mark.parametrize("global_scale", [2.0**-126, 1e-30, 1e-10, 1 / 2688, 0.1, 7.0, 1e30, GLOBAL_SCALE_MAX])
def test_bits_under_a_given_global_scale(global_scale: float) -> None:
    g = np.float32(global_scale)
    reach = min(3000 * float(g), F32_MAX)
    x = (samples(64 * 64, seed=1).reshape(64, 64) / 8 * reach).astype(np.float32)
    x[0, 0] = reach
    t = quantize(torch.from_numpy(x), global_scale=float(g))
    assert_same_bits(t, x, g)
    assert torch.isfinite(dequantize(t)).all()


def test_largest_float32_stays_finite() -> None:
    """FLT_MAX / 2688 is exact, so the largest value an NVFP4 tensor can hold is FLT_MAX itself."""
    t = quantize(torch.tensor([F32_MAX, -F32_MAX, *[0.0] * 14]))
    assert t.global_scale.item() == GLOBAL_SCALE_MAX
    assert dequantize(t)[:2].tolist() == [F32_MAX, -F32_MAX]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_bits_of_every_input_dtype(dtype: torch.dtype) -> None:
    x = torch.from_numpy(samples(16 * 64, seed=2)).view(16, 64).to(dtype)
    as_float32 = x.float().numpy()
    assert_same_bits(quantize(x), as_float32, default_global_scale(as_float32))


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -2, -3, -4])
def test_bits_along_every_axis(axis: int) -> None:
    x = samples(3 * 20 * 35 * 17, seed=3).reshape(3, 20, 35, 17)
    t = quantize(torch.from_numpy(x), block_axis=axis)
    assert t.block_axis == (axis if axis < 0 else axis - 4)
    assert t.shape == x.shape
    last = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    assert_same_bits(t, last, default_global_scale(x))
    wanted = values(unpacked(t), scale_bytes(t), t.global_scale.item())[..., : x.shape[axis]]
    np.testing.assert_array_equal(dequantize(t, torch.float64).numpy(), np.moveaxis(wanted, -1, axis))


@pytest.mark.parametrize("length", [*range(1, 50), 255, 257])
def test_bits_of_every_length(length: int) -> None:
    x = samples(3 * length, seed=length).reshape(3, length)
    t = quantize(torch.from_numpy(x))
    assert t.shape == (3, length)
    assert_same_bits(t, x, default_global_scale(x))


def test_rows_do_not_depend_on_how_many_there_are() -> None:
    """FlashInfer #3398: scales of zero for some numbers of rows."""
    x = torch.from_numpy(samples(257 * 48, seed=4)).view(257, 48)
    whole = quantize(x, global_scale=1 / 2688)
    for rows in range(1, 258):
        t = quantize(x[:rows], global_scale=1 / 2688)
        assert torch.equal(t.codes, whole.codes[:rows])
        assert torch.equal(t.scales.view(torch.uint8), whole.scales.view(torch.uint8)[:rows])


def test_every_e4m3_rounding_agrees_with_ml_dtypes() -> None:
    """The cast that makes scales, over a dense sweep of its range and its subnormals."""
    ratio = np.concatenate([np.linspace(0, 448, 40001), np.exp2(np.linspace(-12, -5, 20001))]).astype(np.float32)
    x = np.zeros((len(ratio), 16), np.float32)
    x[:, 5] = -6 * ratio
    t = quantize(torch.from_numpy(x), global_scale=1.0)
    wanted = np.minimum(np.abs(x[:, 5]) / np.float32(6), 448).astype(E4M3).view(np.uint8)
    np.testing.assert_array_equal(scale_bytes(t)[:, 0], wanted)


# --- rows of q --------------------------------------------------------------------------------------------------------


def test_round_rows_is_quantize_of_each_row() -> None:
    q = torch.from_numpy(samples(2 * 5 * 72, seed=5)).view(2, 5, 72).bfloat16()
    q[0, 1] = 0
    q[1, 2] *= 1e-30
    q[1, 3] *= 1e30
    rounded, factor = round_rows(q)
    assert (rounded.shape, factor.shape, rounded.dtype) == ((2, 5, 72), (2, 5, 1), torch.float32)
    for b in range(2):
        for i in range(5):
            row = quantize(q[b, i])
            assert factor[b, i, 0] == row.global_scale
            assert torch.equal(rounded[b, i], decode(row))


def test_packing_helper_is_the_layout_of_the_contract() -> None:
    assert pack(np.arange(16)).tolist() == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]
