"""A record that breaks a rule cannot be made, and one that keeps them comes back from JSON as it was."""

from __future__ import annotations

import dataclasses
import json

import pytest

from benchmarks.records import STATUSES, Cell, from_json, to_json
from tests.benchmarks.records_made_up import failed_cell, host_cell, latency_cell, numerics, numerics_cell, run


@pytest.mark.parametrize(
    "record",
    [
        run(ceilings={"copy_bytes_per_s": 4e12}),
        host_cell(plan={"tile": 64, "kernel": "split"}, prepare_seconds=0.5, compile_seconds=0.25),
        latency_cell(),
        latency_cell(launches=(dataclasses.replace(latency_cell().launches[0], overlaps=True),)),
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


def projection_cell(**errors: object) -> dict[str, object]:
    """As JSON data."""
    measured = {name: value for name, value in dataclasses.asdict(numerics()).items() if name != "lse_error"}
    cell = {"id": "projection/w4a16/4096x14336/m1", "suite": "projection", "how": "gpu", "status": "ok"}
    return {"kind": "cell", **cell, "series": {"latency": [1e-5]}, "numerics": {**measured, **errors}}


def test_a_projection_has_no_lse_and_says_so():
    cell = from_json(projection_cell())
    assert isinstance(cell, Cell) and cell.numerics is not None
    assert cell.numerics.lse_error is None
    assert "lse_error" not in to_json(cell)["numerics"]


def test_a_projection_of_an_earlier_journal_is_read_with_the_zero_it_states():
    cell = from_json(projection_cell(lse_error=0.0))
    assert isinstance(cell, Cell) and cell.numerics is not None
    assert cell.numerics.lse_error == 0.0


@pytest.mark.parametrize("cell", [latency_cell(), numerics_cell("causal")])
def test_attention_without_an_lse_error_is_refused(cell):
    data = to_json(cell)
    del data["numerics"]["lse_error"]
    with pytest.raises(ValueError, match="compares an LSE, so its numerics need an lse_error"):
        from_json(data)


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "ok"])
def test_a_cell_that_was_not_measured_has_no_number(status):
    with pytest.raises(ValueError, match="needs a sentence and no measurement"):
        Cell(id="host/a/d64", suite="host", how="cpu", status=status, sentence="x.", series={"call": (1.0,)})


def test_parts_of_an_id():
    cell = host_cell()
    assert (cell.workload, cell.impl, cell.parameters) == ("host", "torch-reference-bf16", ("d128", "kv1024"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clocks": {"latency": (1980,)}}, "a clock for each of its samples"),
        ({"clocks": {"eager": (1980,)}}, "a clock for each of its samples"),
        ({"taken": {"latency": 1}}, "thinned from 1 samples"),
        ({"taken": {"eager": 20}}, "thinned from 20 samples"),
        ({"work": {"flops": -1}}, "whole numbers"),
        ({"work": {"watts": 700}}, "work has flops"),
    ],
)
def test_what_belongs_to_a_series_fits_it(changes, words):
    with pytest.raises(ValueError, match=words):
        latency_cell(**changes)


def test_a_launch_overlaps_or_does_not():
    record = to_json(latency_cell())
    record["launches"][0]["overlaps"] = 1
    with pytest.raises(ValueError, match="field overlaps should be bool, not 1"):
        from_json(record)


@pytest.mark.parametrize("changes", [{"cubin": "x"}, {"grid": (1, 1)}, {"block": (128, 0, 1)}])
def test_a_launch_that_cannot_be_is_refused(changes):
    with pytest.raises(ValueError, match="launch attend"):
        dataclasses.replace(latency_cell().launches[0], **changes)
