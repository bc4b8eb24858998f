"""Which lane and register holds which element of A, B, C and D of mma.sync.

g = lane / 4, t = lane % 4, r is a register's number. A register of A or B holds a word: consecutive elements along K, the
lowest bits first, so that one layout serves every element size. The shape's K is 16 or 32 bytes wide (4 or 8 words):

      A, 16 rows           word 0   1   2   3   4   5   6   7
                                t           |       t             row g:     registers 0 and 2
      row 0                l0  l1  l2  l3   | l0  l1  l2  l3      row g + 8: registers 1 and 3
      row 1                l4  l5  l6  l7   | l4  l5  l6  l7      (K of 16 bytes: words 0 to 3, registers 0 and 1)
      ...                  ...              |
      row 7                l28 l29 l30 l31  | l28 l29 l30 l31     B is the same with a column for a row: 8 of them,
      row 8                l0  l1  l2  l3   | l0  l1  l2  l3      registers 0 (words 0 to 3) and 1 (words 4 to 7)
      ...

      C and D, 16 x 8      column 0  1   2  3   4  5   6  7
      row 0                l0 l0  l1 l1  l2 l2  l3 l3             row g:     values 0 and 1, columns 2t and 2t + 1
      ...                                                         row g + 8: values 2 and 3
      row 8                l0 l0  l1 l1  l2 l2  l3 l3             a value is a register, or half of one for f16

PTX ISA 9.1, "Matrix Fragments for mma.m16n8k16 with floating point type" and its neighbours.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.intp]

_LANE = np.arange(32)[:, None]
_G, _T = _LANE >> 2, _LANE & 3


def _holders(row: npt.NDArray[np.int64], column: npt.NDArray[np.int64]) -> Index:
    """[rows, columns]: lane * registers + register that holds each element, of the element that each [lane, register] holds."""
    row, column = np.broadcast_arrays(row, column)
    holders = np.empty((row.max() + 1, column.max() + 1), np.intp)
    holders[row, column] = np.arange(row.size).reshape(row.shape)
    return holders


def _a_words(registers: int) -> Index:
    r = np.arange(registers)
    return _holders(_G + 8 * (r & 1), _T + 4 * (r >> 1))


def _b_words(registers: int) -> Index:
    r = np.arange(registers)
    return _holders(_G, _T + 4 * r)


A_WORDS: dict[int, Index] = {registers: _a_words(registers) for registers in (2, 4)}
"""[row, word] of A by its registers: where in a warp's registers [32 x registers] that word is."""
B_WORDS: dict[int, Index] = {registers: _b_words(registers) for registers in (1, 2)}
"""[column, word] of B."""

_VALUE = np.arange(4)
C_VALUES: Index = _holders(_G + 8 * (_VALUE >> 1), 2 * _T + (_VALUE & 1))
"""[row, column] of C or D: where in a warp's values [32 x 4] that element is."""
D_ELEMENTS: Index = np.argsort(C_VALUES, axis=None)
"""[32 x 4]: where in a matrix [16 x 8] each value is."""
