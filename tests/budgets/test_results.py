"""Budgets of what is done with results: loading them, and making pages of them."""

from __future__ import annotations

import json

import pytest

from benchmarks.journal import journal_path, read_results
from benchmarks.records import Cell, Environment, Run, to_json
from dashboards.site import build, split_by_arch

CELLS = 2000


@pytest.fixture
def results(tmp_path):
    """A results folder with one large run, and its lines."""
    environment = Environment(
        device="NVIDIA H200", arch="sm_90a", platform="linux-x86_64", python="3.11.7", numpy="2.4.6", torch="2.15.0"
    )
    run = Run(
        command="run --full",
        commit="0" * 40,
        source="0" * 64,
        machine="nvidia-h200",
        started="2026-01-01T00:00:00Z",
        environment=environment,
    )
    samples = tuple(1e-5 + 1e-9 * i for i in range(20))
    cells = [
        Cell(id=f"decode/triton/d128/kv{i}", suite="latency", how="gpu", status="ok", series={"latency": samples})
        for i in range(CELLS)
    ]
    lines = [json.dumps(to_json(record)) for record in (run, *cells)]
    path = journal_path(tmp_path, run)
    path.parent.mkdir()
    path.write_text("".join(f"{line}\n" for line in lines))
    return tmp_path, lines


def test_loading_results(within, results):
    """In parsings of the same lines as bare JSON: the rest is what checking every record costs."""
    folder, lines = results
    journals, problems = read_results(folder)
    assert len(journals[0].cells) == CELLS and not problems
    within(15, lambda: read_results(folder), lambda: [json.loads(line) for line in lines], rounds=5)


def test_building_the_pages(within, results):
    """In writings of the same results as bare JSON. plotly.js is the same for every page and left out."""
    folder, _ = results
    journals, _ = read_results(folder)
    runs, unknown = split_by_arch(journals, folder)
    assert not unknown and b"kv1999" in b"".join(build(runs, [], "").values())
    records = [to_json(cell) for cell in journals[0].cells]
    within(6, lambda: build(runs, [], ""), lambda: json.dumps(records), rounds=5)
