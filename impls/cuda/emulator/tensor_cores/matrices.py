"""ldmatrix, stmatrix and movmatrix: which lane names which row, and which bytes of the rows each lane's registers hold.

A matrix is 8 or 16 rows of 16 bytes in shared memory; lane rows * j + r names row r of matrix j. g = lane / 4, t = lane % 4:

    m8n8.b16            byte i of the register: row g, byte 4t + i                       row g   |l4g |l4g+1 |l4g+2 |l4g+3 |
    m8n8.trans.b16      half e: row 2t + e, element g                                    the register of a transposed matrix
    m8n16.b8x16.*       as m8n8.b16, of a row whose 16 narrow elements became bytes      b4: bits 3:0, b6: bits 5:0
    m16n16.trans.*      byte i of register v: row 4t + 2v + i % 2, byte g + 8 (i / 2)    two registers a matrix
    m16n8.trans.b8      byte i: row 2t + i % 2, byte g + 8 (i / 2)                       stmatrix only

The last two are the fragment of C (row g or g + 8, columns 2t and 2t + 1) with a row of shared memory for each column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from impls.cuda.emulator.errors import Unknown
from impls.cuda.emulator.tensor_cores.formats import Words

Bytes = npt.NDArray[np.uint8]
Index = npt.NDArray[np.intp]

ROW_BYTES = 16
"""Bytes of shared memory from each row's address on; the address must be a multiple of it."""

_LANE = np.arange(32)[:, None]
_G, _T = _LANE >> 2, _LANE & 3
_HALF, _BYTE, _REGISTER_AND_BYTE = np.arange(2), np.arange(4), np.arange(8)


def _unpacked_nibbles(rows: Bytes) -> Bytes:
    """16 elements of 4 bits and 64 bits of padding, as 16 bytes."""
    packed = rows[..., :8]
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(rows.shape)


def _unpacked_sixes(rows: Bytes) -> Bytes:
    """16 elements of 6 bits and 32 bits of padding, as 16 bytes: four elements are three bytes."""
    low, middle, high = np.moveaxis(rows[..., :12].reshape(*rows.shape[:-1], 4, 3), -1, 0)
    elements = [low & 63, low >> 6 | (middle & 15) << 2, middle >> 4 | (high & 3) << 4, high >> 2]
    return np.stack(elements, axis=-1).reshape(rows.shape)


def _as_they_are(rows: Bytes) -> Bytes:
    return rows


_M8N8: Index = 4 * _G + _T
_M8N8_TRANSPOSED: Index = 8 * (2 * _T + _HALF) + _G
_M16N16: Index = 16 * (4 * _T + 2 * (_REGISTER_AND_BYTE >> 2) + (_REGISTER_AND_BYTE & 1)) + (
    _G + 8 * ((_REGISTER_AND_BYTE & 3) >> 1)
)
_M16N8: Index = 16 * (2 * _T + (_BYTE & 1)) + _G + 8 * (_BYTE >> 1)


@dataclass(frozen=True, eq=False)
class MatrixMove:
    """A form of ldmatrix or stmatrix."""

    matrices: int
    rows: int
    """Rows, and so addresses, of a matrix: lane rows * j + r names row r of matrix j. The other lanes name nothing."""
    registers: int
    """Of each lane, for all matrices."""
    rule: str
    unit: npt.DTypeLike
    """What moves as one: 4, 2 or 1 bytes."""
    source: Index
    """[32 x units of a lane]: which unit of all matrices' rows each unit of the registers is."""
    expand: Callable[[Bytes], Bytes]
    """From rows as they are in shared memory to rows of 16 bytes that are all elements."""

    def to_registers(self, rows: Bytes) -> Words:
        """Registers [..., 32, registers] from the bytes [..., matrices, rows, 16] that the lanes name."""
        leading = rows.shape[:-3]
        units = self.expand(rows).reshape(-1, self.matrices * self.rows * ROW_BYTES).view(self.unit)
        return units.take(self.source, axis=1).view(np.uint32).reshape(*leading, 32, self.registers)

    def to_rows(self, registers: Words) -> Bytes:
        """Bytes [..., matrices, rows, 16] to store, from the registers [..., 32, registers]."""
        units = np.ascontiguousarray(registers).view(self.unit).reshape(-1, self.source.size)
        rows = units.take(np.argsort(self.source), axis=1).view(np.uint8)
        return rows.reshape(*registers.shape[:-2], self.matrices, self.rows, ROW_BYTES)


