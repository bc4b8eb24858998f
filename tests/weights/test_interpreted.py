"""The Triton kernels' algorithm against float64, in Triton's interpreter, so on any CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from impls.worker import Worker
from tests.weights.cases import CASES, CONVERTED

INTERPRET = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def cases() -> Iterator[Worker]:
    with Worker("tests.weights.children:run_case", env=INTERPRET) as worker:
        yield worker


@pytest.mark.parametrize(
    ("impl", "name"),
    [*(("w4a16:fused", name) for name in CASES), *(("w4a16:convert", name) for name in CONVERTED), ("w4a16", "rows-256")],
)
def test_within_its_error_bound(cases, impl, name):
    reply = cases.call({"case": name, "impl": impl}, timeout=120)
    assert reply.status == "ok", reply.sentence
    assert reply.value["over_bound"] <= 1
    assert reply.value["same_again"], "the counters of splits are back at zero, and sums have one order"
    assert reply.value["spilt"] == 0


def test_a_runner_follows_its_rows_and_packed_weights_serve_every_number_of_them():
    with Worker("tests.weights.children:new_rows", env=INTERPRET) as worker:
        reply = worker.call({}, timeout=60)
    assert reply.status == "ok", reply.sentence
    assert reply.value == {"follows": True, "serves": True, "many axes": True}
