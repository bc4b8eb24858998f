"""Shared memory, splits and refusals: plain arithmetic, on any machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.arch import ARCHES, CPU, find
from impls.contract import Paged, Problem
from impls.peers.refusals import NO_GPU
from impls.planning import SMS
from impls.registry import implementation
from impls.smem_unpack.planner import (
    BLOCKS_OF_AN_SM,
    KEYS,
    MIN_TILES_OF_A_SPLIT,
    ROW_TILES,
    longest_chain,
    row_warps_for,
    schedule,
    shared_bytes,
    why_not,
)
from tests.peers.problems import problem

DECODE = Problem(1, 32, 8, 1, 131072, 128, 128)
HOPPER, BLACKWELL = find("sm_90a"), find("sm_120a")


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    kv_heads = draw(st.integers(1, 16))
    return Problem(
        batch=draw(st.integers(1, 64)),
        q_heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        q_len=draw(st.integers(1, 300)),
        kv_len=draw(st.integers(0, 200_000)),
        head_dim=16 * draw(st.integers(1, 32)),
        v_head_dim=16 * draw(st.integers(1, 32)),
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 10_000)),
    )


@given(problems())
def test_a_schedule_covers_all_rows_and_keys(p: Problem) -> None:
    tile = row_warps_for(p, HOPPER)
    s = schedule(p, tile)
    assert s.programs == p.batch * p.kv_heads * -(-p.q_len * p.group // (16 * tile))
    assert s.splits * s.keys_of_a_split >= min(p.kv_len, p.window or p.kv_len)
    assert s.keys_of_a_split <= longest_chain(p)
    rows = p.batch * p.q_heads * p.q_len
    assert s.workspace_bytes == (4 * s.splits * rows * (p.v_head_dim + 1) if s.splits > 1 else 0)


@given(problems())
def test_splits_fill_the_machine_at_most_once_and_none_is_idle(p: Problem) -> None:
    s = schedule(p, row_warps_for(p, HOPPER))
    assert s.splits == 1 or s.splits * s.programs <= BLOCKS_OF_AN_SM * SMS
    if s.splits > 1:
        assert p.v_head_dim % 32 == 0, "combine.cu joins 32 head dims at a time"
        assert s.keys_of_a_split >= MIN_TILES_OF_A_SPLIT * KEYS
        if p.window is None:
            assert (s.splits - 1) * s.keys_of_a_split < p.kv_len


@given(problems(), st.sampled_from([arch for arch in ARCHES.values() if why_not(DECODE, arch) is None]))
def test_a_tile_of_rows_is_no_larger_than_it_must_and_can_be(p: Problem, arch) -> None:
    if why_not(p, arch) is None:
        tile, rows = row_warps_for(p, arch), p.q_len * p.group
        assert shared_bytes(p, tile) <= arch.shared_per_block
        for smaller in (one for one in ROW_TILES if one < tile):
            assert 16 * smaller < rows
        for larger in (one for one in ROW_TILES if one > tile):
            assert 16 * tile >= rows or shared_bytes(p, larger) > arch.shared_per_block


def test_shared_memory_is_that_of_two_unpacked_tiles_and_does_not_grow_with_the_context() -> None:
    """At 128: 16 rows of Q and 128 keys on lines of 160 B, 128 dims and 16 rows of P on lines of 160 B, 9 floats a row."""
    assert shared_bytes(DECODE, 1) == (16 + 128 + 128 + 16) * 160 + 9 * 16 * 4
    assert shared_bytes(replace(DECODE, kv_len=2**30), 1) == shared_bytes(DECODE, 1)


@pytest.mark.parametrize("arch", ["sm_120a", "sm_121a"])
def test_head_dim_512_does_not_fit_and_both_numbers_are_said(arch: str) -> None:
    """16 rows of Q and 128 keys on lines of 544 B, 512 dims and 16 rows of P on lines of 160 B, 9 floats a row."""
    wide = replace(DECODE, head_dim=512, v_head_dim=512)
    assert (16 + 128) * 544 + (512 + 16) * 160 + 9 * 16 * 4 == 163_392
    assert implementation("smem-unpack").why_not(wide, find(arch)) == (
        "smem-unpack unpacks 128 keys and values of head dims 512 and 512 in shared memory, which takes 163,392 B; "
        f"a block has 101,376 B on {arch}."
    )
    assert why_not(wide, HOPPER) is None
    assert row_warps_for(replace(wide, q_len=512), HOPPER) == 4


@pytest.mark.parametrize("dim", [64, 128, 192, 256])
def test_other_head_dims_fit_every_gpu_that_multiplies_e4m3_and_sums_float32(dim: int) -> None:
    for arch in ARCHES.values():
        p = replace(DECODE, head_dim=dim, v_head_dim=dim)
        assert (why_not(p, arch) is None) == (arch.accepts("fp8_mma_sync") and arch.name != "sm_89")
    assert row_warps_for(replace(DECODE, head_dim=256, v_head_dim=256, q_len=512), BLACKWELL) == 2, "4 do not fit"


def test_what_it_cannot_do_is_said_in_a_sentence() -> None:
    assert why_not(DECODE, CPU) == NO_GPU
    assert why_not(DECODE, find("sm_80")) == "sm_80 has no fp8 mma.sync: ptxas 13.0.88 refuses it for this target."
    assert implementation("smem-unpack").why_not(DECODE, find("sm_89")) == (
        "sm_89 sums products of E4M3 with 13 fractional bits, for which smem-unpack's error bound has no term."
    )
    assert why_not(problem(scale=2.0**127), HOPPER) == "smem-unpack takes softmax scales up to 8.50706e+37, not 1.70141e+38."


def test_nothing_that_is_right_is_refused() -> None:
    for fields in (
        {"q_len": 5000},
        {"layout": Paged(16), "ragged": True},
        {"window": 3},
        {"kv_len": 0},
        {"dtype": "float16"},
        {"head_dim": 48, "v_head_dim": 80},
        {"v_block_axis": -2},
    ):
        assert why_not(problem(**fields), HOPPER) is None
