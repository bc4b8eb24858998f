"""ldmatrix, stmatrix and movmatrix against loops over lanes, and against the fragments of the MMA that they feed."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.errors import Unknown
from impls.cuda.emulator.tensor_cores.matrices import ldmatrix, movmatrix, stmatrix
from tests.cuda.emulator.tensor_cores import model

WARPS = 3


def _said(text: str) -> tuple[str, ...]:
    return ("sync", "aligned", *text.split("."))


def _rows(move) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (WARPS, move.matrices, move.rows, 16), dtype=np.uint8)


def _half(rows, row: int, column: int) -> int:
    return int(rows[row, 2 * column]) | int(rows[row, 2 * column + 1]) << 8


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("space", ["shared.", "shared::cta.", ""])
def test_ldmatrix_m8n8(count, space):
    move = ldmatrix(_said(f"m8n8.x{count}.{space}b16"))
    assert (move.matrices, move.rows, move.registers) == (count, 8, count)
    rows = _rows(move)
    registers = move.to_registers(rows)
    for warp, lane, j in np.ndindex(WARPS, 32, count):
        wanted = int.from_bytes(bytes(rows[warp, j, lane // 4, lane % 4 * 4 :][:4]), "little")
        assert registers[warp, lane, j] == wanted


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_m8n8_transposed(count):
    move = ldmatrix(_said(f"m8n8.x{count}.trans.shared.b16"))
    rows = _rows(move)
    registers = move.to_registers(rows)
    for warp, lane, j in np.ndindex(WARPS, 32, count):
        low, high = (_half(rows[warp, j], lane % 4 * 2 + i, lane // 4) for i in (0, 1))
        assert registers[warp, lane, j] == low | high << 16


@pytest.mark.parametrize("text", ["m8n8.x4.b16", "m8n8.x2.trans.b16", "m8n8.x1.b16", "m8n8.x4.trans.shared::cta.b16"])
def test_stmatrix_undoes_ldmatrix(text):
    load, store = ldmatrix(_said(text)), stmatrix(_said(text))
    rows = _rows(load)
    np.testing.assert_array_equal(store.to_rows(load.to_registers(rows)), rows)
    assert (store.matrices, store.rows, store.registers) == (load.matrices, load.rows, load.registers)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_m16n8(count):
    """Matrix j is an MMA's C of bytes (row g or g + 8, columns 2t and 2t + 1), stored column by column."""
    move = stmatrix(_said(f"m16n8.x{count}.trans.shared.b8"))
    assert (move.matrices, move.rows, move.registers) == (count, 8, count)
    registers = np.random.default_rng(2).integers(0, 1 << 32, (WARPS, 32, count), dtype=np.uint32)
    rows = move.to_rows(registers)
    for warp, j in np.ndindex(WARPS, count):
        for lane in range(32):
            for i, byte in enumerate(int(registers[warp, lane, j]).to_bytes(4, "little")):
                row, column = lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + i % 2
                assert rows[warp, j, column, row] == byte


@pytest.mark.parametrize("count", [1, 2])
def test_ldmatrix_m16n16(count):
    """Four consecutive columns of two rows of the transposed matrix to each lane, two registers a matrix."""
    move = ldmatrix(_said(f"m16n16.x{count}.trans.shared.b8"))
    assert (move.matrices, move.rows, move.registers) == (count, 16, 2 * count)
    rows = _rows(move)
    registers = move.to_registers(rows)
    for warp, lane, j in np.ndindex(WARPS, 32, count):
        transposed = rows[warp, j].T
        g, t = lane // 4, lane % 4
        for v in (0, 1):
            columns = [4 * t + 2 * v, 4 * t + 2 * v + 1]
            wanted = bytes([*transposed[g, columns], *transposed[g + 8, columns]])
            assert int(registers[warp, lane, 2 * j + v]).to_bytes(4, "little") == wanted


def _unpacked(row: bytes, bits: int) -> list[int]:
    number = int.from_bytes(row, "little")
    return [number >> bits * i & (1 << bits) - 1 for i in range(16)]