_FORMATS: dict[str, Callable[[Bytes], Bytes]] = {"b4x16_p64": _unpacked_nibbles, "b6x16_p32": _unpacked_sixes}
_SPACES = ("shared", "shared::cta")


@cache
def ldmatrix(modifiers: tuple[str, ...]) -> MatrixMove:
    """The form of ldmatrix with `modifiers`; Unknown if there is none."""
    match _said("ldmatrix", modifiers):
        case [("m8n8"), ("x1" | "x2" | "x4") as count, "b16"]:
            return _move(count, 8, np.uint32, _M8N8, "ldmatrix m8n8")
        case ["m8n8", ("x1" | "x2" | "x4") as count, "trans", "b16"]:
            return _move(count, 8, np.uint16, _M8N8_TRANSPOSED, "ldmatrix m8n8")
        case ["m8n16", ("x1" | "x2" | "x4") as count, "b8x16", ("b4x16_p64" | "b6x16_p32") as packed]:
            return _move(count, 8, np.uint32, _M8N8, "ldmatrix m8n16", _FORMATS[packed])
        case ["m16n16", ("x1" | "x2") as count, "trans", "b8"]:
            return _move(count, 16, np.uint8, _M16N16, "ldmatrix m16n16")
        case ["m16n16", ("x1" | "x2") as count, "trans", "b8x16", ("b4x16_p64" | "b6x16_p32") as packed]:
            return _move(count, 16, np.uint8, _M16N16, "ldmatrix m16n16", _FORMATS[packed])
    raise Unknown(f"ldmatrix.{'.'.join(modifiers)} is not known.")


@cache
def stmatrix(modifiers: tuple[str, ...]) -> MatrixMove:
    """The form of stmatrix with `modifiers`; Unknown if there is none."""
    match _said("stmatrix", modifiers):
        case ["m8n8", ("x1" | "x2" | "x4") as count, "b16"]:
            return _move(count, 8, np.uint32, _M8N8, "stmatrix m8n8")
        case ["m8n8", ("x1" | "x2" | "x4") as count, "trans", "b16"]:
            return _move(count, 8, np.uint16, _M8N8_TRANSPOSED, "stmatrix m8n8")
        case ["m16n8", ("x1" | "x2" | "x4") as count, "trans", "b8"]:
            return _move(count, 8, np.uint8, _M16N8, "stmatrix m16n8")
    raise Unknown(f"stmatrix.{'.'.join(modifiers)} is not known.")


def movmatrix(modifiers: tuple[str, ...], registers: Words) -> Words:
    """Registers [..., 32] of the transposed 8 x 8 matrix of 16-bit elements, whose fragments are `registers`."""
    if modifiers != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise Unknown(f"movmatrix.{'.'.join(modifiers)} is not known.")
    elements = np.ascontiguousarray(registers).view(np.uint16).reshape(-1, 64)
    return elements.take(_M8N8_TRANSPOSED.reshape(-1), axis=1).view(np.uint32).reshape(registers.shape)


def _said(opcode: str, modifiers: tuple[str, ...]) -> list[str]:
    """`modifiers` without .sync, .aligned and the state space, which the address says as well."""
    if modifiers[:2] != ("sync", "aligned"):
        raise Unknown(f"{opcode}.{'.'.join(modifiers)} is not known: it must begin with .sync.aligned.")
    return [word for word in modifiers[2:] if word not in _SPACES]


def _move(
    count: str, rows: int, unit: npt.DTypeLike, source: Index, rule: str, expand: Callable[[Bytes], Bytes] = _as_they_are
) -> MatrixMove:
    """A form that does with each of `count` matrices what `source` [32, units] says of one."""
    matrices = int(count[1:])
    per_matrix = source.size
    of_all = np.concatenate([source + per_matrix * matrix for matrix in range(matrices)], axis=1)
    registers = of_all.shape[1] * np.dtype(unit).itemsize // 4
    return MatrixMove(matrices, rows, registers, rule, unit, of_all.reshape(-1), expand)
