"""Every output bit of mma.sync against Python integers, on operands that make window, rounding and special values show."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.cuda.emulator.tensor_cores import model
from tests.cuda.emulator.tensor_cores.operands import (
    NVFP4,
    REGIMES,
    d_codes,
    form,
    matrices,
    nvfp4_case,
    windowed_case,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the machine silences NumPy once, outside
TO_13_BITS = partial(model.to_single, fraction_bits=13)
WINDOWED = {  # form, target: window, parts of K, rounding
    ("m16n8k16.row.col.f32.f16.f16.f32", "sm_120a"): (25, 1, model.to_single),
    ("m16n8k16.row.col.f16.f16.f16.f16", "sm_90a"): (25, 1, model.to_half),
    ("m16n8k8.row.col.f32.f16.f16.f32", "sm_90a"): (25, 1, model.to_single),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90a"): (25, 1, model.to_single),
    ("m16n8k8.row.col.f32.bf16.bf16.f32", "sm_121a"): (25, 1, model.to_single),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", "sm_100a"): (25, 1, model.to_single),
    ("m16n8k4.row.col.f32.tf32.tf32.f32", "sm_120"): (25, 1, model.to_single),
    ("m16n8k16.row.col.f32.f16.f16.f32", "sm_80"): (24, 2, model.to_single),
    ("m16n8k16.row.col.f16.f16.f16.f16", "sm_86"): (24, 2, model.to_half),
    ("m16n8k8.row.col.f32.f16.f16.f32", "sm_80"): (24, 1, model.to_single),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", "sm_89"): (24, 2, model.to_single),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"): (24, 2, model.to_single),
    ("m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"): (13, 2, TO_13_BITS),
    ("m16n8k16.row.col.f32.e5m2.e5m2.f32", "sm_89"): (13, 1, TO_13_BITS),
    ("m16n8k32.row.col.f16.e4m3.e4m3.f16", "sm_89"): (13, 2, model.to_half),
    ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_120"): (25, 1, model.to_single),
    ("m16n8k16.row.col.f16.e5m2.e4m3.f16", "sm_120"): (25, 1, model.to_half),
    ("kind::f8f6f4.m16n8k32.row.col.f32.e3m2.e2m3.f32", "sm_120a"): (25, 1, model.to_single),
    ("kind::f8f6f4.m16n8k32.row.col.f16.e2m1.e5m2.f16", "sm_120f"): (25, 1, model.to_half),
}
CONVERTED = {  # fp8 on tensor cores that have none: f16 MMAs, whose results are rounded so
    ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90a"): model.to_single,
    ("m16n8k16.row.col.f32.e5m2.e4m3.f32", "sm_90a"): model.to_single,
    ("m16n8k32.row.col.f16.e4m3.e5m2.f16", "sm_90"): model.to_half,
    ("kind::f8f6f4.m16n8k16.row.col.f16.e4m3.e4m3.f16", "sm_100a"): model.to_half,
}


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("text, target", WINDOWED)
def test_windowed(text, target, regime):
    random = np.random.default_rng([REGIMES.index(regime), len(text)])
    instruction = form(text, target)
    a, b, c = windowed_case(instruction, regime, 2, random)
    d = instruction.multiply(a, b, c)
    for warp in range(len(a)):
        wanted = model.windowed(*matrices(instruction, a[warp], b[warp], c[warp]), *WINDOWED[text, target])
        np.testing.assert_array_equal(d_codes(instruction, d[warp]), wanted)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("text, target", CONVERTED)
def test_fp8_as_f16(text, target, regime):
    random = np.random.default_rng([REGIMES.index(regime), len(text)])
    instruction = form(text, target)
    a, b, c = windowed_case(instruction, regime, 2, random)
    d = instruction.multiply(a, b, c)
    for warp in range(len(a)):
        wanted = model.converted(*matrices(instruction, a[warp], b[warp], c[warp]), CONVERTED[text, target])
        np.testing.assert_array_equal(d_codes(instruction, d[warp]), wanted)


@pytest.mark.parametrize("types", ["e4m3.e4m3", "e5m2.e2m1", "e3m2.e2m3"])
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("low, high", [(120, 135), (0, 256)])
def test_mxf8f6f4(types, regime, low, high):
    random = np.random.default_rng([low, len(regime)])
    instruction = form(f"m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.{types}.f32.ue8m0")
    a, b, c = windowed_case(instruction, regime, 1, random)
    scale_a, scale_b = (random.integers(low, high, (1, 32, 4), dtype=np.uint8).view(np.uint32)[..., 0] for _ in "ab")
    d = instruction.multiply(a, b, c, scale_a, scale_b, (2, 1, 3, 2))
    scales = model.scales_a(scale_a[0], 2, 1, 1), model.scales_b(scale_b[0], 3, 2, 1)
    wanted = model.windowed(*matrices(instruction, a[0], b[0], c[0]), 25, 1, model.to_single, scales)
    np.testing.assert_array_equal(d_codes(instruction, d[0]), wanted)


def _block_scaled_operands(regime: str, scale_type: str, random: np.random.Generator):
    a, b, c, scale_a, scale_b = nvfp4_case(2, random)
    if regime == "any scales":
        scale_a, scale_b = (random.integers(0, 1 << 32, scale.shape, dtype=np.uint32) for scale in (scale_a, scale_b))
        if scale_type == "ue4m3":  # their sign bit must be 0, and a NaN hides the rest
            scale_a, scale_b = (np.minimum((s & 0x7F7F7F7F).view(np.uint8), 0x7E).view(np.uint32) for s in (scale_a, scale_b))
    elif regime == "any C":
        c = random.integers(0, 1 << 32, c.shape, dtype=np.uint32)
    elif regime == "huge C":
        c = (random.standard_normal(c.shape) * 2.0**30).astype(np.float32).view(np.uint32)
    elif regime == "special scales":
        chosen = np.array([0, 1, 7, 8, 0x38, 0x7E, 0x7F] if scale_type == "ue4m3" else [0, 1, 126, 127, 254, 255], np.uint8)
        rare, weights = chosen, np.full(len(chosen), 0.06)
        weights[-2] += 1 - weights.sum()
        scale_a, scale_b = (random.choice(rare, (2, 32, 4), p=weights).view(np.uint32)[..., 0] for _ in "ab")
    elif regime == "zeros":
        a[random.random(a.shape) < 0.9] &= 0x88888888
        b[random.random(b.shape) < 0.5] = 0
        c = random.choice(
            np.array([0, 1 << 31, 1, 1 | 1 << 31, 0x7F800000, 0x3F800000, 0x12345, 0x7F800001, 0xFFC00000], np.uint32), c.shape
        )
    elif regime == "cancelling":
        a[..., 2:] = a[..., :2] ^ np.uint32(0x88888888)
        b[..., 1] = b[..., 0]
        scale_a, scale_b = (np.full_like(scale, 0x38383838) for scale in (scale_a, scale_b))
        c = random.choice(np.array([0, 1 << 31, 0x21000000, 0x3F800001], np.uint32), c.shape)
    elif regime == "cancelling in blocks":
        low_a, low_b = a & 0xFFFF, b & 0xFFFF
        a, b = low_a | (low_a ^ 0x8888) << 16, low_b | low_b << 16
        b[1, :, 1] = 0
        c = random.choice(np.array([0, 1 << 31, 0x00000001, 0x12345678, 0x3F800001], np.uint32), c.shape)
    return a, b, c, scale_a, scale_b


BLOCKS = ("like activations", "any scales", "any C", "huge C", "special scales", "zeros", "cancelling", "cancelling in blocks")
BLOCK_SCALED = {
    NVFP4: ("ue4m3", 4),
    NVFP4.replace("ue4m3", "ue8m0"): ("ue8m0", 4),
    NVFP4.replace("4X", "2X").replace("ue4m3", "ue8m0"): ("ue8m0", 2),
    "kind::mxf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0": ("ue8m0", 2),
}


@pytest.mark.parametrize("regime", BLOCKS)
@pytest.mark.parametrize("text", BLOCK_SCALED)
def test_block_scaled(text, regime):
    random = np.random.default_rng([BLOCKS.index(regime), 1])
    instruction = form(text)
    scale_type, count = BLOCK_SCALED[text]
    a, b, c, scale_a, scale_b = _block_scaled_operands(regime, scale_type, random)
    byte = 2 if count == 2 else 0
    d = instruction.multiply(a, b, c, scale_a, scale_b, (byte, 1, byte, 3))
    for warp in range(2):
        wanted = model.block_scaled(
            model.matrix_a(a[warp], 4),
            model.matrix_b(b[warp], 4),
            model.matrix_c(c[warp], 32),
            scale_type,
            model.scales_a(scale_a[warp], byte, 1, count),
            model.scales_b(scale_b[warp], byte, 3, count),
        )
        np.testing.assert_array_equal(d_codes(instruction, d[warp]), wanted)


@pytest.mark.parametrize(
    "scales, c", [((0x28, 0x50), 100.0), ((0x28, 0x50), 0.0), ((0, 0x7F), 1.0), ((0, 0x7F), 1e4), ((0x36, 0x3A), 1e4)]
)
def test_nvfp4_is_exact_in_practice(scales, c):
    """Where C does not dwarf the products the window loses nothing: the exact sum, truncated once to f32."""
    instruction = form(NVFP4)
    a, b, c_registers, scale_a, scale_b = nvfp4_case(2, np.random.default_rng(5), scales, c)
    d = instruction.multiply(a, b, c_registers, scale_a, scale_b)
    for warp in range(2):
        exact = model.exact_block_scaled(
            model.matrix_a(a[warp], 4),
            model.matrix_b(b[warp], 4),
            model.matrix_c(c_registers[warp], 32),
            model.scales_a(scale_a[warp], 0, 0, 4),
            model.scales_b(scale_b[warp], 0, 0, 4),
        )
        wanted = [[model.to_single(total) for total in row] for row in exact]
        np.testing.assert_array_equal(d_codes(instruction, d[warp]), wanted)


@pytest.mark.parametrize("shape", ["m16n8k16", "m16n8k32"])
@pytest.mark.parametrize("a_type, b_type", [("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8")])
@pytest.mark.parametrize("satfinite", ["", ".satfinite"])
def test_integers(shape, a_type, b_type, satfinite):
    random = np.random.default_rng(7)
    instruction = form(f"{shape}.row.col{satfinite}.s32.{a_type}.{b_type}.s32")
    a = random.integers(0, 1 << 32, (2, 32, instruction.a_registers), dtype=np.uint32)
    b = random.integers(0, 1 << 32, (2, 32, instruction.b_registers), dtype=np.uint32)
    edges = np.array([0x7FFFFFF0, 0x80000010, 0, 0x12345678], np.uint32)
    c = random.choice(edges, (2, 32, 4))
    d = instruction.multiply(a, b, c)

    def signed(code: int, bits: int) -> int:
        return code - (code >> bits - 1 << bits)

    for warp in range(2):
        rows, columns = model.matrix_a(a[warp], 8), model.matrix_b(b[warp], 8)
        rows, columns = (
            [[signed(code, 8) if name == "s8" else code for code in row] for row in matrix]
            for name, matrix in ((a_type, rows), (b_type, columns))
        )
        c_values = model.matrix_c(c[warp], 32)

        def output(row, column, rows=rows, columns=columns, c_values=c_values):
            total = signed(c_values[row][column], 32) + sum(x * y for x, y in zip(rows[row], columns[column], strict=True))
            if satfinite:
                total = min(max(total, -(2**31)), 2**31 - 1)
            return total % 2**32

        np.testing.assert_array_equal(d_codes(instruction, d[warp]), model.each_output(output))


def test_named_values():
    """A few results by hand: the sign of zero, truncation, NaN, infinity."""
    instruction = form("m16n8k16.row.col.f32.f16.f16.f32")
    a, b, c = (np.zeros((1, 32, r), np.uint32) for r in (4, 2, 4))

    def first(a_codes, b_codes, c_code) -> int:
        a[0, 0, 0], b[0, 0, 0], c[0, 0, 0] = a_codes[0] | a_codes[1] << 16, b_codes[0] | b_codes[1] << 16, c_code
        return int(instruction.multiply(a, b, c)[0, 0, 0])

    one, minus_one, infinity, tiny = 0x3C00, 0xBC00, 0x7C00, 0x0001
    assert first((0, 0), (0, 0), 1 << 31) == 0  # -0 does not survive
    assert first((one, minus_one), (one, one), 0) == 0
    assert first((one, 0), (tiny, 0), 0x3F800000) == 0x3F800000  # 1 + 2^-24 is truncated
    assert first((minus_one, 0), (tiny, 0), 0x3F800000) == 0x3F7FFFFF  # 1 - 2^-24 is representable
    assert first((infinity, 0), (0, 0), 0) == 0x7FFFFFFF
    assert first((infinity, infinity), (one, minus_one), 0) == 0x7FFFFFFF
    assert first((infinity, 0), (one, 0), 0xFF800000) == 0x7FFFFFFF
    assert first((infinity, 0), (minus_one, 0), 0x3F800000) == 0xFF800000
    assert first((0, 0), (0, 0), 0x7F800001) == 0x7FFFFFFF
