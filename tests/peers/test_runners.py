"""The runners around the libraries' kernels, on a CPU: plain attention stands in for the kernel.

What is tested is what we hand a kernel and make of what it returns; the kernels themselves are in `on_gpu`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from impls.arch import find
from impls.contract import Cache, Inputs, Problem
from impls.nvfp4 import quantize
from impls.peers import checks, flashinfer_runner, sdpa_runner
from impls.peers.caches import PAGE_SIZE
from impls.reference import reference_attention
from impls.registry import implementation
from tests.peers.problems import problem

HOPPER = find("sm_90a")
PROBLEMS = {
    "decode": problem(),
    "decode-one-sequence": problem(batch=1),
    "decode-no-groups": problem(q_heads=2),
    "extend": problem(q_len=9, kv_len=70),
    "extend-one-sequence": problem(batch=1, q_len=9, kv_len=70),
    "not-causal": problem(q_len=5, kv_len=65, causal=False, scale=0.21),
}


def inputs_of(p: Problem) -> Inputs:
    g = torch.Generator().manual_seed(0)
    q = torch.randn(p.batch, p.q_heads, p.q_len, p.head_dim, generator=g).bfloat16()
    k, v = (torch.randn(p.batch, p.kv_heads, p.kv_len, p.head_dim, generator=g) for _ in range(2))
    return Inputs(q, quantize(k, global_scale=0.004), quantize(v, global_scale=0.003))


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q [B, H, Sq, D] and k, v [B, Hkv, Sk, D] in float32, causal from the bottom right."""
    k, v = (x.float().repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    s = q.float() @ k.mT * scale
    if causal:
        ahead = torch.ones(s.shape[-2:], dtype=torch.bool).triu(s.shape[-1] - s.shape[-2] + 1)
        s = s.masked_fill(ahead, -torch.inf)
    return (s.softmax(-1) @ v).to(q.dtype), s.logsumexp(-1)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sdpa_runner, flashinfer_runner):
        monkeypatch.setattr(module, "require_gpu", lambda arch, q: None)
    monkeypatch.setattr(flashinfer_runner, "compile_prefill", lambda *arguments: None)


def check(p: Problem, inputs: Inputs, output: Any) -> None:
    wanted = reference_attention(p, inputs)
    assert output.out.shape == wanted.out.shape
    torch.testing.assert_close(output.out.double(), wanted.out, rtol=0.02, atol=0.02)
    torch.testing.assert_close(output.lse.double(), wanted.lse, rtol=0.001, atol=0.02)


# --- torch SDPA -------------------------------------------------------------------------------------------------------


def padded_efficient(*arguments: Any, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """As torch's efficient operator: tokens before heads, a key head for each query head, the LSE padded to 32 rows."""
    q, k, v = (x.transpose(1, 2) for x in arguments[:3])
    assert q.shape[1] == k.shape[1] == v.shape[1]
    assert arguments[3:9] == (None,) * 5 + (0.0,)
    mask, with_lse = arguments[9:]
    assert mask in (0, 2) and with_lse is True
    out, lse = plain(q, k, v, mask == 2, scale)
    return out.transpose(1, 2), torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 32), value=torch.nan)


@pytest.mark.parametrize("given", [False, True], ids=["returned", "copied"])
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("backend", ["flash", "cudnn", "efficient"])
def test_sdpa(backend: str, name: str, given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    p = PROBLEMS[name]
    if backend == "efficient":
        monkeypatch.setattr(torch.ops.aten, "_efficient_attention_forward", padded_efficient)
    else:
        monkeypatch.setitem(sdpa_runner.ATTEND, backend, plain)  # type: ignore[arg-type]
    inputs = inputs_of(p)
    plan = implementation(f"sdpa-{backend}").plan(p, HOPPER)
    into = {}
    if given:
        into["out"] = torch.empty(p.batch, p.q_len, p.q_heads, p.head_dim, dtype=torch.bfloat16).transpose(1, 2)
        into["lse"] = torch.empty(p.batch, p.q_heads, p.q_len)
    runner = plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4), **into)
    runner()
    check(p, inputs, runner.output)
    if given:
        assert runner.output.out is into["out"] and runner.output.lse is into["lse"]
    inputs.q.neg_()
    runner()
    check(p, inputs, runner.output)


