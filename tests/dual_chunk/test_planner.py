"""Plans of chunks: whatever the problem and however long its sequences, every visible key of every query is seen once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impls.arch import ARCHES, CPU, find
from impls.contract import Paged, Problem, Unsupported
from impls.dual_chunk import DualChunkTriton
from impls.dual_chunk.planner import LONGEST_CHUNK, WORKSPACE, ChunkPlan, block_rows, chunk_plan, partial_bytes
from impls.reference import visible_keys

ANY_ARCH = st.sampled_from([CPU, *ARCHES.values()])
H200 = find("sm_90a")
PREFILL = Problem(1, 16, 16, 131072, 131072, 128, 128)
SLICE = replace(PREFILL, q_len=4096, kv_len=2**20)


@st.composite
def small_problems(draw: st.DrawFn) -> Problem:
    return Problem(
        batch=1,
        q_heads=1,
        kv_heads=1,
        q_len=draw(st.integers(1, 40)),
        kv_len=draw(st.integers(0, 90)),
        head_dim=16,
        v_head_dim=16,
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 100)),
        v_block_axis=draw(st.sampled_from((-1, -2))),
        layout=draw(st.sampled_from((Problem.layout, Paged(16), Paged(32)))),
        ragged=draw(st.booleans()),
    )


def seen(problem: Problem, plan: ChunkPlan, n: int) -> list[Counter[int]]:
    """How often each query of a sequence of `n` tokens sees each key, as inner implementations read their problems."""
    counts: list[Counter[int]] = [Counter() for _ in range(problem.q_len)]
    for tile in plan.tiles:
        for one in tile.passes:
            inner = tile.problem(problem, one)
            tokens = one.tokens(n) if problem.ragged else inner.kv_len
            first, last = visible_keys(inner, torch.arange(tile.queries), tokens)
            for row, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
                counts[tile.start + row].update(range(one.start + a, one.start + b + 1))
    return counts


@given(small_problems(), st.integers(1, 50), st.sampled_from([CPU, H200]), st.data())
def test_every_visible_key_of_every_query_is_seen_once(problem, longest, arch, data):
    n = data.draw(st.integers(0, problem.kv_len)) if problem.ragged else problem.kv_len
    first, last = visible_keys(problem, torch.arange(problem.q_len), n)
    wanted = [Counter(range(a, b + 1)) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    assert seen(problem, chunk_plan(problem, arch, longest), n) == wanted


@given(small_problems(), st.integers(1, 50))
def test_chunks_begin_where_a_view_can(problem, longest):
    unit = problem.layout.page_size if isinstance(problem.layout, Paged) else 16 if problem.v_block_axis == -2 else 1
    for tile in chunk_plan(problem, CPU, longest).tiles:
        for one in tile.passes:
            assert one.start % unit == 0
            assert one.start <= one.stop <= problem.kv_len


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    kv_heads = draw(st.integers(1, 16))
    return Problem(
        batch=draw(st.integers(1, 64)),
        q_heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        q_len=draw(st.integers(1, 100_000)),
        kv_len=draw(st.integers(0, 300_000)),
        head_dim=16 * draw(st.integers(1, 32)),
        v_head_dim=16 * draw(st.integers(1, 32)),
        causal=draw(st.booleans()),
        ragged=draw(st.booleans()),
    )


@given(problems(), ANY_ARCH)
def test_chunks_and_workspace_have_their_limits(problem, arch):
    plan = chunk_plan(problem, arch)
    assert plan.merged_queries * partial_bytes(problem) <= WORKSPACE
    longest = plan.chunk_lengths[1]
    assert longest <= (2 if problem.ragged and problem.causal else 1) * LONGEST_CHUNK, "for a diagonal that begins anywhere"


def test_the_workspace_does_not_grow_with_the_context():
    sizes = set()
    for kv_len in (2**17, 2**18, 2**19, 2**20):
        plan = chunk_plan(replace(SLICE, kv_len=kv_len), H200)
        sizes.add((plan.merged_queries, plan.block_rows, plan.chunk_lengths[1]))
    assert sizes == {(4096, 128, LONGEST_CHUNK)}


def test_a_chain_is_as_long_as_a_chunk_whatever_the_context():
    chosen = DualChunkTriton()
    assert chosen.accumulator_chain(PREFILL) <= LONGEST_CHUNK + 100
    assert chosen.accumulator_chain(SLICE) <= LONGEST_CHUNK + 200


@pytest.mark.parametrize("head_dim", [128, 512])
def test_prefill_has_few_long_chunks_and_whole_waves(head_dim):
    """What the speed on an H200 rests on: 132 multiprocessors, blocks of 128 rows of 16 heads."""
    plan = chunk_plan(replace(PREFILL, head_dim=head_dim, v_head_dim=head_dim), H200)
    for tile in plan.tiles[1:]:
        assert tile.queries // 128 * 16 % 132 == 0
        assert len(tile.passes) == -(-tile.stop // LONGEST_CHUNK), "no more chunks than the keys need"
        assert [one.causal for one in tile.passes] == [*[False] * (len(tile.passes) - 1), True]
    assert len(plan.tiles[0].passes) == 1, "the first queries see one chunk"


def test_what_fits_one_chunk_is_one_pass():
    for problem in (replace(PREFILL, q_len=8192, kv_len=LONGEST_CHUNK), Problem(64, 64, 8, 1, 8192, 128, 128, ragged=True)):
        assert chunk_plan(problem, H200).passes == 1


def test_the_plan_reads_like_a_sentence():
    text = chunk_plan(Problem(1, 2, 1, 4, 100, 64, 64), CPU, 48).text()
    assert text == "queries 0-3: keys 0-47, 48-95, 96-99 causal"
    ragged = chunk_plan(Problem(2, 2, 1, 4, 60, 64, 64, ragged=True), CPU, 48).text()
    assert ragged == ("queries 0-3: keys 0-47 from 52 tokens on, 0-50 causal below 52 tokens, 48-59 causal from 52 tokens on")
    assert "tiles more" in chunk_plan(replace(PREFILL, head_dim=512, v_head_dim=512), H200).text()


def test_head_dims_that_no_block_holds_are_refused_with_the_numbers():
    wide = replace(PREFILL, head_dim=2048, v_head_dim=64)
    assert block_rows(wide, CPU) == 128
    assert block_rows(replace(PREFILL, head_dim=512), find("sm_120a")) == 64
    with pytest.raises(Unsupported) as caught:
        chunk_plan(wide, find("sm_120a"))
    assert str(caught.value) == (
        "16 query rows and 32 keys of head dims 2048 and 64 take 196608 bytes of shared memory, and a block on sm_120a has "
        "101376."
    )


def test_partial_results_that_do_not_fit_are_refused_with_the_numbers():
    many = Problem(4096, 128, 1, 1, 100_000, 512, 512)
    with pytest.raises(Unsupported) as caught:
        chunk_plan(many, H200)
    assert str(caught.value) == (
        "partial results of one query of 4096 sequences and 128 heads take 2157969408 bytes, and the planner allows 671088640."
    )


def test_more_passes_than_a_call_has_are_refused_before_they_are_listed():
    with pytest.raises(
        Unsupported, match=r"^16777216 queries in tiles of 38016 against 16777216 tokens in chunks of 65536 can"
    ):
        chunk_plan(replace(PREFILL, q_len=2**24, kv_len=2**24), H200)


@pytest.mark.parametrize("longest", [0, -64, -1, 1.5, "x", True])
def test_a_longest_chunk_that_is_no_number_of_keys(longest):
    with pytest.raises(ValueError, match="a chunk has a whole number of keys, at least 1, not"):
        chunk_plan(PREFILL, CPU, longest)
