"""`torch-reference-bf16` against the float64 reference on every option, within the error its roundings can make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from impls.arch import CPU
from impls.contract import Cache, Inputs, Runner
from impls.nvfp4 import NVFP4Tensor
from impls.reference import Reference, reference_attention
from impls.registry import implementation
from tests.contract.attention_cases import OPTIONS, Case, make, poison_what_is_not_seen

NAMES = [name for name, changes in OPTIONS.items() if changes.get("dtype") != "float16"]
BF16 = 2.0**-8
FP32 = 2.0**-24


def bind(case: Case) -> Runner:
    i = case.inputs
    plan = implementation("torch-reference-bf16").plan(case.problem, CPU)
    return plan.bind(i.q, plan.pack(i.k4, i.v4), kv_lens=i.kv_lens, block_table=i.block_table)


def run(case: Case) -> Runner:
    runner = bind(case)
    runner.output.out.fill_(float("nan"))
    runner.output.lse.fill_(float("nan"))
    runner()
    return runner


def assert_within_bounds(case: Case, runner: Runner, exact: Reference) -> None:
    """Derived for this implementation, term by term.

    A score is D float32 products and sums and two scalings: off by at most (D + 3) * 2^-24 of sum |q k| * scale, to first
    order. exp takes that as a relative error, and adds two roundings of its own. A sum of n numerators adds n * 2^-24. Then

        |lse - exact| <= e_s + (n + 4) * 2^-24 + |lse| * 2^-24
        |out - exact| <= (2^-8 + 2 * e_s + 2 (n + 4) * 2^-24) * mass + 2^-8 |out|

    where 2^-8 of mass is the rounding of P to bfloat16, and 2^-8 of out that of the result. The second order terms are
    covered by 1 %.
    """
    n = case.problem.kv_len
    e_s = (case.problem.head_dim + 3) * FP32 * exact.score
    lse, out = runner.output.lse.double(), runner.output.out.double()
    dead = torch.isneginf(exact.lse)
    assert torch.equal(torch.isneginf(lse), dead)
    lse_bound = 1.01 * (e_s + (n + 4) * FP32 + exact.lse.abs() * FP32)
    assert ((lse - exact.lse).abs() <= lse_bound)[~dead].all()
    out_bound = 1.01 * ((BF16 + 2 * e_s[..., None] + 2 * (n + 4) * FP32) * exact.mass + BF16 * exact.out.abs())
    assert ((out - exact.out).abs() <= out_bound).all()
    assert not out[dead].any()


@pytest.mark.parametrize("name", NAMES)
def test_every_option(name: str) -> None:
    case = make(name)
    assert_within_bounds(case, run(case), reference_attention(case.problem, case.inputs))


@pytest.mark.parametrize("name", [name for name in NAMES if "ragged" in name or "paged" in name])
def test_what_is_not_seen_may_hold_anything(name: str) -> None:
    case = make(name)
    clean, poisoned = run(case), run(poison_what_is_not_seen(case))
    assert torch.equal(poisoned.output.out, clean.output.out)
    assert torch.equal(poisoned.output.lse, clean.output.lse)


@pytest.mark.parametrize("global_scale", [1e-30, 1e30])
def test_extreme_global_scales(global_scale: float) -> None:
    case = make("causal")
    g = torch.tensor(global_scale)
    ratio = float(g) / float(case.inputs.k4.global_scale)
    inputs = replace(case.inputs, k4=replace(case.inputs.k4, global_scale=g), v4=replace(case.inputs.v4, global_scale=g))
    extreme = replace(case, problem=replace(case.problem, scale=case.problem.softmax_scale / ratio), inputs=inputs)
    exact = reference_attention(extreme.problem, inputs)
    assert exact.out.abs().max() > global_scale
    assert_within_bounds(extreme, run(extreme), exact)


def test_a_runner_follows_q_lengths_and_tables_that_change() -> None:
    """As a captured graph is replayed: the tensors are the same, what they hold is not."""
    case = make("paged-HND")
    runner = run(case)
    i = case.inputs
    assert i.kv_lens is not None and i.block_table is not None
    i.q.copy_(i.q.flip(1))
    i.kv_lens.copy_(torch.tensor([17, 48]))
    i.block_table.copy_(i.block_table.flip(0))
    runner()
    assert_within_bounds(case, runner, reference_attention(case.problem, i))


def parts(inputs: Inputs) -> list[torch.Tensor]:
    caches = [part for t in (inputs.k4, inputs.v4) for part in (t.codes, t.scales.view(torch.uint8), t.global_scale)]
    return [t for t in (inputs.q, *caches, inputs.kv_lens, inputs.block_table) if t is not None]


@pytest.mark.parametrize("name", ["causal", "paged-NHD-v-along-tokens"])
def test_inputs_are_not_written(name: str) -> None:
    case = make(name)
    before = [t.clone() for t in parts(case.inputs)]
    run(case)
    assert all(torch.equal(a, b) for a, b in zip(parts(case.inputs), before, strict=True))


class NoReadBack(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value is read back"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_call_does_not_synchronise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read back, and no tensor is made of host data, which a device would have to be waited for to get."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a tensor is made of host data")

    runner = bind(make(name))
    monkeypatch.setattr(torch, "tensor", refuse)
    monkeypatch.setattr(torch, "as_tensor", refuse)
    with NoReadBack():
        runner()


def test_outputs_given_are_written_strided_or_not() -> None:
    case = make("causal")
    p, i = case.problem, case.inputs
    wanted = run(case).output
    out = torch.zeros(p.batch, p.q_len, p.q_heads, p.v_head_dim, dtype=torch.bfloat16).transpose(1, 2)
    lse = torch.zeros(p.batch, p.q_len, p.q_heads).transpose(1, 2)
    plan = implementation("torch-reference-bf16").plan(p, CPU)
    plan.bind(i.q, Cache(i.k4, i.v4), out=out, lse=lse)()
    assert torch.equal(out, wanted.out)
    assert torch.equal(lse, wanted.lse)


def test_strided_operands_give_what_their_copies_give() -> None:
    case = make("v-along-tokens")
    i = case.inputs

    def heads_last(t: torch.Tensor) -> torch.Tensor:
        """The same values with the head axis after the next one in memory, and holes between them."""
        spread = t.transpose(1, 2).unsqueeze(0).repeat(2, 1, 1, 1, 1)
        return spread[1].transpose(1, 2)

    def strided(t: NVFP4Tensor) -> NVFP4Tensor:
        scales = heads_last(t.scales.view(torch.uint8)).view(torch.float8_e4m3fn)
        return replace(t, codes=heads_last(t.codes), scales=scales)

    moved = replace(case, inputs=replace(i, q=heads_last(i.q), k4=strided(i.k4), v4=strided(i.v4)))
    assert not moved.inputs.k4.codes.is_contiguous()
    assert torch.equal(run(moved).output.out, run(case).output.out)


def test_what_it_declares() -> None:
    chosen = implementation("torch-reference-bf16")
    problem = make("causal").problem
    assert {operand: rounding.name for operand, rounding in chosen.rounds(problem).items()} == {"p": "bfloat16"}
    assert chosen.accumulator_chain(problem) == problem.kv_len
    assert chosen.why_not(problem, CPU) is None
    sentence = "torch-reference-bf16 takes bfloat16 queries, not float16."
    assert chosen.why_not(replace(problem, dtype="float16"), CPU) == sentence
