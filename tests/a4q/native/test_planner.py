"""Tiles, splits and shared memory of the native kernels, and where they are chosen: plain arithmetic, on any machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.a4q.native.planner import WORK_BYTES, longest_chain, parts, schedule, serves, shared_bytes, sms, tile_for
from impls.a4q.planner import why_not
from impls.arch import ARCHES, Arch, find
from impls.contract import Paged, Problem
from impls.occupancy import resident_warps
from impls.registry import implementation

DECODE = Problem(1, 32, 8, 1, 131072, 128, 128)
NATIVE = [find("sm_120a"), find("sm_121a")]
DIMS = (64, 128, 192, 256, 384, 512)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """What `a4q` takes."""
    kv_heads = draw(st.integers(1, 16))
    head_dim = draw(st.sampled_from(DIMS))
    other = DIMS if head_dim <= 256 else (128, 256, 384, 512)
    made = Problem(
        batch=draw(st.integers(1, 64)),
        q_heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        q_len=draw(st.integers(1, 300)),
        kv_len=draw(st.integers(0, 200_000)),
        head_dim=head_dim,
        v_head_dim=draw(st.sampled_from(other)),
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 10_000)),
        v_block_axis=draw(st.sampled_from([-1, -2])),
    )
    if why_not("a4q", made, NATIVE[0]) is not None:
        made = replace(made, v_head_dim=made.head_dim)
    return made


def test_tensor_cores_that_take_nvfp4_from_registers_get_these_kernels() -> None:
    assert [arch.name for arch in ARCHES.values() if serves(arch)] == ["sm_120a", "sm_121a"]


@given(problems(), st.sampled_from(NATIVE))
def test_a_schedule_covers_all_rows_and_keys(p: Problem, arch: Arch) -> None:
    s = schedule(p, arch)
    assert s.programs * s.rows >= p.batch * p.kv_heads * p.q_len * p.group
    assert s.splits * s.tile.teams * s.keys_of_a_team >= min(p.kv_len, p.window or p.kv_len)
    assert s.splits == 1 or s.splits * s.programs <= s.tile.blocks_per_sm * sms(arch)
    if s.splits > 1 and p.window is None:  # none is idle
        assert (s.splits - 1) * s.tile.teams * s.keys_of_a_team < p.kv_len
    assert s.keys_of_a_team <= longest_chain(p)
    assert s.workspace_bytes == (4 * s.splits * p.batch * p.q_heads * p.q_len * (p.v_head_dim + 1) if s.splits > 1 else 0)


@given(problems(), st.sampled_from(NATIVE))
def test_a_step_is_cut_as_the_kernels_want_it(p: Problem, arch: Arch) -> None:
    """The static_asserts of attend.cu and stage.cuh, and no more rows than there are, in powers of two of 16."""
    tile = tile_for(p)
    assert tile.keys // tile.teams in (16, 32, 64)
    assert tile.keys // tile.teams // 8 // parts(p) * (p.head_dim // 32) % 4 == 0
    assert tile.teams & (tile.teams - 1) == 0
    assert p.v_head_dim // parts(p) <= 256
    rows = p.q_len * p.group
    assert tile.teams in (1, 4) or 16 * tile.row_warps < 2 * max(rows, 16)


@given(problems(), st.sampled_from(NATIVE))
def test_two_blocks_of_4_warps_share_an_sm_up_to_128_head_dims_and_beyond_it_holds_one_of_8(p: Problem, arch: Arch) -> None:
    s = schedule(p, arch)
    narrow = max(p.head_dim, p.v_head_dim) <= 128
    assert s.threads == (128 if narrow else 256)
    together = s.shared_bytes + WORK_BYTES
    assert together <= (50_176 if narrow else arch.shared_per_block)
    assert resident_warps(arch, threads=s.threads, registers=255, shared_bytes=together) == 8


@given(problems())
def test_shared_memory_does_not_grow_with_the_context(p: Problem) -> None:
    assert shared_bytes(p, tile_for(p)) == shared_bytes(replace(p, kv_len=2**30), tile_for(p))


@pytest.mark.parametrize("arch", NATIVE, ids=lambda arch: arch.name)
@pytest.mark.parametrize("dim", [64, 128, 256, 512])
def test_long_decode_leaves_few_sms_idle(dim: int, arch: Arch) -> None:
    s = schedule(replace(DECODE, head_dim=dim, v_head_dim=dim), arch)
    assert s.splits * s.programs >= 0.95 * s.tile.blocks_per_sm * sms(arch)


def test_the_bound_allows_the_longest_sum_of_any_gpu() -> None:
    """Prefill: a row's keys are one sum here, where decode.cu divides them among its warps."""
    prefill = Problem(1, 8, 8, 8192, 8192, 128, 128)
    assert longest_chain(prefill) == 8192 == implementation("a4q").accumulator_chain(prefill)


@pytest.mark.parametrize("arch", NATIVE, ids=lambda arch: arch.name)
def test_what_a4q_takes_is_the_same_there(arch: Arch) -> None:
    chosen = implementation("a4q")
    for fields in ({"layout": Paged(16), "ragged": True}, {"window": 3}, {"kv_len": 0}, {"v_block_axis": -2}):
        assert why_not("a4q", replace(DECODE, **fields), arch) is None
    for dim in (48, 320, 640):
        wanted = f"a4q takes head dims that are multiples of 64, where one is beyond 256 of 128, up to 512, not {dim}."
        assert chosen.why_not(replace(DECODE, head_dim=dim), arch) == wanted
