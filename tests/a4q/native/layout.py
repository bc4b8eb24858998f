"""The index formulas of `impls/a4q/native/kernels`, one function each, for arrays of lanes.

`token_of_line` and the pitches are compared with the kernels' own by their compiler. The others stand in the midst of loads and
products, where only a GPU executes them: `tests/a4q/on_gpu.py`. g and t are lane / 4 and lane % 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
LANES: Ints = np.arange(32)


@dataclass(frozen=True)
class Geometry:
    """What a step's index arithmetic depends on."""

    head_dim: int
    v_head_dim: int
    teams: int
    keys: int
    along_tokens: bool

    @property
    def parts(self) -> int:
        return 2 if self.v_head_dim > 256 else 1

    @property
    def team_keys(self) -> int:
        return self.keys // self.teams

    @property
    def lane_tokens(self) -> int:
        return self.team_keys // 4

    @property
    def warp_blocks(self) -> int:
        """Of 8 keys, whose scores a warp computes."""
        return self.team_keys // 8 // self.parts

    @property
    def chunks(self) -> int:
        return self.head_dim // 64

    @property
    def pieces(self) -> int:
        return self.head_dim // 32

    @property
    def v_dim(self) -> int:
        return self.v_head_dim // self.parts

    @property
    def v_vector(self) -> int:
        return 16 if self.v_dim % 256 == 0 else 8 if self.v_dim % 128 == 0 else 4

    @property
    def k_pitch(self) -> int:
        """Bytes from line to line of K's codes in shared memory."""
        return self.head_dim // 2 + 16

    @property
    def v_pitch(self) -> int:
        line = self.keys // 2 if self.along_tokens else self.v_head_dim // 2
        return line if self.along_tokens and self.teams == 1 else line + 16

    def token_of_line(self, line: int) -> int:
        if not self.along_tokens:
            return line
        in_team = line % self.team_keys
        block, column = in_team // 8, in_team % 8
        return line - in_team + self.lane_tokens * (column // 2) + 2 * block + column % 2

    def first_line(self, team: int, part: int) -> int:
        return team * self.team_keys + part * 8 * self.warp_blocks

    def k_row(self, i: int, team: int, part: int) -> tuple[Ints, Ints]:
        """(line, byte in the line) of the 16 bytes that each lane names in load i of ldmatrix."""
        piece = 4 * i + LANES // 8
        return self.first_line(team, part) + piece // self.pieces * 8 + LANES % 8, piece % self.pieces * 16

    def k_operand(self, block: int, chunk: int) -> tuple[int, int]:
        """(load, register) of b0; b1 is the next register."""
        piece = block * self.pieces + 2 * chunk
        return piece // 4, piece % 4

    def k_scale_word(self, i: int, team: int, part: int) -> tuple[Ints, Ints]:
        """(line, byte in the line) of the scales in a lane's register i."""
        number = np.minimum(4 * i + LANES % 4, self.warp_blocks * self.chunks - 1)
        return self.first_line(team, part) + number // self.chunks * 8 + LANES // 4, number % self.chunks * 4

    def k_scale_operand(self, block: int, chunk: int) -> tuple[int, int]:
        """(register, THREAD_B)."""
        word = block * self.chunks + chunk
        return word // 4, word % 4

    def score_token(self, team: int, part: int, block: int, c: int) -> Ints:
        """Token of value c of a lane's scores, as the mask has it."""
        lane_token = np.array([self.token_of_line(team * self.team_keys + 2 * int(t)) for t in LANES % 4])
        return lane_token + (2 if self.along_tokens else 8) * (part * self.warp_blocks + block) + c % 2

    def dim_of(self, n: int, col: Ints) -> Ints:
        """Head dim, of the warp's, of column `col` of block n of the sums."""
        if self.along_tokens:
            return 8 * n + col
        return (n // (2 * self.v_vector) * 8 + col) * 2 * self.v_vector + n % (2 * self.v_vector)


def q_columns(chunk: int, half: int) -> Ints:
    """First of the 8 head dims of a row that a lane rounds, for registers `half * 2` (row g) and `half * 2 + 1` (row g + 8)."""
    return 64 * chunk + 32 * half + 8 * (LANES % 4)


def q_scale_byte(half: int) -> Ints:
    """Byte of the scale word, of a row and chunk, that is of the 16 head dims of which a lane has 8."""
    return LANES % 4 // 2 + 2 * half


def q_scale_word(i: int, chunks: int) -> tuple[Ints, Ints]:
    """(row, chunk) of the scales in a lane's register i: THREAD_A i % 2 of chunk c is register c / 2."""
    return LANES // 4 + 8 * (LANES % 4 % 2), np.minimum(2 * i + LANES % 4 // 2, chunks - 1)
