"""The kernels' algorithm against the float64 reference, in Triton's interpreter, so on any CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from impls.worker import Worker
from tests.triton.behaviours import BEHAVIOURS
from tests.triton.cases import CASES

INTERPRET = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def cases() -> Iterator[Worker]:
    with Worker("tests.triton.children:run_case", env=INTERPRET) as worker:
        yield worker


@pytest.fixture(scope="module")
def behaviours() -> Iterator[Worker]:
    with Worker("tests.triton.children:run_behaviour", env=INTERPRET) as worker:
        yield worker


@pytest.mark.parametrize("name", CASES)
def test_within_its_error_bound(cases, name):
    reply = cases.call({"case": name}, timeout=120)
    assert reply.status == "ok", reply.sentence
    assert reply.value["bad_empty_rows"] == 0, "a row that sees no key must give out 0 and lse -inf"
    assert reply.value["out_over_bound"] <= 1
    assert reply.value["lse_over_bound"] <= 1


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour(behaviours, name):
    reply = behaviours.call({"behaviour": name}, timeout=120)
    assert reply.status == "ok", reply.sentence
