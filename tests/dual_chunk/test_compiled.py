"""What the passes compile to, for a GPU that is not here: the same shared memory whatever the context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from impls.arch import find
from impls.worker import Worker
from tests.cuda.needs import needs_nvrtc

COMPILE = {"TRITON_INTERPRET": "0"}
TEXT: dict[str, Any] = {"batch": 1, "q_heads": 16, "kv_heads": 16, "q_len": 1024, "head_dim": 128, "v_head_dim": 128}


@pytest.fixture(scope="module")
def plans() -> Iterator[Worker]:
    with Worker("tests.dual_chunk.children:compile_plan", env=COMPILE) as worker:
        yield worker


def compiled(plans: Worker, kv_len: int, **fields: Any) -> dict[str, Any]:
    request = {"impl": "dual-chunk:triton", "arch": "sm_90a", "problem": {**TEXT, **fields, "kv_len": kv_len}}
    reply = plans.call(request, timeout=300)
    assert reply.status == "ok", reply.sentence
    found: dict[str, Any] = reply.value
    return found


def shared_from_1k_to_1m(plans: Worker, **fields: Any) -> None:
    found = {kv_len: compiled(plans, kv_len, **fields) for kv_len in (2**10, 2**13, 2**15, 2**17, 2**20)}
    assert len({tuple(one["shared"]) for one in found.values()}) == 1, found
    assert max(found[2**20]["shared"]) <= find("sm_90a").shared_per_block


def test_shared_memory_is_the_same_from_1k_to_1m_tokens(plans):
    shared_from_1k_to_1m(plans)


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", [64, 256, 512])
def test_shared_memory_is_the_same_at_every_head_dim(plans, head_dim):
    shared_from_1k_to_1m(plans, head_dim=head_dim, v_head_dim=head_dim)


def test_a_slice_of_a_million_tokens_needs_the_workspace_of_a_short_one(plans):
    short, long = (compiled(plans, kv_len, q_len=4096) for kv_len in (2**17, 2**20))
    assert short["workspace"] == long["workspace"] > 0
    assert (short["plan"]["passes"], long["plan"]["passes"]) == (2, 16)
    assert long["plan"]["inner"] == "triton"
    assert long["plan"]["longest_chunk"] == 65536


@pytest.mark.parametrize(
    ("inner", "q_len"), [pytest.param("triton", 1, marks=pytest.mark.slow), pytest.param("a4q", 2, marks=needs_nvrtc)]
)
def test_binding_takes_the_workspace_that_the_plan_says(inner, q_len):
    """Passes of one problem share what their splits leave."""
    problem = {**TEXT, "q_heads": 32, "kv_heads": 8, "kv_len": 3 * 65536, "q_len": q_len, "head_dim": 64, "v_head_dim": 64}
    with Worker("tests.dual_chunk.children:workspace", env=COMPILE) as worker:
        found = worker.call({"impl": f"dual-chunk:{inner}", "arch": "sm_90a", "problem": problem}, timeout=300)
    assert found.status == "ok", found.sentence
    taken, said = found.value
    assert taken == said > 0


def test_two_runners_of_a_plan_share_no_memory():
    """Graphs of two layers may be replayed at the same time."""
    with Worker("tests.dual_chunk.children:shared_memory", env=COMPILE) as worker:
        found = worker.call({"case": "splits-inside", "arch": "sm_90a"}, timeout=300)
        assert found.status == "ok", found.sentence
        own, common = found.value
        assert own > 0 and common == 0


def test_a_call_is_the_lengths_then_passes_and_merges_in_turns():
    with Worker("tests.dual_chunk.children:launches", env=COMPILE) as worker:
        found = worker.call({"case": "ragged-full", "arch": "sm_90a"}, timeout=300)
        assert found.status == "ok", found.sentence
        assert found.value == ["take_lengths", "attend", *["attend", "fold"] * 3]