def test_one_query_shares_its_key_head_within_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this a group of query heads would read its keys once for each of them."""
    shapes = []

    def spy(q: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        shapes.append((tuple(q.shape), rest[2]))
        return plain(q, *rest)

    monkeypatch.setitem(sdpa_runner.ATTEND, "flash", spy)
    inputs = inputs_of(problem())
    plan = implementation("sdpa-flash").plan(problem(), HOPPER)
    plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4))()
    assert shapes == [((2, 2, 4, 128), False)]


# --- FlashInfer -------------------------------------------------------------------------------------------------------


class Wrapper:
    """Stands in for FlashInfer's: reads pages through the table it was planned with, gives the LSE to base 2."""

    def __init__(self) -> None:
        self.q_strides: list[tuple[int, ...]] = []

    def plan(self, **plan: Any) -> None:
        assert all(plan[name].dtype == torch.int32 and plan[name].device.type == "cpu" for name in INDICES)
        self.planned = plan

    def run(self, q: torch.Tensor, pages: tuple[torch.Tensor, torch.Tensor], **options: Any) -> None:
        p = self.planned
        self.q_strides.append(q.stride())
        assert options["return_lse"] is True and options["out"].is_contiguous()
        scales = options.get("kv_cache_sf", (None, None))
        k, v = (self._tokens(*each) for each in zip(pages, scales, strict=True))
        q_starts, heads = p["qo_indptr"].tolist(), p["num_qo_heads"]
        for sequence, (first, last) in enumerate(itertools.pairwise(q_starts)):
            rows = q[first:last].transpose(0, 1)[None]
            scale = p["sm_scale"] * options.get("k_scale", 1.0)
            out, lse = plain(rows, k[sequence][None], v[sequence][None], p["causal"], scale)
            options["out"][first:last] = out[0].transpose(0, 1) * options.get("v_scale", 1.0)
            options["lse"][first:last] = lse[0].T / math.log(2)
            assert rows.shape[1] == heads

    def _tokens(self, pages: torch.Tensor, scales: torch.Tensor | None) -> list[torch.Tensor]:
        """[Hkv, Sk, D] of each sequence, in float32, before global scales."""
        from impls.nvfp4 import NVFP4Tensor, decode

        p = self.planned
        assert pages.dtype == p["kv_data_type"]
        values = pages.float() if scales is None else decode(NVFP4Tensor(pages, scales, torch.ones(())))
        assert values.shape[1:] == (p["num_kv_heads"], p["page_size"], p["head_dim_qk"])
        starts, found = p["paged_kv_indptr"].tolist(), []
        for sequence, (first, last) in enumerate(itertools.pairwise(starts)):
            own = values[p["paged_kv_indices"][first:last].long()].transpose(0, 1).flatten(1, 2)
            found.append(own[:, : (last - first - 1) * p["page_size"] + int(p["paged_kv_last_page_len"][sequence])])
        return found


INDICES = ("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len")


@pytest.mark.parametrize("given", ["nothing", "head-major", "token-major"])
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("impl", ["flashinfer-bf16", "flashinfer-nvfp4-paged"])
def test_flashinfer(impl: str, name: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = Wrapper()
    monkeypatch.setattr(flashinfer_runner, "prefill_wrapper", lambda workspace, backend: wrapper)
    p = PROBLEMS[name]
    inputs = inputs_of(p)
    plan = implementation(impl).plan(p, HOPPER)
    into = {}
    if given != "nothing":
        shape = (p.batch, p.q_heads, p.q_len, p.head_dim)
        into["out"] = torch.empty(shape, dtype=torch.bfloat16)
        into["lse"] = torch.empty(shape[:3])
        if given == "token-major":
            into["out"] = torch.empty(shape[0], shape[2], shape[1], shape[3], dtype=torch.bfloat16).transpose(1, 2)
            into["lse"] = torch.empty(shape[0], shape[2], shape[1]).transpose(1, 2)
    runner = plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4), **into)
    output = runner.output
    runner()
    check(p, inputs, output)
    if given != "nothing":
        assert output.out is into["out"] and output.lse is into["lse"]
    inputs.q.neg_()
    runner()
    check(p, inputs, output)


def test_a_single_sequence_is_read_and_written_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = Wrapper()
    monkeypatch.setattr(flashinfer_runner, "prefill_wrapper", lambda workspace, backend: wrapper)
    p = PROBLEMS["extend-one-sequence"]
    inputs = inputs_of(p)
    plan = implementation("flashinfer-bf16").plan(p, HOPPER)
    runner = plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4))
    runner()
    assert wrapper.q_strides == [(p.head_dim, p.q_len * p.head_dim, 1)]
    assert runner.output.out.transpose(1, 2).is_contiguous()


def test_rows_that_see_no_key_stay_at_minus_infinity() -> None:
    lse = torch.empty(1, 2, 1)
    flashinfer_runner.natural_log(torch.tensor([[-torch.inf, 3.0]]), lse)
    assert lse.flatten().tolist() == [-math.inf, pytest.approx(math.log(8))]


def test_workspace_and_page_size_are_told() -> None:
    plan = implementation("flashinfer-fp8").plan(problem(), HOPPER)
    assert plan.describe() == {"backend": "fa2", "page_size": PAGE_SIZE}
    assert plan.workspace_bytes == 136 * 2**20


def test_tensors_that_are_elsewhere_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^the tensors are on cpu and the plan is for sm_90a; plan for where they are\.$"):
        checks.require_gpu(HOPPER, torch.zeros(1))


@pytest.mark.parametrize("name", ["sdpa-flash", "flashinfer-bf16", "flashinfer-nvfp4-paged"])
def test_a_cache_that_was_not_packed_is_refused(name: str) -> None:
    inputs = inputs_of(problem())
    with pytest.raises(ValueError, match=r"^the cache is not one that this plan packed; bind what plan\.pack"):
        implementation(name).plan(problem(), HOPPER).bind(inputs.q, Cache(inputs.k4, inputs.v4))


@pytest.mark.parametrize("name", ["sdpa-flash", "flashinfer-bf16"])
def test_queries_of_another_shape_are_refused(name: str) -> None:
    inputs = inputs_of(problem())
    plan = implementation(name).plan(problem(), HOPPER)
    with pytest.raises(ValueError, match=r"^q must have 4 axes"):
        plan.bind(inputs.q[0, 0], plan.pack(inputs.k4, inputs.v4))
