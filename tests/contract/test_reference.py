"""The float64 reference is the operation of the contract: against loops over single numbers, for every option."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

import ml_dtypes
import numpy as np
import pytest
import torch

from impls import reference
from impls.contract import Rounding
from impls.reference import Reference, float_attention, reference_attention, round_operand
from tests.contract.attention_cases import OPTIONS, Brute, Case, brute_force, dequantized, make, poison_what_is_not_seen
from tests.nvfp4.definition import Array, default_global_scale, quantize_last_axis, values

EPSILON = 1e-13  # float64 sums in another order: about 40 terms of relative 2^-53, scores of at most 50


@cache
def expected(name: str) -> tuple[Case, Brute]:
    case = make(name)
    q = case.inputs.q.double().numpy()
    return case, brute_force(case.problem, case.inputs, q, dequantized(case.inputs.k4), dequantized(case.inputs.v4))


def assert_close(got: Reference, wanted: Brute, rows: slice | list[int] = slice(None)) -> None:
    for field in ("out", "lse", "mass", "score"):
        mine, theirs = getattr(got, field).numpy(), getattr(wanted, field)[:, :, rows]
        assert mine.dtype == np.float64
        np.testing.assert_allclose(mine, theirs, rtol=EPSILON * 100, atol=EPSILON * 100, err_msg=field)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option(name: str) -> None:
    case, wanted = expected(name)
    got = reference_attention(case.problem, case.inputs)
    assert got.rows.tolist() == list(range(case.problem.q_len))
    assert_close(got, wanted)


def test_the_cases_hold_what_they_are_there_for() -> None:
    """Rows that see nothing, sequences without tokens, all keys masked by a window: each occurs."""
    unseen = expected("more-queries-than-keys")[1]
    assert np.isneginf(unseen.lse[:, :, :5]).all()
    assert not unseen.out[:, :, :5].any()
    assert np.isfinite(unseen.lse[:, :, 5:]).all()
    ragged, wanted = expected("ragged")
    assert ragged.inputs.kv_lens is not None
    assert ragged.inputs.kv_lens.tolist() == [35, 0]
    assert np.isneginf(wanted.lse[1]).all()
    assert np.isneginf(expected("no-keys")[1].lse).all()
    assert np.isfinite(expected("window-more-queries-than-keys")[1].lse[:, :, 3:]).all()


@pytest.mark.parametrize("chunk", [1, 5, 16, 17])
@pytest.mark.parametrize("name", ["causal", "window-7", "ragged-window-v-along-tokens", "paged-NHD-v-along-tokens"])
def test_chunks_change_nothing(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk may end within a block of 16, within a page, within a window, and at the last key."""
    case, wanted = expected(name)
    monkeypatch.setattr(reference, "CHUNK", chunk)
    assert_close(reference_attention(case.problem, case.inputs), wanted)


@pytest.mark.parametrize("name", ["causal", "window-7", "paged-HND", "more-queries-than-keys"])
@pytest.mark.parametrize("rows", [[0], [4], [3, 1], [2, 2]])
def test_sampled_rows(name: str, rows: list[int]) -> None:
    case, wanted = expected(name)
    got = reference_attention(case.problem, case.inputs, rows=torch.tensor(rows))
    assert got.rows.tolist() == rows
    assert_close(got, wanted, rows)


@pytest.mark.parametrize("name", [name for name in OPTIONS if "ragged" in name or "paged" in name])
def test_what_is_not_seen_may_hold_anything(name: str) -> None:
    case, wanted = expected(name)
    poisoned = poison_what_is_not_seen(case)
    assert torch.isnan(poisoned.inputs.k4.scales.float()).any()
    assert torch.isnan(poisoned.inputs.v4.scales.float()).any()
    assert_close(reference_attention(poisoned.problem, poisoned.inputs), wanted)


def test_sampled_rows_do_not_see_what_lies_between_them() -> None:
    """Under a window of 1, query i sees key 32 + i alone."""
    case, wanted = expected("window-1")
    poisoned = []
    for t in (case.inputs.k4, case.inputs.v4):
        scales = t.scales.view(torch.uint8).clone()
        scales[:, :, 33:36] = 0x7F
        poisoned.append(replace(t, scales=scales.view(torch.float8_e4m3fn)))
    inputs = replace(case.inputs, k4=poisoned[0], v4=poisoned[1])
    assert_close(reference_attention(case.problem, inputs, rows=torch.tensor([0, 4])), wanted, [0, 4])


