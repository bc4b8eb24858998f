"""Schedules and refusals: plain arithmetic, on any machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.a4q.planner import (
    MIN_STEPS_OF_MANY_ROWS,
    Schedule,
    SharedTile,
    Tile,
    longest_chain,
    scattered,
    schedule,
    tile_for,
    why_not,
)
from impls.arch import ARCHES, CPU, Arch, find
from impls.contract import Paged, Problem
from impls.planning import SMS
from impls.registry import implementation
from tests.peers.problems import problem

DECODE = Problem(1, 32, 8, 1, 131072, 128, 128)
HOPPER = find("sm_90a")
GPUS = list(ARCHES.values())


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    kv_heads = draw(st.integers(1, 16))
    return Problem(
        batch=draw(st.integers(1, 64)),
        q_heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        q_len=draw(st.integers(1, 300)),
        kv_len=draw(st.integers(0, 200_000)),
        head_dim=draw(st.sampled_from([64, 128, 192, 256, 384, 512])),
        v_head_dim=draw(st.sampled_from([64, 128, 192, 256, 384, 512])),
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 10_000)),
        dtype=draw(st.sampled_from(["bfloat16", "float16"])),
        v_block_axis=draw(st.sampled_from([-1, -2])),
    )


@given(problems(), st.sampled_from(GPUS))
def test_a_schedule_covers_all_rows_and_keys(p: Problem, arch: Arch) -> None:
    s = schedule(p, arch, rounds_q=True)
    assert s.programs == p.batch * p.kv_heads * -(-p.q_len * p.group // s.rows)
    assert s.splits * s.teams * s.keys_of_a_team >= min(p.kv_len, p.window or p.kv_len)
    assert 1 <= s.splits <= 65535, "splits are the grid's second axis"
    rows = p.batch * p.q_heads * p.q_len
    assert s.workspace_bytes == (4 * s.splits * rows * (p.v_head_dim + 1) if s.splits > 1 else 0)


@given(problems(), st.sampled_from(GPUS))
def test_splits_fill_the_machine_at_most_once_and_none_is_idle(p: Problem, arch: Arch) -> None:
    s = schedule(p, arch, rounds_q=True)
    assert s.splits == 1 or s.splits * s.programs <= s.tile.blocks_per_sm * SMS
    if s.splits > 1 and p.window is None:
        assert (s.splits - 1) * s.teams * s.keys_of_a_team < p.kv_len
        if isinstance(s.tile, SharedTile):
            assert s.splits <= p.kv_len / s.tile.keys / MIN_STEPS_OF_MANY_ROWS + 1


@pytest.mark.parametrize(
    ("arch", "q_len", "rows"),
    [
        ("sm_90a", 1, 8),
        ("sm_90a", 2, 8),
        ("sm_90a", 3, 16),
        ("sm_90a", 5, 64),
        ("sm_90a", 16, 64),
        ("sm_90a", 17, 128),
        ("sm_100a", 17, 8),
    ],
)
def test_rows_share_what_is_decoded_where_a_warp_group_multiplies(arch: str, q_len: int, rows: int) -> None:
    """Of 4 heads each."""
    assert schedule(replace(DECODE, q_len=q_len), find(arch), rounds_q=True).rows == rows


@pytest.mark.parametrize("dim", [64, 128, 256, 512])
def test_long_decode_leaves_few_sms_idle(dim: int) -> None:
    s = schedule(replace(DECODE, head_dim=dim, v_head_dim=dim), HOPPER, rounds_q=True)
    assert s.splits * s.programs >= 0.95 * s.tile.blocks_per_sm * SMS


@given(problems())
def test_a_warp_has_whole_chunks_and_a_team_its_warps(p: Problem) -> None:
    """`decode.cu` has two warps a team where a head dim is beyond 256."""
    tile = tile_for(p, HOPPER, rounds_q=True)
    if why_not("a4q", p, HOPPER) is None and isinstance(tile, Tile):
        parts = 2 if max(p.head_dim, p.v_head_dim) > 256 else 1
        assert p.head_dim // parts % 64 == p.v_head_dim // parts % 64 == 0
        assert schedule(p, HOPPER, rounds_q=True).teams * parts == tile.warps


def test_shared_memory_fits_every_gpu_and_does_not_grow_with_the_context() -> None:
    for arch in ARCHES.values():
        for dim in (64, 128, 192, 256, 384, 512):
            for q_len in (1, 16, 1000):
                p = replace(DECODE, head_dim=dim, v_head_dim=dim, q_len=q_len)
                s = schedule(p, arch, rounds_q=True)
                declared = declared_bytes(s, dim)
                assert s.shared_bytes + declared <= arch.shared_per_block
                assert s.tile.blocks_per_sm * (s.shared_bytes + 1024) <= arch.shared_per_sm or s.rows == 8
                assert schedule(replace(p, kv_len=2**30), arch, rounds_q=True).shared_bytes == s.shared_bytes


def declared_bytes(s: Schedule, dim: int) -> int:
    """Shared memory that decode.cu declares, at most: scores that a team exchanges, Q, sums of rows, the rest."""
    if not isinstance(s.tile, Tile):
        return 0
    exchanged = 2 * s.tile.warps * s.tile.key_tiles * s.tile.row_tiles * 32 * 16 if dim > 256 else 0
    return exchanged + 16 * dim * s.tile.row_tiles + 3 * 4 * s.teams * s.rows + 1536


def test_a_sum_is_as_long_as_it_is_said() -> None:
    """2048 steps of 64 keys over 16 splits: of 8 teams 16 steps each, and where the cache is scattered 22 of 32 keys of 12."""
    made = schedule(DECODE, HOPPER, rounds_q=True)
    assert (made.splits, made.teams, made.keys_of_a_team) == (16, 8, 16 * 64)
    loose = scattered(DECODE, HOPPER, made)
    assert (loose.splits, loose.teams, loose.keys_of_a_team) == (16, 12, 22 * 32)
    assert longest_chain(DECODE, rounds_q=True) == made.keys_of_a_team


# (sequences of 8 heads, keys, head dim): (key tiles of a step, warps, blocks of an SM), the fastest of README.md's
TILES = {
    (1, 8192, 64): (2, 16, 1),
    (1, 8192, 128): (2, 16, 1),
    (8, 8192, 128): (2, 16, 1),
    (1, 32768, 128): (2, 16, 1),
    (8, 32768, 128): (4, 8, 1),
    (1, 131072, 64): (4, 12, 1),
    (1, 131072, 128): (4, 8, 1),
    (16, 8192, 128): (4, 8, 1),  # 128 tiles of rows for 132 SMs
    (17, 8192, 128): (2, 8, 2),
    (32, 8192, 128): (2, 8, 2),
    (32, 8192, 64): (4, 12, 1),
    (1, 8192, 256): (2, 8, 1),
    (1, 32768, 256): (2, 8, 1),
    (1, 131072, 256): (2, 12, 1),
    (32, 8192, 256): (2, 12, 1),
}


@pytest.mark.parametrize(("shape", "tile"), TILES.items())
def test_tiles_go_by_the_keys_of_an_sm_and_by_how_many_sequences_fill_it(
    shape: tuple[int, int, int], tile: tuple[int, int, int]
) -> None:
    batch, kv_len, dim = shape
    made = tile_for(replace(DECODE, batch=batch, kv_len=kv_len, head_dim=dim, v_head_dim=dim), HOPPER, rounds_q=True)
    assert isinstance(made, Tile)
    assert (made.key_tiles, made.warps, made.blocks_per_sm) == tile


@given(problems())
def test_a_round_is_under_way_while_another_is_multiplied(p: Problem) -> None:
    made = tile_for(p, HOPPER, rounds_q=True)
    assert not isinstance(made, Tile) or made.stages != 1


@pytest.mark.parametrize("head_dim", [64, 128, 192, 256, 384, 512])
@pytest.mark.parametrize("group", [4, 16])
def test_a_scattered_cache_takes_no_more_memory_than_was_planned(head_dim: int, group: int) -> None:
    p = replace(DECODE, q_heads=8 * group, head_dim=head_dim, v_head_dim=head_dim)
    made = schedule(p, HOPPER, rounds_q=True)
    assert isinstance(made.tile, Tile) and made.tile.stages
    loose = scattered(p, HOPPER, made)
    assert loose.rows == (8 if group == 4 else 64)  # many_rows.cu decodes once
    assert not (isinstance(loose.tile, Tile) and loose.tile.stages)
    assert loose.workspace_bytes <= made.workspace_bytes
    assert loose.splits * loose.teams * loose.keys_of_a_team >= p.kv_len


@pytest.mark.parametrize(
    "fields",
    [
        {"layout": Paged(64), "ragged": True},
        {"window": 4096},
        {"v_block_axis": -2},
        {"kv_len": 131073},
        {"kv_len": 0},
        {"kv_len": 32},
    ],
)
def test_only_runs_of_bytes_are_staged(fields: dict[str, Any]) -> None:
    """Bulk copies take multiples of 16 bytes, and an odd number of lines of 8 bytes is none."""
    tile = tile_for(replace(DECODE, **fields), HOPPER, rounds_q=True)
    assert isinstance(tile, Tile) and not tile.stages


@pytest.mark.parametrize("name", ["a4q", "a4q-q16"])
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"head_dim": 48}, "takes head dims that are multiples of 64, where one is beyond 256 of 128, up to 512, not 48."),
        ({"head_dim": 320}, "takes head dims that are multiples of 64, where one is beyond 256 of 128, up to 512, not 320."),
        (
            {"head_dim": 512, "v_head_dim": 64},
            "takes head dims that are multiples of 64, where one is beyond 256 of 128, up to 512, not 64.",
        ),
        ({"head_dim": 640}, "takes head dims that are multiples of 64, where one is beyond 256 of 128, up to 512, not 640."),
        ({"scale": 2.0**127}, "takes softmax scales up to 8.50706e+37, not 1.70141e+38."),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence(name: str, fields: dict[str, Any], sentence: str) -> None:
    assert implementation(name).why_not(problem(**fields), HOPPER) == f"{name} {sentence}"


def test_no_gpu_is_said_and_nothing_that_is_right_is_refused() -> None:
    assert implementation("a4q").why_not(problem(), CPU) == "a4q is compiled for NVIDIA GPUs, and there is none."
    for fields in ({"q_len": 5000}, {"layout": Paged(16), "ragged": True}, {"window": 3}, {"kv_len": 0}, {"dtype": "float16"}):
        assert why_not("a4q", problem(**fields), HOPPER) is None
