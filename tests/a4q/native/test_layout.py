"""The native kernels' index arithmetic, executed on a step's packed bytes with the instructions' documented fragments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from impls.a4q.native.planner import schedule
from impls.arch import find
from impls.contract import Problem
from impls.cuda.attention import problem_defines
from impls.cuda.compiler import CompileError, compile_kernel
from tests.a4q.native import layout
from tests.a4q.native.fragments import E2M1_VALUES, G, T, e4m3_values, from_c, ldmatrix_x4, products, scores, to_c
from tests.a4q.native.layout import Geometry
from tests.cuda.needs import needs_nvrtc

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# each vector of V, both numbers of parts, chunks that do not fill registers, teams of 16, 32 and 64 keys
GEOMETRIES = [
    Geometry(head_dim, v_head_dim, teams, keys, along)
    for along in (False, True)
    for head_dim, v_head_dim, teams, keys in (
        (64, 64, 1, 64),
        (64, 64, 4, 128),
        (128, 128, 1, 64),
        (128, 128, 2, 128),
        (192, 128, 8, 128),
        (192, 192, 2, 128),
        (256, 256, 8, 128),
        (512, 512, 1, 32),
        (512, 512, 4, 64),
        (128, 384, 4, 64),
    )
]

ARCH = find("sm_120a")
STAGE_CHECK = """
#include "impls/a4q/native/kernels/stage.cuh"
constexpr int TOKENS[] = {%s};
__device__ constexpr bool same() {
  for (int line = 0; line < KEYS; line++)
    if (token_of_line(line) != TOKENS[line]) return false;
  return sizeof(TOKENS) == KEYS * sizeof(int);
}
static_assert(same() && K_PITCH == %d && V_PITCH == %d, "as the tests have it");
extern "C" __global__ void check() {}
"""


def nibbles(packed: Bytes) -> Ints:
    """[..., 2 n] of [..., n] bytes: the even element is the low one."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1).astype(np.int64)


def decoded(packed: Bytes, scales: Bytes) -> Floats:
    """Values of lines of codes and of their scales, one a block of 16."""
    return E2M1_VALUES[nibbles(packed)] * np.repeat(e4m3_values(scales.astype(np.int64)), 16, axis=-1)


