"""Which lane and register holds which element of the operands of mma.sync, and what ldmatrix hands out.

From the PTX ISA 9.1, "Matrix fragments for mma.m16n8k16" and "... m16n8k64", "Block scaling", "ldmatrix". g = lane / 4,
t = lane % 4, r is a register's number, i an element's in it, the lowest bits first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from impls.nvfp4 import E2M1_MAX

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
LANES: Ints = np.arange(32)
G, T = LANES // 4, LANES % 4
E2M1: Floats = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, E2M1_MAX])
E2M1_VALUES: Floats = np.concatenate([E2M1, -E2M1])


def e4m3_values(codes: Ints) -> Floats:
    """Of bytes 0x00 to 0x7E."""
    exponent, mantissa = codes >> 3 & 15, codes & 7
    return np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))


def ldmatrix_x4(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """[register, lane, byte]: `rows` [lane, 16] are the bytes that each lane names. Lane 8 m + k names row k of matrix m."""
    return rows.reshape(4, 8, 4, 4)[:, G, T]


def scores(a: Ints, scales_a: Ints, thread_a: int, b: Ints, scales_b: Ints, thread_b: int) -> Floats:
    """A @ B of m16n8k64, scale_vec::4X: nibbles `a` [4, lane, 8], `b` [2, lane, 8], scale bytes [lane, 4]. -> [16, 8]."""
    left, right = np.zeros((16, 64)), np.zeros((64, 8))
    for i in range(8):
        for r in range(4):
            left[G + 8 * (r % 2), 8 * T + i + 32 * (r // 2)] = E2M1_VALUES[a[r, :, i]]
        for r in range(2):
            right[8 * T + i + 32 * r, G] = E2M1_VALUES[b[r, :, i]]
    for j in range(4):
        for row in range(16):
            left[row, 16 * j : 16 * j + 16] *= e4m3_values(scales_a[4 * (row % 8) + 2 * thread_a + row // 8, j])
        for column in range(8):
            right[16 * j : 16 * j + 16, column] *= e4m3_values(scales_b[4 * column + thread_b, j])
    return left @ right


def to_c(matrix: Floats) -> Floats:
    """[4, lane] of [16, 8]."""
    return np.stack([matrix[G + 8 * (c // 2), 2 * T + c % 2] for c in range(4)])


def from_c(c: Floats) -> Floats:
    """[16, 8] of [4, lane]."""
    matrix = np.zeros((16, 8))
    for k in range(4):
        matrix[G + 8 * (k // 2), 2 * T + k % 2] = c[k]
    return matrix


def products(a: Floats, b: Floats) -> Floats:
    """A @ B of m16n8k16, of pairs `a` [4, lane, 2] and `b` [2, lane, 2]. -> [16, 8]."""
    left, right = np.zeros((16, 16)), np.zeros((16, 8))
    for i in range(2):
        for r in range(4):
            left[G + 8 * (r % 2), 2 * T + i + 8 * (r // 2)] = a[r, :, i]
        for r in range(2):
            right[2 * T + i + 8 * r, G] = b[r, :, i]
    return left @ right
