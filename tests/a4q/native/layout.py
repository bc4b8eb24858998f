"""The index formulas of `impls/a4q/native/kernels`, one function each, for arrays of lanes.

`QUOTED` holds the expressions as the CUDA sources have them: a test looks for them there, so that neither side changes alone.
g and t are lane / 4 and lane % 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
LANES: Ints = np.arange(32)

QUOTED = {
    "stage.cuh": (
        "line - in_team + LANE_TOKENS * (column / 2) + 2 * block + column % 2",
        "lines.base + cache.page(nearest) * lines.page_stride + Cache::slot(nearest) * lines.line_stride",
        "const int token = key + 2 * PIECE * piece, begin = cache.first / (2 * PIECE) * (2 * PIECE);",
        "const int block = max(min(token, cache.last) / 16 * 16, begin);",
        "max(min(cache.last / 16 * 8 + 8 - token / 2, PIECE), 0)",
    ),
    "attend.cu": (
        "rows[i] + 64 * chunk + 32 * half + 8 * t",
        "(line * 32 + place.lane()) * 16 + 4 * (i + 2 * half)",
        "(line * 16 + place.g + 8 * i) * 4 + t / 2 + 2 * half",
        "min(2 * i + place.t / 2, CHUNKS - 1), row = place.g + 8 * (place.t % 2)",
        "piece = 4 * i + lane / 8, line = first_line + piece / PIECES * 8 + lane % 8",
        "line * K_PITCH + piece % PIECES * 16",
        "min(4 * i + place.t, SCALE_WORDS - 1), line = first_line + number / CHUNKS * 8 + place.g",
        "line * K_SCALE_LINE + number % CHUNKS * 4",
        "PIECE = BLOCK * PIECES + 2 * C, WORD = BLOCK * CHUNKS + C",
        "add_product<C % 2, WORD % 4>(s, query.codes[C], query.scales[C / 2]",
        "token_of_line(place.team * TEAM_KEYS + 2 * place.t)",
        "key + lane_token + (V_ALONG_TOKENS ? 2 : 8) * block + c % 2",
        "a[b / 2][2 * (b % 2) + i] = p[b][i]",
        "line = place.team * TEAM_KEYS + 16 * j + 2 * place.t",
        "byte = place.part * (V_DIM / 2) + (8 * n + place.g) * V_VECTOR",
        "(line + 8 * r + i) * V_SCALE_LINE + byte / 8",
        "sums.acc[n * 2 * V_VECTOR + 8 * w + d]",
        "line = place.part * V_DIM + place.g, token = place.team * TEAM_KEYS + LANE_TOKENS * place.t",
        "(line + 8 * n) * V_SCALE_LINE + token / 16",
        "(n / (2 * V_VECTOR) * 8 + col) * 2 * V_VECTOR + n % (2 * V_VECTOR)",
    ),
}


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
