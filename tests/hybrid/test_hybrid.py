"""What the hybrids take, which of torch's kernels `hybrid-bf16:sdpa` calls, and which caches `bind` refuses."""

from __future__ import annotations

import pytest

from impls.arch import CPU, find
from impls.contract import Paged
from impls.hybrid.sdpa import backend
from impls.peers import refusals
from impls.registry import BUILT_IN, implementation
from impls.worker import Worker
from tests.peers.problems import problem

HOPPER = find("sm_90a")
INTERPRET = {"TRITON_INTERPRET": "1"}


def test_they_are_in_the_registry_and_one_is_inside_another() -> None:
    assert {"hybrid-bf16", "hybrid-fp8", "hybrid-bf16:sdpa"} <= set(BUILT_IN)
    assert implementation("hybrid-bf16").using("sdpa").name == "hybrid-bf16:sdpa"
    for name in ("hybrid-bf16:triton", "hybrid-fp8:sdpa"):
        with pytest.raises(ValueError, match=r"^[^\n]+\.$"):
            implementation(name)


def test_kernels_are_listed_of_what_has_kernels_of_ours() -> None:
    listed = {name: implementation(name).lists_launches for name in ("hybrid-bf16", "hybrid-fp8", "hybrid-bf16:sdpa")}
    assert listed == {"hybrid-bf16": True, "hybrid-fp8": True, "hybrid-bf16:sdpa": False}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hybrid-bf16", "hybrid-fp8"])
def test_a_cache_without_memory_is_packed_and_bound(name: str) -> None:
    """As `nvfp4bench kernels` does: a plan for a GPU that is not here, to tensors that have shapes alone."""
    with Worker("tests.hybrid.children:listed", env={"TRITON_INTERPRET": "0"}) as worker:
        reply = worker.call({"impl": name, "arch": "sm_90a"}, timeout=120)
    assert reply.status == "ok", reply.sentence
    assert reply.value == ["attend", "merge"]


@pytest.mark.parametrize("name", ["hybrid-bf16", "hybrid-fp8"])
def test_what_is_too_wide_is_refused_by_its_own_name(name: str) -> None:
    assert implementation(name).why_not(problem(head_dim=528), HOPPER) == f"{name} takes head dims up to 512, not 528."


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"layout": Paged(64), "ragged": True}, refusals.NO_PAGES),
        ({"head_dim": 512}, "torch's flash attention takes head dims up to 256, not 512."),
        ({"dtype": "float16"}, "float16 cannot hold every value of an NVFP4 cache"),
    ],
)
def test_what_torch_does_not_take_is_refused(fields: dict[str, object], sentence: str) -> None:
    assert (implementation("hybrid-bf16:sdpa").why_not(problem(**fields), HOPPER) or "").startswith(sentence)
    assert implementation("hybrid-bf16:sdpa").why_not(problem(), CPU) == refusals.NO_GPU


@pytest.mark.parametrize(
    ("fields", "kernel"),
    [({}, "cudnn"), ({"q_len": 200}, "cudnn"), ({"q_len": 9}, "flash"), ({"q_len": 9, "causal": False}, "cudnn")],
)
def test_cudnn_is_called_where_it_takes_the_problem_and_flash_elsewhere(fields: dict[str, object], kernel: str) -> None:
    assert backend(problem(**fields), HOPPER) == kernel


def test_a_cache_of_another_plan_is_refused() -> None:
    """Its bytes would be read as what they are not."""
    with Worker("tests.hybrid.children:bind_other", env=INTERPRET) as worker:
        replies = [worker.call({"packed_by": name}, timeout=120) for name in ("hybrid-fp8", "triton")]
    for reply in replies:
        assert reply.status == "failed"
        assert "the cache is not one that this plan packed" in (reply.sentence or "")
