"""Long contexts: left to GPUs, and compared at evenly spaced queries."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from impls.contract import Unsupported
from impls.numerics import measure
from impls.numerics.cases import CASES
from impls.numerics.measure import examine

LONG = [name for name, case in CASES.items() if case.gpu_only]


def test_contexts_of_131072_tokens_are_among_them_at_head_dims_to_512():
    reached = {CASES[name].problem.head_dim for name in LONG if CASES[name].problem.kv_len == 131072}
    assert {128, 256, 512} <= reached


@pytest.mark.parametrize("name", LONG)
def test_a_cpu_refuses_them_before_it_makes_their_data(name, monkeypatch):
    monkeypatch.setattr(measure, "build", lambda case: pytest.fail("the data were made"))
    with pytest.raises(Unsupported, match=f"^{name} is a case for GPUs"):
        examine({"impl": "torch-reference-bf16", "case": name, "on": "cpu"})


def test_the_first_and_the_last_query_are_compared():
    case = CASES["long-prefill"]
    assert case.rows == 16
    rows = measure._compared_rows(case).tolist()
    assert (len(rows), rows[0], rows[-1]) == (16, 0, 32767)
    assert {b - a for a, b in itertools.pairwise(rows)} <= {2184, 2185}


def test_sampled_queries_are_told_where_they_stand(monkeypatch):
    """Of the whole case, sampled at 3 queries: the errors are those of queries 0, 64.5 to even, and 129."""
    monkeypatch.setitem(CASES, "prefill", replace(CASES["prefill"], rows=3))
    found = examine({"impl": "torch-reference-bf16", "case": "prefill", "on": "cpu"})
    assert found["numerics"]["verdict"] == "pass"
    assert [(one["first"], one["last"]) for one in found["positions"]] == [(0, 0), (64, 64), (129, 129)]


def test_a_fault_in_a_sampled_query_shows(monkeypatch):
    monkeypatch.setitem(CASES, "prefill", replace(CASES["prefill"], rows=3))
    run = measure._run

    def broken(*arguments):
        done = run(*arguments)
        done.output.out[:, :, 64] *= 2
        return done

    monkeypatch.setattr(measure, "_run", broken)
    found = examine({"impl": "torch-reference-bf16", "case": "prefill", "on": "cpu"})
    assert "query 64" in found["numerics"]["verdict"]
