"""The index arrays of the fragments against loops over lanes."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.tensor_cores import fragments
from tests.cuda.emulator.tensor_cores import model
from tests.cuda.emulator.tensor_cores.operands import NVFP4, form, windowed_case


def _elements(words: np.ndarray, bits: int) -> list[list[int]]:
    """[row][element] of [row, word], the lowest bits first."""
    return [[int(word) >> shift & (1 << bits) - 1 for word in row for shift in range(0, 32, bits)] for row in words]


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
@pytest.mark.parametrize("count", [2, 4])
def test_a(bits, count):
    registers = np.random.default_rng(1).integers(0, 1 << 32, (32, count), dtype=np.uint32)
    words = registers.reshape(-1)[fragments.A_WORDS[count]]
    assert _elements(words, bits) == model.matrix_a(registers, bits)


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
@pytest.mark.parametrize("count", [1, 2])
def test_b(bits, count):
    registers = np.random.default_rng(2).integers(0, 1 << 32, (32, count), dtype=np.uint32)
    words = registers.reshape(-1)[fragments.B_WORDS[count]]
    assert _elements(words, bits) == model.matrix_b(registers, bits)


@pytest.mark.parametrize("bits", [16, 32])
def test_c_and_d(bits):
    registers = np.random.default_rng(3).integers(0, 1 << 32, (32, 4 * bits // 32), dtype=np.uint32)
    values = registers.view(f"u{bits // 8}").reshape(-1)
    matrix = values[fragments.C_VALUES]
    assert matrix.tolist() == model.matrix_c(registers, bits)
    np.testing.assert_array_equal(matrix.reshape(-1)[fragments.D_ELEMENTS], values)


@pytest.mark.parametrize("text", ["m16n8k16.row.col.f32.bf16.bf16.f32", "m16n8k8.row.col.f16.f16.f16.f16"])
def test_warps_are_independent(text):
    """Any leading shape gives what each warp gives alone."""
    instruction = form(text)
    a, b, c = windowed_case(instruction, "like activations", 6, np.random.default_rng(4))
    d = instruction.multiply(*(registers.reshape(2, 3, 32, -1) for registers in (a, b, c)))
    assert d.shape == (2, 3, 32, instruction.d_registers)
    for warp in range(6):
        alone = instruction.multiply(a[warp], b[warp], c[warp])
        np.testing.assert_array_equal(d.reshape(6, 32, -1)[warp], alone)


def test_registers_and_products():
    """As PTX writes the operands of these shapes."""

    def counts(text):
        instruction = form(text)
        return (*(getattr(instruction, f"{name}_registers") for name in "abcd"), instruction.scaled, instruction.macs)

    assert counts("m16n8k16.row.col.f32.bf16.bf16.f32") == (4, 2, 4, 4, False, 2048)
    assert counts("m16n8k8.row.col.f16.f16.f16.f16") == (2, 1, 2, 2, False, 1024)
    assert counts("m16n8k8.row.col.f32.tf32.tf32.f32") == (4, 2, 4, 4, False, 1024)
    assert counts("m16n8k4.row.col.f32.tf32.tf32.f32") == (2, 1, 4, 4, False, 512)
    assert counts("m16n8k32.row.col.s32.s8.u8.s32") == (4, 2, 4, 4, False, 4096)
    assert counts("m16n8k16.row.col.f32.e4m3.e4m3.f32") == (2, 1, 4, 4, False, 2048)
    assert counts(NVFP4) == (4, 2, 4, 4, True, 8192)
