"""A record that breaks a rule cannot be made, and one that keeps them comes back from JSON as it was."""

from __future__ import annotations

import json

import pytest

from benchmarks.records import STATUSES, Cell, from_json, to_json
from tests.benchmarks.records_made_up import failed_cell, host_cell, numerics, numerics_cell, run


@pytest.mark.parametrize(
    "record",
    [
        run(ceilings={"copy_bytes_per_s": 4e12}),
        host_cell(plan={"tile": 64, "kernel": "split"}, prepare_seconds=0.5, compile_seconds=0.25),
        numerics_cell("causal", error_over_bound=float("inf"), lse_error=float("inf"), nan_count=4, verdict="4 NaNs."),
        *(failed_cell(status=status) for status in STATUSES if status != "ok"),
    ],
)
def test_round_trip(record):
    assert from_json(json.loads(json.dumps(to_json(record), allow_nan=False))) == record


def test_cosine_of_a_broken_output_has_no_value():
    back = from_json(json.loads(json.dumps(to_json(numerics_cell("causal", cosine=float("nan"))), allow_nan=False)))
    assert isinstance(back, Cell)
    assert back.numerics is not None
    assert back.numerics.cosine != back.numerics.cosine


def test_an_error_that_is_not_a_number_is_refused():
    with pytest.raises(ValueError, match="lse_error is not a number"):
        numerics(lse_error=float("nan"))


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "ok"])
def test_a_cell_that_was_not_measured_has_no_number(status):
    with pytest.raises(ValueError, match="needs a sentence and no measurement"):
        Cell(id="host/a/d64", suite="host", how="cpu", status=status, sentence="x.", series={"call": (1.0,)})


def test_parts_of_an_id():
    cell = host_cell()
    assert (cell.workload, cell.impl, cell.parameters) == ("host", "torch-reference-bf16", ("d128", "kv1024"))