@pytest.mark.parametrize("bits, source", [(4, "b4x16_p64"), (6, "b6x16_p32")])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_m8n16(bits, source, count):
    move = ldmatrix(_said(f"m8n16.x{count}.shared.b8x16.{source}"))
    rows = _rows(move)
    registers = move.to_registers(rows)
    for warp, lane, j in np.ndindex(WARPS, 32, count):
        elements = _unpacked(bytes(rows[warp, j, lane // 4]), bits)[lane % 4 * 4 :][:4]
        assert int(registers[warp, lane, j]).to_bytes(4, "little") == bytes(elements)


@pytest.mark.parametrize("bits, source", [(4, "b4x16_p64"), (6, "b6x16_p32")])
def test_ldmatrix_m16n16_of_narrow_elements(bits, source):
    narrow, wide = ldmatrix(_said(f"m16n16.x1.trans.shared.b8x16.{source}")), ldmatrix(_said("m16n16.x1.trans.shared.b8"))
    rows = _rows(narrow)
    unpacked = np.array([_unpacked(bytes(row), bits) for row in rows.reshape(-1, 16)], np.uint8).reshape(rows.shape)
    np.testing.assert_array_equal(narrow.to_registers(rows), wide.to_registers(unpacked))


def test_movmatrix():
    registers = np.random.default_rng(3).integers(0, 1 << 32, (WARPS, 32), dtype=np.uint32)
    moved = movmatrix(_said("m8n8.trans.b16"), registers)

    def matrix(warp):
        return np.array(
            [[int(warp[4 * row + column // 2]) >> 16 * (column % 2) & 0xFFFF for column in range(8)] for row in range(8)]
        )

    for before, after in zip(registers, moved, strict=True):
        np.testing.assert_array_equal(matrix(after), matrix(before).T)


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_ldmatrix_feeds_the_mma(bits):
    """.x4 on the 32 bytes of 16 rows is A of each shape that is 32 bytes wide; .trans on rows of B, K by K, is B."""
    tile = np.random.default_rng(4).integers(0, 256, (16, 32), dtype=np.uint8)
    rows = np.stack([tile[8 * (j % 2) :][:8, 16 * (j // 2) :][:, :16] for j in range(4)])
    registers = ldmatrix(_said("m8n8.x4.shared.b16")).to_registers(rows)
    wanted = [[int.from_bytes(bytes(row), "little") >> bits * k & (1 << bits) - 1 for k in range(256 // bits)] for row in tile]
    assert model.matrix_a(registers, bits) == wanted


def test_transposed_ldmatrix_feeds_b():
    tile = np.random.default_rng(5).integers(0, 1 << 16, (16, 8), dtype=np.uint16)  # [k, n]
    registers = ldmatrix(_said("m8n8.x2.trans.shared.b16")).to_registers(tile.view(np.uint8).reshape(2, 8, 16))
    assert model.matrix_b(registers, 16) == tile.T.tolist()


@pytest.mark.parametrize(
    "function, text",
    [
        (ldmatrix, "m8n8.x3.b16"),
        (ldmatrix, "m8n8.x4.b8"),
        (ldmatrix, "m16n16.x4.trans.b8"),
        (ldmatrix, "m16n16.x1.b8"),
        (ldmatrix, "m8n16.x1.trans.b8x16.b4x16_p64"),
        (ldmatrix, "m8n8.x1.global.b16"),
        (stmatrix, "m16n8.x1.b8"),
        (stmatrix, "m8n16.x1.b8x16.b4x16_p64"),
    ],
)
def test_unknown(function, text):
    with pytest.raises(Unknown, match=f"{function.__wrapped__.__name__}.sync.aligned.{text} is not known"):
        function(_said(text))


def test_unknown_movmatrix():
    with pytest.raises(Unknown, match="b16 is not known"):
        movmatrix(_said("m8n8.b16"), np.zeros((1, 32), np.uint32))
