"""Tensors that are not the problem's: each message names the tensor, what it should be and what came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from impls.contract import Dense, Inputs, Paged, Problem
from impls.nvfp4 import NVFP4Tensor, quantize
from impls.validation import bind_inputs, check_inputs, check_output, problem_of

B, HQ, HKV, SQ, SK, D, DV = 2, 4, 2, 3, 40, 32, 48
PAGE, PAGES, MAX_PAGES = 16, 7, 3


def dense(v_axis: int = -1) -> Inputs:
    return Inputs(
        torch.zeros(B, HQ, SQ, D, dtype=torch.bfloat16),
        quantize(torch.ones(B, HKV, SK, D)),
        quantize(torch.ones(B, HKV, SK, DV), block_axis=v_axis),
    )


def paged(order: str = "HND", v_along_tokens: bool = False) -> Inputs:
    tokens = (PAGES, HKV, PAGE) if order == "HND" else (PAGES, PAGE, HKV)
    token_axis = -2 if order == "HND" else -3
    return Inputs(
        torch.zeros(B, HQ, SQ, D, dtype=torch.bfloat16),
        quantize(torch.ones(*tokens, D)),
        quantize(torch.ones(*tokens, DV), block_axis=token_axis if v_along_tokens else -1),
        kv_lens=torch.tensor([5, 40], dtype=torch.int32),
        block_table=torch.tensor([[6, -1, -1], [0, 3, 2]], dtype=torch.int32),
    )


def q4(*shape: int, block_axis: int = -1) -> NVFP4Tensor:
    return quantize(torch.ones(shape), block_axis=block_axis)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


# --- the problem that tensors state -------------------------------------------------------------------------------------


def test_dense_tensors_state_their_problem() -> None:
    assert problem_of(dense()) == Problem(
        batch=B, q_heads=HQ, kv_heads=HKV, q_len=SQ, kv_len=SK, head_dim=D, v_head_dim=DV, v_block_axis=-1
    )
    float16 = replace(dense(-2), q=torch.zeros(B, HQ, SQ, D, dtype=torch.float16), kv_lens=torch.ones(B, dtype=torch.int32))
    stated = problem_of(float16, causal=False, scale=0.5, window=7)
    assert (stated.dtype, stated.v_block_axis, stated.ragged) == ("float16", -2, True)
    assert (stated.causal, stated.scale, stated.window) == (False, 0.5, 7)


@pytest.mark.parametrize("order", ["HND", "NHD"])
@pytest.mark.parametrize("v_along_tokens", [False, True])
def test_pages_state_their_problem(order: Any, v_along_tokens: bool) -> None:
    layout = Paged(PAGE, order)
    stated = problem_of(paged(order, v_along_tokens), layout=layout)
    assert (stated.batch, stated.kv_heads, stated.kv_len, stated.v_head_dim) == (B, HKV, PAGE * MAX_PAGES, DV)
    assert (stated.layout, stated.ragged, stated.v_block_axis) == (layout, True, -2 if v_along_tokens else -1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"q": torch.zeros(HQ, SQ, D).bfloat16()}, "q must have 4 axes, not 3: [4, 3, 32]."),
        ({"k4": q4(SK, D)}, "k4 must have 4 axes, not 2: [40, 32]."),
        ({"v4": q4(1, B, HKV, SK, DV)}, "v4 must have 4 axes, not 5: [1, 2, 2, 40, 48]."),
        ({"q": torch.zeros(B, HQ, SQ, D)}, "q must be one of bfloat16, float16, not float32."),
        ({"q": torch.zeros(B, HQ, SQ, 24).bfloat16()}, "head_dim must be a multiple of 16 (an NVFP4 block), not 24."),
        ({"v4": q4(B, HKV, SK, 40)}, "v_head_dim must be a multiple of 16 (an NVFP4 block), not 40."),
        ({"q": torch.zeros(B, 3, SQ, D).bfloat16()}, "q_heads must be a multiple of kv_heads, and 3 is not one of 2."),
        ({"q": torch.zeros(0, HQ, SQ, D).bfloat16()}, "batch must be at least 1, not 0."),
        ({"q": torch.zeros(B, HQ, 0, D).bfloat16()}, "q_len must be at least 1, not 0."),
        ({"k4": q4(B, HKV, SK, 64)}, "k4 must be [B, Hkv, Sk, D] = [2, 2, 40, 32], not [2, 2, 40, 64]."),
        ({"k4": q4(3, HKV, SK, D)}, "k4 must be [B, Hkv, Sk, D] = [2, 2, 40, 32], not [3, 2, 40, 32]."),
        ({"v4": q4(B, HKV, 41, DV)}, "v4 must be [B, Hkv, Sk, Dv] = [2, 2, 40, 48], not [2, 2, 41, 48]."),
        ({"v4": q4(B, 1, SK, DV)}, "v4 must be [B, Hkv, Sk, Dv] = [2, 2, 40, 48], not [2, 1, 40, 48]."),
        (
            {"k4": q4(B, HKV, SK, D, block_axis=-2)},
            "k4's blocks run along axis -2; they must run along the head dim, the last axis.",
        ),
        (
            {"v4": q4(B, HKV, SK, DV, block_axis=-3)},
            "v4's blocks run along axis -3; not the head dim (-1) or the tokens (-2).",
        ),
        ({"block_table": torch.zeros(B, 3, dtype=torch.int32)}, "block_table must be given exactly when the cache is paged."),
        ({"kv_lens": torch.ones(3, dtype=torch.int32)}, "kv_lens must be [B] = [2], not [3]."),
        ({"kv_lens": torch.ones(B, 1, dtype=torch.int32)}, "kv_lens must be [B] = [2], not [2, 1]."),
        ({"kv_lens": torch.ones(B, dtype=torch.int64)}, "kv_lens must be int32, not int64."),
        ({"kv_lens": torch.tensor([1, 41], dtype=torch.int32)}, "kv_lens must lie between 0 and 40, and is [1, 41]."),
        ({"kv_lens": torch.tensor([-1, 4], dtype=torch.int32)}, "kv_lens must lie between 0 and 40, and is [-1, 4]."),
        (
            {"kv_lens": torch.ones(B, dtype=torch.int32, device="meta")},
            "kv_lens is on meta and q on cpu; they must be on one device.",
        ),
        ({"k4": q4(B, HKV, SK, D).to("meta")}, "k4 is on meta and q on cpu; they must be on one device."),
        ({"v4": q4(B, HKV, SK, DV).to("meta")}, "v4 is on meta and q on cpu; they must be on one device."),
        (
            {"q": torch.zeros(B, HQ, D, SQ).bfloat16().mT},
            "q must be contiguous along its last axis; strides are free on the others.",
        ),
    ],
)
def test_dense_tensors_that_are_refused(changes: dict[str, Any], sentence: str) -> None:
    assert refusal(lambda: problem_of(replace(dense(), **changes))) == sentence


@pytest.mark.parametrize("name", ["k4", "v4"])
@pytest.mark.parametrize("part", ["codes", "scales"])
def test_caches_strided_along_their_last_axis_are_refused(name: str, part: str) -> None:
    inputs = dense()
    cache = getattr(inputs, name)
    spread = torch.empty(*getattr(cache, part).shape, 2, dtype=torch.uint8).view(getattr(cache, part).dtype)
    strided = replace(cache, **{part: spread[..., 0]})
    sentence = refusal(lambda: problem_of(replace(inputs, **{name: strided})))
    assert sentence == f"{name}.{part} must be contiguous along the last axis; strides are free on the others."


def test_strides_are_free_on_the_outer_axes() -> None:
    inputs = dense()
    k4 = quantize(torch.ones(B, SK, HKV, D))
    transposed = NVFP4Tensor(k4.codes.transpose(1, 2), k4.scales.transpose(1, 2), k4.global_scale)
    q = torch.zeros(SQ, HQ, B, D * 2, dtype=torch.bfloat16).permute(2, 1, 0, 3)[..., :D]
    assert problem_of(replace(inputs, q=q, k4=transposed)) == problem_of(inputs)


@pytest.mark.parametrize(
    ("order", "changes", "sentence"),
    [
        ("HND", {"block_table": None}, "a paged cache needs block_table [B, max_pages] and kv_lens [B]."),
        ("HND", {"kv_lens": None}, "a paged cache needs block_table [B, max_pages] and kv_lens [B]."),
        ("HND", {"k4": q4(PAGES, HKV, 32, D)}, "k4 has pages of 32 tokens where the layout says 16."),
        ("NHD", {"k4": q4(PAGES, 32, HKV, D)}, "k4 has pages of 32 tokens where the layout says 16."),
        (
            "HND",
            {"v4": q4(PAGES, HKV, 32, DV)},
            "v4 must be [pages, Hkv, page_size, Dv] = [7, 2, 16, 48], not [7, 2, 32, 48].",
        ),
        ("NHD", {"v4": q4(6, PAGE, HKV, DV)}, "v4 must be [pages, page_size, Hkv, Dv] = [7, 16, 2, 48], not [6, 16, 2, 48]."),
        (
            "NHD",
            {"k4": q4(PAGES, PAGE, HKV, 64)},
            "k4 must be [pages, page_size, Hkv, D] = [7, 16, 2, 32], not [7, 16, 2, 64].",
        ),
        (
            "HND",
            {"v4": q4(PAGES, HKV, PAGE, DV, block_axis=-3)},
            "v4's blocks run along axis -3; not the head dim (-1) or the tokens (-2).",
        ),
        (
            "NHD",
            {"v4": q4(PAGES, PAGE, HKV, DV, block_axis=-2)},
            "v4's blocks run along axis -2; not the head dim (-1) or the tokens (-3).",
        ),
        (
            "HND",
            {"block_table": torch.zeros(3, 3, dtype=torch.int32)},
            "block_table must be [B, max_pages] = [2, 3], not [3, 3].",
        ),
        ("HND", {"block_table": torch.zeros(3, dtype=torch.int32)}, "block_table must be [B, max_pages] = [2, 3], not [3]."),
        ("HND", {"block_table": torch.zeros(B, 3, dtype=torch.int64)}, "block_table must be int32, not int64."),
        (
            "HND",
            {"block_table": torch.zeros(B, 3, dtype=torch.int32, device="meta")},
            "block_table is on meta and q on cpu; they must be on one device.",
        ),
        (
            "HND",
            {"block_table": torch.tensor([[0, 9, 9], [1, 7, 2]], dtype=torch.int32)},
            "block_table names pages outside 0 to 6 for sequence 1: [1, 7, 2].",
        ),
        (
            "HND",
            {"block_table": torch.tensor([[-1, 0, 0], [1, 2, 3]], dtype=torch.int32)},
            "block_table names pages outside 0 to 6 for sequence 0: [-1].",
        ),
        ("HND", {"kv_lens": torch.tensor([0, 49], dtype=torch.int32)}, "kv_lens must lie between 0 and 48, and is [0, 49]."),
    ],
)
def test_pages_that_are_refused(order: Any, changes: dict[str, Any], sentence: str) -> None:
    assert refusal(lambda: problem_of(replace(paged(order), **changes), layout=Paged(PAGE, order))) == sentence


def test_a_table_of_no_axes_is_refused() -> None:
    inputs = replace(paged(), block_table=torch.zeros((), dtype=torch.int32))
    assert refusal(lambda: problem_of(inputs, layout=Paged(PAGE))) == "block_table must be [B, max_pages] = [2, 0], not []."


# --- tensors against a problem stated before ----------------------------------------------------------------------------


def problem(**changes: Any) -> Problem:
    return replace(problem_of(dense()), **changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch": 3}, "q must be [B, Hq, Sq, D] = [3, 4, 3, 32], not [2, 4, 3, 32]."),
        ({"q_heads": 2}, "q must be [B, Hq, Sq, D] = [2, 2, 3, 32], not [2, 4, 3, 32]."),
        ({"q_len": 1}, "q must be [B, Hq, Sq, D] = [2, 4, 1, 32], not [2, 4, 3, 32]."),
        ({"head_dim": 64}, "q must be [B, Hq, Sq, D] = [2, 4, 3, 64], not [2, 4, 3, 32]."),
        ({"dtype": "float16"}, "q must be float16, not bfloat16."),
        ({"kv_heads": 4}, "k4 must be [B, Hkv, Sk, D] = [2, 4, 40, 32], not [2, 2, 40, 32]."),
        ({"kv_len": 48}, "k4 must be [B, Hkv, Sk, D] = [2, 2, 48, 32], not [2, 2, 40, 32]."),
        ({"v_head_dim": 32}, "v4 must be [B, Hkv, Sk, Dv] = [2, 2, 40, 32], not [2, 2, 40, 48]."),
        ({"v_block_axis": -2}, "v4's blocks run along axis -1, not as v_block_axis -2 says."),
        ({"ragged": True}, "kv_lens must be given exactly when the problem is ragged."),
    ],
)
def test_tensors_of_another_problem_are_refused(changes: dict[str, Any], sentence: str) -> None:
    assert refusal(lambda: check_inputs(problem(**changes), dense())) == sentence


def test_lengths_and_tables_that_the_problem_does_not_have_are_refused() -> None:
    inputs = replace(dense(), kv_lens=torch.ones(B, dtype=torch.int32))
    assert refusal(lambda: check_inputs(problem(), inputs)) == "kv_lens must be given exactly when the problem is ragged."
    stated = problem_of(paged(), layout=Paged(PAGE))
    without_table = replace(paged(), block_table=None)
    sentence = "block_table must be given exactly when the cache is paged."
    assert refusal(lambda: check_inputs(stated, without_table)) == sentence
    assert "page_size" not in refusal(lambda: check_inputs(replace(stated, layout=Dense()), paged()))


def test_a_table_is_checked_also_where_all_sequences_are_full() -> None:
    stated = replace(problem_of(paged(), layout=Paged(PAGE)), ragged=False)
    full = replace(paged(), kv_lens=None)
    assert refusal(lambda: check_inputs(stated, full)) == "block_table names pages outside 0 to 6 for sequence 0: [6, -1, -1]."
    check_inputs(stated, replace(full, block_table=torch.zeros(B, 3, dtype=torch.int32)))


def test_contents_are_read_on_the_cpu_only() -> None:
    """On another device reading them would synchronise; the meta device has none to read."""
    inputs = paged()
    assert inputs.kv_lens is not None and inputs.block_table is not None
    elsewhere = Inputs(
        inputs.q.to("meta"),
        inputs.k4.to("meta"),
        inputs.v4.to("meta"),
        inputs.kv_lens.to("meta"),
        inputs.block_table.to("meta"),
    )
    assert problem_of(elsewhere, layout=Paged(PAGE)) == problem_of(inputs, layout=Paged(PAGE))


# --- outputs ------------------------------------------------------------------------------------------------------------


def outputs(**changes: Any) -> dict[str, torch.Tensor]:
    good = {"out": torch.zeros(B, HQ, SQ, DV, dtype=torch.bfloat16), "lse": torch.zeros(B, HQ, SQ)}
    return {**good, **changes}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"out": torch.zeros(B, HQ, SQ, D).bfloat16()}, "out must be [B, Hq, Sq, Dv] = [2, 4, 3, 48], not [2, 4, 3, 32]."),
        ({"lse": torch.zeros(B, HQ, SQ, 1)}, "lse must be [B, Hq, Sq] = [2, 4, 3], not [2, 4, 3, 1]."),
        ({"out": torch.zeros(B, HQ, SQ, DV)}, "out must be bfloat16, not float32."),
        ({"lse": torch.zeros(B, HQ, SQ).bfloat16()}, "lse must be float32, not bfloat16."),
        (
            {"out": torch.zeros(B, HQ, SQ, DV, dtype=torch.bfloat16, device="meta")},
            "out is on meta and q on cpu; they must be on one device.",
        ),
        ({"lse": torch.zeros(B, HQ, SQ, device="meta")}, "lse is on meta and q on cpu; they must be on one device."),
        (
            {"out": torch.zeros(B, HQ, DV, SQ).bfloat16().mT},
            "out must be contiguous along its last axis; strides are free on the others.",
        ),
        *(
            ({name: good[:1].expand_as(good)}, f"{name} is an expanded tensor {shared}")
            for name, good in (("out", torch.zeros(B, HQ, SQ, DV).bfloat16()), ("lse", torch.zeros(B, HQ, SQ)))
            for shared in ("whose entries share memory; pass one with memory for each entry.",)
        ),
    ],
)
def test_outputs_that_are_refused(changes: dict[str, torch.Tensor], sentence: str) -> None:
    check_output(problem(), dense().q, **outputs())
    assert refusal(lambda: check_output(problem(), dense().q, **outputs(**changes))) == sentence


def test_outputs_that_share_memory_are_refused() -> None:
    size = B * HQ * SQ
    lines = torch.zeros(size, DV + 2, dtype=torch.bfloat16)
    apart = lines[:, :DV].view(B, HQ, SQ, DV), lines[:, DV:].view(torch.float32).view(B, HQ, SQ)
    q = dense().q
    check_output(problem(), q, *apart)
    shared = "may share memory with {}; pass one with memory of its own."
    inside = lines[:, DV - 2 : DV].view(torch.float32).view(B, HQ, SQ)
    assert refusal(lambda: check_output(problem(), q, apart[0], inside)) == f"lse {shared.format('out')}"
    wide, flat = quantize(torch.ones(B, HKV, SK, D)), torch.zeros(B, HQ, SQ, D).bfloat16()
    square = problem_of(replace(dense(), q=flat, v4=wide))
    given = torch.zeros(B, HQ, SQ)
    assert refusal(lambda: check_output(square, flat, flat, given)) == f"out {shared.format('q')}"
    for name, (tensor, strides) in {"out": (lines, [1, 2, 8, 1]), "lse": (torch.zeros(99), [1, 2, 3])}.items():
        wrong = tensor.as_strided(outputs()[name].shape, strides)
        sentence = refusal(lambda name=name, wrong=wrong: check_output(problem(), q, **outputs(**{name: wrong})))
        assert sentence.startswith(f"{name} has entries that may share memory (shape [2, 4, 3")
    for name in ("out", "lse"):
        sentence = refusal(lambda name=name: check_output(problem(), q, **outputs(**{name: 3})))
        assert sentence == f"{name} must be a tensor of torch, not int."


def test_bind_takes_outputs_or_allocates_them() -> None:
    given = outputs()
    bound = bind_inputs(problem(), dense(), given["out"], given["lse"])
    assert bound.out is given["out"]
    assert bound.lse is given["lse"]
    made = bind_inputs(problem(), dense(), None, None)
    assert (made.out.shape, made.out.dtype) == ((B, HQ, SQ, DV), torch.bfloat16)
    assert (made.lse.shape, made.lse.dtype) == ((B, HQ, SQ), torch.float32)
    with pytest.raises(ValueError, match=r"^k4 must be"):
        bind_inputs(problem(kv_len=48), dense(), None, None)
    with pytest.raises(ValueError, match=r"^lse must be float32"):
        bind_inputs(problem(), dense(), None, given["lse"].half())


def test_what_kernels_would_read_wrongly_is_refused() -> None:
    """A lazy negation is a flag beside the memory, which kernels do not see; neither do they see how a sparse tensor lies."""
    given, asked = dense(), problem_of(dense())
    for changed in (torch._neg_view(given.q), given.q.to_sparse()):
        with pytest.raises(ValueError, match=r"^q (is a view whose values are negated|must be a dense tensor)"):
            check_inputs(asked, replace(given, q=changed))
    for name in ("out", "lse"):
        tensors = outputs()
        tensors[name] = torch._neg_view(tensors[name])
        with pytest.raises(ValueError, match=f"^{name} is a view whose values are negated"):
            check_output(problem(), given.q, **tensors)
