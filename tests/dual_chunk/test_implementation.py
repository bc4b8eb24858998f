"""Names, refusals, declared roundings, and faults inside that the gate catches."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import nvfp4bench
from impls.arch import CPU, find
from impls.contract import Cache, Output, Plan, Problem, Rounding
from impls.dual_chunk import MERGED_KEYS, DualChunkAttention
from impls.dual_chunk.merging import Fold, State, TorchMerging
from impls.numerics.bounds import RESCALE_KEY, SUM_TERM
from impls.numerics.measure import examine
from impls.nvfp4 import quantize
from impls.registry import STAND_INS, implementation, names
from impls.torch_reference import TorchReference
from tests.cuda.needs import needs_nvrtc
from tests.dual_chunk import faults

PROBLEM = Problem(1, 2, 1, 4, 200, 64, 64)
TORCH = "dual-chunk:torch-reference-bf16"


def test_the_plain_name_stands_for_the_fastest_and_is_not_run_twice():
    assert "dual-chunk" in STAND_INS
    assert "dual-chunk" not in names()
    assert "dual-chunk:triton" in names()


HAS, HAS_NOT = "a4q-q16 has a kernel for ", "a4q-q16 has no kernel for "
WIDE = {"head_dim": 512, "v_head_dim": 256, "v_block_axis": -2}


@pytest.mark.parametrize(
    ("changes", "arch", "inner", "why"),
    [
        pytest.param({"q_len": 1, "q_heads": 16}, "sm_90a", "a4q-q16", HAS + "16 query rows on sm_90a", marks=needs_nvrtc),
        pytest.param({"q_len": 1, "q_heads": 17}, "sm_90a", "a4q-q16", HAS + "17 query rows on sm_90a", marks=needs_nvrtc),
        pytest.param({"q_len": 64, "kv_len": 201}, "sm_90a", "a4q-q16", HAS + "128 query rows on sm_90a", marks=needs_nvrtc),
        pytest.param({"q_len": 16, "dtype": "float16"}, "sm_90a", "a4q-q16", HAS + "32 query rows", marks=needs_nvrtc),
        pytest.param({"q_len": 1}, "sm_80", "a4q-q16", HAS + "2 query rows on sm_80", marks=needs_nvrtc),
        pytest.param({"q_len": 16, **WIDE}, "sm_90a", "triton", HAS_NOT + "32 query rows on sm_90a", marks=needs_nvrtc),
        pytest.param({"q_len": 1, "q_heads": 16}, "sm_80", "triton", HAS_NOT + "16 query rows on sm_80", marks=needs_nvrtc),
        pytest.param({"q_len": 16}, "sm_120a", "triton", HAS_NOT + "32 query rows on sm_120a", marks=needs_nvrtc),
        ({"q_len": 1, "head_dim": 80}, "sm_90a", "triton", "a4q-q16 takes head dims that are multiples of 64"),
        ({"q_len": 16}, "cpu", "triton", "a4q-q16 is compiled for NVIDIA GPUs, and there is none."),
    ],
)
def test_the_fastest_is_taken_wherever_it_has_a_kernel_and_says_why(changes, arch, inner, why):
    chosen, said = implementation("dual-chunk").chosen(replace(PROBLEM, **changes), find(arch))
    assert chosen.inner.name == inner
    assert why in said


def test_a_plan_says_who_was_chosen_and_why():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("impls.dual_chunk.attention.merging", lambda *given: TorchMerging(PROBLEM))
        one = implementation("dual-chunk")
        one.anywhere = DualChunkAttention("dual-chunk", TorchReference())
        said = one.plan(replace(PROBLEM, q_len=16), CPU).describe()
    assert said["inner"] == "torch-reference-bf16"
    assert said["chosen_because"] == "a4q-q16 is compiled for NVIDIA GPUs, and there is none."


def test_what_the_fastest_rounds_holds_for_any_that_may_be_chosen():
    """What a name declares may depend on the problem and not on the machine."""
    one = implementation("dual-chunk")
    for problem in (replace(PROBLEM, q_len=1), replace(PROBLEM, q_len=16), replace(PROBLEM, q_len=16, dtype="float16")):
        assert one.rounds(problem) == {"p": Rounding("float16"), "partial": Rounding("float32")}
        inside = [implementation(f"dual-chunk:{name}").accumulator_chain(problem) for name in ("triton", "a4q-q16")]
        assert one.accumulator_chain(problem) == max(inside)


def test_what_the_fastest_refuses_is_declared_as_the_other_has_it():
    problem = replace(PROBLEM, q_len=1, head_dim=80)
    chains = [implementation(name).accumulator_chain(problem) for name in ("dual-chunk", "dual-chunk:triton")]
    assert chains[0] == chains[1]


def test_any_implementation_can_be_inside():
    chosen = implementation(TORCH)
    assert isinstance(chosen, DualChunkAttention)
    assert (chosen.name, chosen.inner.name) == (TORCH, "torch-reference-bf16")
    assert chosen.why_not(PROBLEM, CPU) is None


def test_chunks_of_chunks_are_refused():
    with pytest.raises(ValueError, match=r"^dual-chunk:triton is made of chunks itself; name what is to compute them\.$"):
        implementation("dual-chunk:dual-chunk:triton")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("dual-chunk:a5q", "unknown implementation 'dual-chunk:a5q'; there are torch-reference-bf16, triton,"),
        ("dual-chunk:dual-chunk", "dual-chunk is made of chunks itself; name what is to compute them."),
        ("triton:dual-chunk", "triton has no other implementation inside, so triton:dual-chunk means nothing."),
    ],
)
def test_a_pair_that_means_nothing_is_one_sentence_to_the_gate(name, sentence, capsys):
    assert nvfp4bench.main(["gate", "--on", "cpu", "--impl", name, "--case", "no-keys"]) == 2
    assert capsys.readouterr().err.startswith(f"nvfp4bench gate: {sentence}")


def test_a_cache_in_another_format_is_refused():
    assert implementation("dual-chunk:sdpa-flash").why_not(PROBLEM, find("sm_90a")) == (
        "it gives slices of the NVFP4 cache to sdpa-flash, which turns the cache into another format first."
    )


@pytest.mark.parametrize("name", names())
def test_whoever_turns_the_cache_into_another_format_says_so(name):
    """A plan that packs would be given slices of the tensors it packs from."""
    chosen = implementation(name)
    module = {
        "sdpa": "impls.peers.sdpa_runner",
        "flashinfer": "impls.peers.flashinfer_runner",
        "hybrid": "impls.hybrid.sdpa_plan" if name.endswith(":sdpa") else "impls.hybrid.attention",
    }.get(name.split("-")[0])
    if module is None:
        assert not chosen.repacks
        return
    plans = [x for x in vars(importlib.import_module(module)).values() if isinstance(x, type) and issubclass(x, Plan)]
    assert chosen.repacks == any(plan.pack is not Plan.pack for plan in plans)


def test_partial_results_in_float16_are_refused():
    class Halves(TorchReference):
        name = "halves"

        def why_not(self, problem, arch):
            return None

    halves = replace(PROBLEM, dtype="float16")
    assert DualChunkAttention("chunks", Halves()).why_not(halves, CPU) == (
        "halves writes partial results in float16, where one may overflow that hardly counts."
    )


def test_what_the_inner_one_refuses_is_refused():
    inner = implementation("dual-chunk:triton")
    assert inner.why_not(replace(PROBLEM, head_dim=528), find("sm_90a")) == "triton takes head dims up to 512, not 528."


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("dual-chunk:triton", "float32"),
        ("dual-chunk:a4q", "float32"),
        ("dual-chunk:a4q-q16", "float32"),
        ("dual-chunk", "float32"),
        (TORCH, "bfloat16"),
    ],
)
def test_partial_results_are_declared_as_they_are_written(name, dtype):
    assert implementation(name).rounds(PROBLEM)["partial"] == Rounding(dtype)


def test_a_shape_that_is_not_the_problems_is_told_before_it_is_cut():
    plan = implementation(TORCH).plan(PROBLEM, CPU)
    k4 = quantize(torch.randn(1, 1, 199, 64))
    with pytest.raises(ValueError, match=r"^k4 must be \[B, Hkv, Sk, D\] = \[1, 1, 200, 64\], not \[1, 1, 199, 64\]\.$"):
        plan.bind(torch.zeros(1, 2, 4, 64, dtype=torch.bfloat16), Cache(k4, k4))


def test_a_merge_costs_no_more_than_the_keys_it_counts_as():
    """600 parts of random weights, one after the other in float32, against float64."""
    parts, width = 600, 64
    g = torch.Generator().manual_seed(0)
    outs = torch.rand(parts, 1, 1, 1, width, generator=g) + 0.5
    lses = 4 * torch.randn(parts, 1, 1, 1, generator=g)
    acc, top, total = torch.zeros(1, 1, 1, width), lses[0].clone(), torch.zeros(1, 1, 1)
    result = Output(torch.zeros(1, 1, 1, width), torch.zeros(1, 1, 1))
    merge = TorchMerging(PROBLEM)
    state = State(acc, top, total)
    for number in range(1, parts):
        first = Output(outs[0], top) if number == 1 else None
        into = result if number == parts - 1 else None
        merge.fold(Fold(state, state, first, Output(outs[number], lses[number]), into))()
    weights = torch.softmax(lses.double(), 0)
    exact = (weights.unsqueeze(-1) * outs.double()).sum(0)
    error = float(((result.out.double() - exact) / exact).abs().max())
    assert error < parts * MERGED_KEYS * (SUM_TERM + RESCALE_KEY)
    assert abs(float(result.lse - torch.logsumexp(lses.double(), 0))) < parts * MERGED_KEYS * (SUM_TERM + RESCALE_KEY)


def examined(fault: type[DualChunkAttention], case: str) -> str:
    source = f"{Path(faults.__file__)}:{fault.__name__}"
    return examine({"impl": source, "case": case, "on": "cpu"})["numerics"]["verdict"]


CASES = ("long-prefix-short-suffix", "ragged-chunks")


@pytest.mark.parametrize("case", CASES)
def test_chunks_without_a_fault_pass(case):
    assert examined(faults.RightInside, case) == "pass"


@pytest.mark.parametrize(("fault", "case"), [(faults.BaseTwo, CASES[0]), (faults.BaseTwo, CASES[1])])
def test_an_inner_lse_to_the_base_2_is_caught(fault, case):
    assert "times its bound" in examined(fault, case)


def test_an_empty_chunk_that_counts_as_a_key_is_caught():
    assert examined(faults.EmptyIsZero, "ragged-chunks") != "pass"