class Step:
    """Random Q of one warp, and K and V of a step, as the cache has them."""

    def __init__(self, geometry: Geometry) -> None:
        x = self.geometry = geometry
        g = np.random.default_rng(0)

        def packed(lines: int, length: int) -> tuple[Bytes, Bytes]:
            codes = g.integers(0, 256, (lines, length // 2), dtype=np.uint8)
            return codes, g.integers(0x28, 0x48, (lines, length // 16), dtype=np.uint8)

        self.q, self.q_scales = packed(16, x.head_dim)
        self.k, self.k_scales = packed(x.keys, x.head_dim)
        self.v, self.v_scales = packed(x.v_head_dim, x.keys) if x.along_tokens else packed(x.keys, x.v_head_dim)
        self.scores = decoded(self.q, self.q_scales) @ decoded(self.k, self.k_scales).T  # [16, KEYS]
        v = decoded(self.v, self.v_scales)
        self.values = v.T if x.along_tokens else v  # [KEYS, Dv]

    def k_in_shared(self) -> tuple[Bytes, Bytes]:
        """Codes and scales, in the order of lines."""
        order = [self.geometry.token_of_line(line) for line in range(self.geometry.keys)]
        assert sorted(order) == list(range(self.geometry.keys))
        return self.k[order], self.k_scales[order]

    def query(self, chunk: int) -> tuple[Ints, Ints]:
        """(nibbles [4, lane, 8], scale bytes [lane, 4]) of a chunk, as rounding leaves them and the warp loads them."""
        columns = np.stack([layout.q_columns(chunk, r // 2)[:, None] + np.arange(8) for r in range(4)])
        codes = np.stack([nibbles(self.q)[(G + 8 * (r % 2))[:, None], columns[r]] for r in range(4)])
        words = np.zeros((16, self.geometry.chunks, 4), np.int64)  # by row and chunk
        for i in range(2):
            for half in range(2):
                for c in range(self.geometry.chunks):
                    of_block = self.q_scales[G + 8 * i, layout.q_columns(c, half) // 16]
                    words[G + 8 * i, c, layout.q_scale_byte(half)] = of_block
        row, of_chunk = layout.q_scale_word(chunk // 2, self.geometry.chunks)
        return codes, words[row, of_chunk]

    def block_scores(self, team: int, part: int, block: int) -> Floats:
        """[4, lane]: C of a block of 8 keys, over all chunks."""
        x = self.geometry
        k, k_scales = self.k_in_shared()
        total = np.zeros((16, 8))
        for chunk in range(x.chunks):
            load, register = x.k_operand(block, chunk)
            line, byte = x.k_row(load, team, part)
            words = ldmatrix_x4(k[line[:, None], byte[:, None] + np.arange(16)])
            i, thread_b = x.k_scale_operand(block, chunk)
            line, byte = x.k_scale_word(i, team, part)
            scales = k_scales[line[:, None], byte[:, None] + np.arange(4)].astype(np.int64)
            a, scales_a = self.query(chunk)
            total += scores(a, scales_a, chunk % 2, nibbles(words[register : register + 2]), scales, thread_b)
        return to_c(total)

    def team_scores(self, team: int) -> list[Floats]:
        x = self.geometry
        return [self.block_scores(team, part, block) for part in range(x.parts) for block in range(x.warp_blocks)]

    def v_operand(self, team: int, part: int, tile: int, block: int) -> Floats:
        """B of a tile of 16 keys and block `block` of 8 dims: [register, lane, 2]."""
        x = self.geometry
        b = np.zeros((2, 32, 2))
        if x.along_tokens:
            line, token = part * x.v_dim + G + 8 * block, team * x.team_keys + x.lane_tokens * T
            for r in range(2):
                pair = nibbles(self.v[line, token // 2 + 2 * tile + r][:, None])
                b[r] = E2M1_VALUES[pair] * e4m3_values(self.v_scales[line, token // 16].astype(np.int64))[:, None]
            return b
        n, word, d = block // (2 * x.v_vector), block % (2 * x.v_vector) // 8, block % 8
        byte = part * (x.v_dim // 2) + (8 * n + G) * x.v_vector
        for r in range(2):
            for i in range(2):
                line = team * x.team_keys + 16 * tile + 2 * T + 8 * r + i
                code = nibbles(self.v[line, byte + 4 * word + d // 2][:, None])[:, d % 2]
                scale = self.v_scales[line, byte // 8 + word // 2].astype(np.int64)
                b[r, :, i] = E2M1_VALUES[code] * e4m3_values(scale)
        return b


def compare_with_stage(path: Path, geometry: Geometry, tokens: Sequence[int], k_pitch: int, v_pitch: int) -> None:
    """Raises CompileError where the constants and `token_of_line` of stage.cuh are others."""
    x = geometry
    problem = Problem(1, 1, 1, 1, 1, x.head_dim, x.v_head_dim, v_block_axis=-2 if x.along_tokens else -1)
    alignments = {f"{name}_ALIGNMENT": 16 for name in ("K_CODES", "K_SCALES", "V_CODES", "V_SCALES")}
    defines = {
        **problem_defines(problem, schedule(problem, ARCH)),
        **alignments,
        "K_TYPE": "Float16",
        "TEAMS": x.teams,
        "KEYS": x.keys,
        "THREADS": 32 * x.teams * x.parts,
    }
    path.write_text(STAGE_CHECK % (", ".join(map(str, tokens)), k_pitch, v_pitch))
    compile_kernel(path, "check", ARCH, defines, folder=path.parent)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_scores_are_of_the_keys_that_the_mask_takes_them_for(geometry: Geometry) -> None:
    step = Step(geometry)
    for team in {0, geometry.teams - 1}:
        for part in range(geometry.parts):
            for block in range(geometry.warp_blocks):
                found = step.block_scores(team, part, block)
                for c in range(4):
                    wanted = step.scores[G + 8 * (c // 2), geometry.score_token(team, part, block, c)]
                    np.testing.assert_allclose(found[c], wanted, rtol=1e-12)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_scores_are_p_without_permutation_and_sums_are_of_the_dims_that_they_are_stored_as(geometry: Geometry) -> None:
    """Scores stand for P: linear in V, so a wrong pairing of tokens shows."""
    step = Step(geometry)
    for team in {0, geometry.teams - 1}:
        c = step.team_scores(team)
        keys = slice(team * geometry.team_keys, (team + 1) * geometry.team_keys)
        wanted = step.scores[:, keys] @ step.values[keys]
        for part in range(geometry.parts):
            for block in {0, 1, 7, 8, geometry.v_dim // 8 - 1} & set(range(geometry.v_dim // 8)):
                total = np.zeros((16, 8))
                for tile in range(geometry.team_keys // 16):
                    a = np.stack([c[2 * tile + r // 2][2 * (r % 2) : 2 * (r % 2) + 2].T for r in range(4)])
                    total += products(a, step.v_operand(team, part, tile, block))
                dims = part * geometry.v_dim + geometry.dim_of(block, np.arange(8))
                np.testing.assert_allclose(from_c(to_c(total)), wanted[:, dims], rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_every_head_dim_is_stored_once(geometry: Geometry) -> None:
    stored = np.concatenate([geometry.dim_of(n, np.arange(8)) for n in range(geometry.v_dim // 8)])
    assert sorted(stored) == list(range(geometry.v_dim))
    if not geometry.along_tokens:  # eight blocks' values of one column are one run of 8 dims
        for n in range(0, geometry.v_dim // 8, 8):
            runs = np.stack([geometry.dim_of(n + k, np.arange(8)) for k in range(8)])
            assert (runs - runs[0] == np.arange(8)[:, None]).all() and (runs[0] % 8 == 0).all()


@needs_nvrtc
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_tokens_and_pitches_are_those_of_the_kernels(geometry: Geometry, tmp_path: Path) -> None:
    """The compiler evaluates what stage.cuh has, and refuses the source where that differs."""
    x = geometry
    tokens = [x.token_of_line(line) for line in range(x.keys)]
    compare_with_stage(tmp_path / "right.cu", x, tokens, x.k_pitch, x.v_pitch)
    for wrong in (
        (tokens[::-1], x.k_pitch, x.v_pitch),
        (tokens, x.k_pitch + 16, x.v_pitch),
        (tokens, x.k_pitch, x.v_pitch + 16),
    ):
        with pytest.raises(CompileError, match="static assertion"):
            compare_with_stage(tmp_path / "wrong.cu", x, *wrong)


@pytest.mark.parametrize("pitch", [32 + 16, 64 + 16, 96 + 16, 128 + 16, 256 + 16])
def test_lines_that_are_read_together_lie_on_distinct_banks(pitch: int) -> None:
    """Eight lines of 16 bytes by ldmatrix; lines 2 t of 32 bytes for V."""
    assert len({line * pitch % 128 // 16 for line in range(8)}) == 8
    assert len({2 * t * pitch % 128 // 32 for t in range(4)}) == 4
