"""Schedules: whatever the problem, every key of every row is somebody's, and the workspace is as large as it is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.arch import ARCHES, CPU, find
from impls.contract import Problem
from impls.triton import TritonAttention
from impls.triton.arguments import Alignment, attend_constants
from impls.triton.planner import longest_chain, schedule, why_not

PROBLEM = Problem(1, 32, 8, 1, 131072, 128, 128)
ANY_ARCH = st.sampled_from([CPU, *ARCHES.values()])
HEAD_DIM = st.integers(1, 32).map(lambda blocks: 16 * blocks)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    kv_heads = draw(st.integers(1, 16))
    return Problem(
        batch=draw(st.integers(1, 64)),
        q_heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        q_len=draw(st.integers(1, 300)),
        kv_len=draw(st.integers(0, 200_000)),
        head_dim=draw(HEAD_DIM),
        v_head_dim=draw(HEAD_DIM),
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 10_000)),
    )


@given(problems(), ANY_ARCH)
def test_a_schedule_covers_all_rows_and_keys(problem, arch):
    s = schedule(problem, arch)
    assert s.block_m in (8, 16, 32, 64, 128)
    assert s.block_n in (32, 64, 128)
    assert s.keys_first == (problem.q_len * problem.group <= 16)
    assert problem.v_head_dim % (16 * s.parts) == 0
    row_tiles = -(-problem.q_len * problem.group // s.block_m)
    assert s.programs == problem.batch * problem.kv_heads * row_tiles
    visible = min(problem.kv_len, problem.window or problem.kv_len)
    assert s.splits * s.tokens_per_split >= visible
    assert s.tokens_per_split % s.block_n == 0
    assert s.splits <= 65535, "splits are the grid's second axis"
    rows = problem.batch * problem.q_heads * problem.q_len
    assert s.workspace_bytes == (4 * s.splits * rows * (problem.v_head_dim + 1) if s.splits > 1 else 0)


@given(problems(), ANY_ARCH)
def test_no_product_sums_fewer_than_32_values(problem, arch):
    """Triton 3.6 and 3.7 compile shorter ones wrongly, which the interpreter does not show."""
    constants = attend_constants(problem, schedule(problem, arch), Alignment.expected(problem))
    apart = 8 if constants["BY_WORD"] else 2
    assert constants["D"] >= max(problem.head_dim, apart * 32), "q and k are multiplied in halves, or in eighths"
    assert constants["BLOCK_N"] >= 32


@given(problems(), ANY_ARCH)
def test_the_declared_chain_is_never_shorter_than_the_real_one(problem, arch):
    assert longest_chain(problem) >= schedule(problem, arch).tokens_per_split
    assert TritonAttention().accumulator_chain(problem) == longest_chain(problem)


@given(problems(), ANY_ARCH, st.data())
def test_no_program_sums_more_keys_than_declared(problem, arch, data):
    """As the kernel cuts them: the tiles of the keys that any row of a row tile sees, in equal shares."""
    s = schedule(problem, arch)
    tokens = data.draw(st.integers(0, problem.kv_len))
    rows = problem.q_len * problem.group
    first_row = s.block_m * data.draw(st.integers(0, -(-rows // s.block_m) - 1))
    first = visible(problem, first_row, tokens)
    last = visible(problem, min(first_row + s.block_m, rows) - 1, tokens)
    tiles = -(-max(last.stop, 0) // s.block_n) - max(first.start, 0) // s.block_n
    assert -(-tiles // s.splits) * s.block_n <= s.tokens_per_split


def visible(problem: Problem, row: int, tokens: int) -> range:
    """Keys that a packed row sees, perhaps beyond the cache's beginning; as in `impls.reference`."""
    last = row // problem.group + tokens - problem.q_len if problem.causal else tokens - 1
    return range(0 if problem.window is None else last - problem.window + 1, last + 1)


def test_decode_of_one_long_sequence_fills_the_gpu():
    s = schedule(PROBLEM, find("sm_90a"))
    assert s.programs * s.splits >= 132


@given(problems(), ANY_ARCH)
def test_parts_share_all_head_dims_of_the_output(problem, arch):
    s = schedule(problem, arch)
    constants = attend_constants(problem, s, Alignment.expected(problem))
    assert s.parts * constants["V_WIDTH"] == problem.v_head_dim
    assert constants["DV"] >= constants["V_WIDTH"]


@given(problems(), ANY_ARCH)
def test_a_thread_loads_whole_words_of_codes(problem, arch):
    """Decoding in place takes the 4 bytes of a thread for a word of one row."""
    s = schedule(problem, arch)
    constants = attend_constants(problem, s, Alignment.expected(problem))
    assert s.block_n * constants["D"] // 2 >= 4 * 32 * s.num_warps


@pytest.mark.parametrize(("k_codes", "in_place"), [(1, False), (2, False), (4, True), (16, True)])
def test_codes_are_decoded_in_place_only_where_rows_are_words(k_codes, in_place):
    alignment = replace(Alignment.expected(PROBLEM), k_codes=k_codes)
    assert attend_constants(PROBLEM, schedule(PROBLEM, CPU), alignment)["K_IN_PLACE"] == in_place


@pytest.mark.parametrize(("scales", "words"), [(1, False), (2, False), (4, True), (16, True)])
def test_scales_are_loaded_as_words_only_where_they_are(scales, words):
    alignment = replace(Alignment.expected(PROBLEM), k_scales=scales, v_scales=scales)
    constants = attend_constants(PROBLEM, schedule(PROBLEM, CPU), alignment)
    assert constants["K_SCALE_WORDS"] == constants["V_SCALE_WORDS"] == words


@given(problems())
def test_the_blocks_of_a_gpu_fit_its_registers(problem):
    """An SM of an H200 has 4 schedulers of 16384 registers, dealt out to warps of 32 threads."""
    s = schedule(problem, find("sm_90a"))
    if s.max_registers is not None:
        warps = s.programs * s.splits * s.parts * s.num_warps / 132
        assert s.splits == 1 or warps <= 4 * (16384 // (32 * s.max_registers))


@given(problems(), ANY_ARCH)
def test_a_merge_is_early_only_where_a_kernel_can_wait_for_another(problem, arch):
    s = schedule(problem, arch)
    assert s.merged_early == (s.splits > 1 and arch.is_gpu and arch.compute_capability >= (9, 0))


def test_prefill_is_not_split():
    assert schedule(replace(PROBLEM, q_len=8192, kv_len=8192), find("sm_90a")).splits == 1


def test_short_caches_are_not_split():
    assert schedule(replace(PROBLEM, kv_len=255), find("sm_90a")).splits == 1


@pytest.mark.parametrize("field", ["head_dim", "v_head_dim"])
def test_head_dims_beyond_512_are_refused_with_a_sentence(field):
    assert why_not(PROBLEM) is None
    assert why_not(replace(PROBLEM, **{field: 528})) == "triton takes head dims up to 512, not 528."


def test_a_scale_that_log2_e_carries_out_of_float32_is_refused():
    assert why_not(replace(PROBLEM, scale=2.0**126)) is None
    assert why_not(replace(PROBLEM, scale=2.0**127)) == "triton takes softmax scales up to 8.50706e+37, not 1.70141e+38."
