"""Chunks and merges against the float64 reference, in Triton's interpreter, so on any CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from impls.worker import Worker
from tests.dual_chunk.behaviours import BEHAVIOURS
from tests.dual_chunk.cases import CASES

INTERPRET = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def cases() -> Iterator[Worker]:
    with Worker("tests.dual_chunk.children:run_case", env=INTERPRET) as worker:
        yield worker


@pytest.fixture(scope="module")
def behaviours() -> Iterator[Worker]:
    with Worker("tests.dual_chunk.children:run_behaviour", env=INTERPRET) as worker:
        yield worker


@pytest.mark.parametrize("name", CASES)
def test_within_its_error_bound(cases, name):
    holds(cases.call({"case": name}, timeout=120))


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour(behaviours, name):
    reply = behaviours.call({"behaviour": name}, timeout=120)
    assert reply.status == "ok", reply.sentence


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].inner == "torch-reference-bf16"])
def test_torch_merges_where_triton_is_not_interpreted(name):
    with Worker("tests.dual_chunk.children:run_case", env={**INTERPRET, "TRITON_INTERPRET": "0"}) as worker:
        holds(worker.call({"case": name}, timeout=120))


def test_bias_is_of_float32_outputs():
    """Rounded to bfloat16 a mean would be off by 1e-4 or more; float32 sums that round to nearest hardly drift in 1024 keys."""
    with Worker("tests.dual_chunk.children:drift", env=INTERPRET) as worker:
        reply = worker.call({}, timeout=120)
    assert reply.status == "ok", reply.sentence
    assert len(reply.value) == 3
    # numerators are rounded to float16, unbiased: 2^-12 at most each, of 1024 a mean of 2^-17 is four deviations
    assert all(abs(bias) < 2.0**-14 for bias in reply.value)


def holds(reply):
    assert reply.status == "ok", reply.sentence
    assert reply.value["bad_empty_rows"] == 0, "a row that sees no key must give out 0 and lse -inf"
    assert reply.value["out_over_bound"] <= 1
    assert reply.value["lse_over_bound"] <= 1
