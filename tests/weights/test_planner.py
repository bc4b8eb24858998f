"""Schedules: every line, row and element is somebody's, and the workspace is as large as it is said."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from impls.arch import ARCHES, CPU, find
from impls.planning import SMS
from impls.weights.contract import Projection, ProjectionRounds
from impls.weights.few_rows_planner import LINES, cut_for
from impls.weights.planner import CONVERTED_FROM, TILE, schedule, why_not
from impls.weights.w4a16 import W4A16

SIZES = st.integers(1, 40_000)
PROBLEMS = st.builds(Projection, st.integers(1, 8192), SIZES, SIZES)
ARCH = st.sampled_from([CPU, *ARCHES.values()])


@given(PROBLEMS, ARCH)
def test_a_schedule_covers_the_product_once(problem, arch):
    s = schedule(problem, arch)
    tile = s.tile
    row_tiles, line_tiles = -(-problem.rows // tile.block_m), -(-problem.outputs // tile.block_n)
    assert s.programs == row_tiles * line_tiles
    assert s.tiles * TILE >= problem.inputs > (s.tiles - 1) * TILE
    shares = [(s.tiles * split // s.splits, s.tiles * (split + 1) // s.splits) for split in range(s.splits)]
    assert shares[0][0] == 0 and shares[-1][1] == s.tiles
    assert all(start < stop for start, stop in shares), "a program without work"
    assert all(one[1] == other[0] for one, other in itertools.pairwise(shares))
    parts = s.splits * problem.rows * problem.outputs
    assert s.workspace_bytes == (4 * (parts + s.programs) if s.splits > 1 else 0)


@given(PROBLEMS, ARCH)
def test_a_tile_is_one_that_the_kernel_can_rename(problem, arch):
    """Weights as first operand: their lines are dealt to warps 16 at a time."""
    tile = schedule(problem, arch).tile
    assert tile.block_m in (8, 16, 32, 64, 128, 256)
    assert not tile.weights_first or tile.block_n % (16 * tile.num_warps) == 0


def test_one_row_fills_the_gpu_with_blocks_that_reside_at_once():
    for outputs, inputs in ((14336, 4096), (4096, 14336), (4096, 4096), (1024, 4096)):
        s = schedule(Projection(1, outputs, inputs), find("sm_90a"))
        assert s.programs * s.splits <= s.tile.blocks_per_sm * SMS
        assert s.splits == s.tiles or s.programs * (s.splits + 1) > s.tile.blocks_per_sm * SMS


def test_many_rows_are_multiplied_by_converted_weights():
    plans = {rows: W4A16().plan(Projection(rows, 256, 512), CPU) for rows in (1, CONVERTED_FROM - 1, CONVERTED_FROM)}
    assert [plan.describe()["way"] for plan in plans.values()] == ["fused", "fused", "convert"]
    assert plans[CONVERTED_FROM].workspace_bytes == 2 * 256 * 512
    assert W4A16().rounds(Projection(1, 256, 512)) == ProjectionRounds()
    assert W4A16().rounds(Projection(CONVERTED_FROM, 256, 512)).weights.name == "bfloat16"


@given(PROBLEMS)
def test_a_cut_covers_all_lines_and_resides_at_once(problem):
    cut = cut_for(problem)
    blocks = -(-problem.outputs // LINES)
    assert 1 <= cut.warps <= 14 and cut.warps * cut.blocks_per_sm <= 28
    assert blocks <= cut.blocks_per_sm * SMS or cut.warps == 1


def test_what_offsets_cannot_reach_is_refused():
    problem = Projection(1, 2**20, 2**20)
    assert W4A16().why_not(problem, find("sm_90a")) == why_not(problem)
    assert "2^32 elements" in (why_not(problem) or "")