@pytest.mark.parametrize("global_scale", [1e-30, 1e30])
def test_global_scales_of_both_caches_are_applied(global_scale: float) -> None:
    """Scores and values scale with them, exactly but for float64; the softmax scale takes K's out again."""
    case, wanted = expected("causal")
    g = torch.tensor(global_scale)
    k4, v4 = (replace(t, global_scale=g) for t in (case.inputs.k4, case.inputs.v4))
    ratio_k, ratio_v = (float(g) / float(t.global_scale) for t in (case.inputs.k4, case.inputs.v4))
    problem = replace(case.problem, scale=case.problem.softmax_scale / ratio_k)
    got = reference_attention(problem, replace(case.inputs, k4=k4, v4=v4))
    np.testing.assert_allclose(got.out.numpy() / ratio_v, wanted.out, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(got.lse.numpy(), wanted.lse, rtol=1e-11)


def test_large_scores_do_not_overflow() -> None:
    """A scale of 1000 makes scores of thousands, whose exponentials are beyond float64."""
    case = make("causal")
    problem = replace(case.problem, scale=1000.0)
    q = case.inputs.q.double().numpy()
    wanted = brute_force(problem, case.inputs, q, dequantized(case.inputs.k4), dequantized(case.inputs.v4))
    assert wanted.lse.max() > 5000
    got = reference_attention(problem, case.inputs)
    np.testing.assert_allclose(got.lse.numpy(), wanted.lse, rtol=1e-13)
    np.testing.assert_allclose(got.out.numpy(), wanted.out, rtol=1e-9, atol=1e-9)


# --- declared roundings -------------------------------------------------------------------------------------------------


def rounded(x: Array, name: str) -> Array:
    """`x` [..., D] rounded by numpy and ml_dtypes."""
    if name != "nvfp4":
        kinds = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float8_e4m3": ml_dtypes.float8_e4m3fn}
        return x.astype(np.float32).astype(kinds[name]).astype(np.float64)
    flat = x.reshape(-1, x.shape[-1]).astype(np.float32)
    rows = []
    for row in flat:
        g = default_global_scale(row)
        rows.append(values(*quantize_last_axis(row, g), float(g)))
    return np.stack(rows).reshape(x.shape)


@pytest.mark.parametrize("operand", ["q", "k", "v"])
@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3", "nvfp4"])
def test_declared_roundings_are_executed(operand: Literal["q", "k", "v"], name: str) -> None:
    case, exact = expected("causal")
    operands = {
        "q": case.inputs.q.double().numpy(),
        "k": dequantized(case.inputs.k4),
        "v": dequantized(case.inputs.v4),
    }
    before = operands[operand]
    operands[operand] = rounded(before, name)
    wanted = brute_force(case.problem, case.inputs, operands["q"], operands["k"], operands["v"])
    assert_close(reference_attention(case.problem, case.inputs, rounds={operand: Rounding(name)}), wanted)
    # q is bfloat16 already, of magnitudes that float16 holds; everything else is moved by a rounding
    unmoved = operand == "q" and name in ("bfloat16", "float16")
    assert np.array_equal(operands[operand], before) is unmoved
    assert np.array_equal(wanted.out, exact.out) is unmoved


def test_no_rounding_is_exact_and_one_of_p_is_not_executed() -> None:
    case, wanted = expected("causal")
    for rounds in ({}, {"q": Rounding()}, {"p": Rounding("bfloat16")}):
        assert_close(reference_attention(case.problem, case.inputs, rounds=rounds), wanted)  # type: ignore[arg-type]


def test_float8_saturates() -> None:
    x = torch.tensor([448.0, 463.0, 465.0, 1e5, -1e5, 17.0], dtype=torch.float64)
    assert round_operand(x, Rounding("float8_e4m3")).tolist() == [448.0, 448.0, 448.0, 448.0, -448.0, 16.0]


def test_nvfp4_of_a_row_has_a_global_scale_of_its_own() -> None:
    rows = torch.stack((torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32) * 1e20, torch.zeros(32)))
    got = round_operand(rows, Rounding("nvfp4"))
    assert got.dtype == torch.float64
    np.testing.assert_array_equal(got.numpy(), rounded(rows.numpy(), "nvfp4"))


# --- the operation on the original tensors ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["causal", "window-7", "ragged", "v-wider-than-k", "one-group"])
def test_float_attention_is_the_operation_on_unquantised_operands(name: str) -> None:
    case = make(name)
    q = case.inputs.q.double().numpy()
    wanted = brute_force(case.problem, case.inputs, q, case.k.astype(np.float64), case.v.astype(np.float64))
    k, v = torch.from_numpy(case.k), torch.from_numpy(case.v)
    assert_close(float_attention(case.problem, case.inputs.q, k, v, kv_lens=case.inputs.kv_lens), wanted)
    some = float_attention(case.problem, case.inputs.q, k, v, kv_lens=case.inputs.kv_lens, rows=torch.tensor([1, 3]))
    assert_close(some, wanted, [1, 3])
