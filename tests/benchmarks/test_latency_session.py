"""A candidate is timed only if its calls do what their time is reported for; what it breaks costs no neighbour anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import latency, sweep
from benchmarks.cells import Workload, specs
from benchmarks.journal import JournalWriter, read_journal
from benchmarks.latency import Session, prepare
from benchmarks.records import Cell, from_json
from benchmarks.shape import Shape
from benchmarks.sweep import Place
from impls.contract import Unsupported
from tests.benchmarks.fake_clock import FakeClock
from tests.benchmarks.records_made_up import run

CALLS = Path(__file__).with_name("hostile_calls.py")
SHAPE = {"workload": "tiny", "values": [64, 128]}
TINY = Workload("tiny", "latency", "As many tokens as a test has time for.", (), q_heads=4, kv_heads=2)


def source(name: str) -> str:
    return f"{CALLS}:{name}"


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "workloads", lambda: {"tiny": TINY})
        yield


@pytest.fixture(scope="module")
def session() -> Session:
    opened = Session(FakeClock())
    assert opened.answer({"do": "open", **SHAPE}) == {"no_clock": "SM clocks are not recorded: this clock is made up."}
    return opened


def add(session: Session, name: str) -> dict[str, Any]:
    return session.answer({"do": "add", "impl": source(name)})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Caches", "it gives the old output for new queries"),
        ("CapturedOld", "it gives the old output for new queries"),
        ("NotCaptured", "its graph replay leaves the output unwritten"),
        ("LeavesOut", "a call leaves 4 elements of out and lse unwritten"),
        ("Overwrites", "it writes to its inputs: k4.codes"),
    ],
)
def test_a_call_that_breaks_a_promise_is_not_timed(session, name, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        add(session, name)
    with pytest.raises(ValueError, match="was not added"):
        session.answer({"do": "sample", "impl": source(name), "series": "latency"})
    facts = add(session, "Plain")["facts"]  # the data is as before
    assert facts["numerics"]["verdict"] == "pass"


def test_a_candidate_that_converts_has_every_field_of_a_cell(session):
    added = add(session, "Converts")
    assert added["series"] == ("latency", "eager", "host", "pack", "total")
    assert added["estimate"] == 1e-3
    for series in added["series"]:
        taken = session.answer({"do": "sample", "impl": source("Converts"), "series": series})
        assert taken["mhz"] is None and (taken["seconds"] == 1e-3 or series == "host")
    ids = {"kind": "cell", "id": "tiny/converts/d64/kv128", "suite": "latency", "how": "gpu", "status": "ok"}
    cell = from_json({**ids, **json.loads(json.dumps(added["facts"]))})
    assert isinstance(cell, Cell)
    assert cell.numerics is not None
    (launch,) = cell.launches
    assert (launch.entry, tuple(launch.grid), tuple(launch.scalars)) == ("attend", (3, 2, 1), (0.5,))
    assert launch.overlaps
    assert launch.cubin == hashlib.sha256(b"cubin").hexdigest()
    assert cell.cache_layout == "bfloat16 dense"
    values = 2 * 128 * 64 * 2
    assert cell.work["nvfp4_bytes"] == values * 9 // 16
    assert cell.work["cache_bytes"] == values * 9 // 16 + values * 2
    assert cell.work["flops"] == 2 * 2 * 64 * 4 * 128
    assert cell.numerics.exact_relative_l2 > 0
    assert cell.numerics.relative_l2 > 0
    assert cell.compile_seconds is not None


def test_a_series_is_called_once_before_its_first_sample_which_is_put_on_the_stream_while_the_gpu_waits():
    clock = FakeClock()
    session = Session(clock)
    session.answer({"do": "open", **SHAPE})
    added = add(session, "Converts")["series"]
    candidate = session._candidates[source("Converts")]
    calls = {"eager": candidate._runner, "host": candidate._runner, "pack": candidate._calls["pack"]}
    for series in added:
        clock.did.clear()
        clock.host_seconds.clear()
        clock.hosted.clear()
        for _ in range(2):
            session.answer({"do": "sample", "impl": source("Converts"), "series": series})
        sample = "host" if series == "host" else "sample"
        assert clock.did == (["sample"] * 2 if series == "latency" else ["host", sample, sample]), series
        own = [seconds for _, seconds in clock.hosted][:1]
        assert clock.host_seconds == {"latency": [0.0] * 2, "host": []}.get(series, own * 2), series
        if series in calls:
            assert clock.hosted[0][0] == calls[series], series
        elif series == "total":
            assert clock.hosted[0][0] not in calls.values()


def test_the_call_without_its_last_launch_is_a_series_where_there_are_several(monkeypatch):
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        "impls.cuda.runner.CompiledRunner.__call__",
        lambda self: called.append(tuple(launch.entry for launch in self.launches)),
    )
    session = Session(FakeClock())
    session.answer({"do": "open", **SHAPE})
    with pytest.raises(ValueError, match="joined-once has no series 'attend' here; it has latency, eager, host"):
        add(session, "JoinedOnce")
        session.answer({"do": "sample", "impl": source("JoinedOnce"), "series": "attend"})
    assert add(session, "Joined")["series"] == ("latency", "eager", "host", "attend")
    called.clear()
    session.answer({"do": "sample", "impl": source("Joined"), "series": "attend"})
    assert set(called) == {("attend", "attend")}


def test_one_that_takes_the_cache_as_it_is_has_no_conversion(session):
    added = add(session, "Plain")
    assert added["series"] == ("latency", "eager", "host")
    assert added["facts"]["cache_layout"] == "nvfp4"
    with pytest.raises(ValueError, match="plain has no series 'pack' here; it has latency, eager, host"):
        session.answer({"do": "sample", "impl": source("Plain"), "series": "pack"})


def test_a_wrong_output_is_told_with_its_numbers(session):
    numerics = add(session, "Wrong")["facts"]["numerics"]
    assert numerics["error_over_bound"] > 1
    assert "times its bound" in numerics["verdict"]


def test_a_refusal_is_a_refusal(session):
    with pytest.raises(Unsupported, match="it does not want to"):
        session.answer({"do": "add", "impl": f"{Path(__file__).with_name('hostile.py')}:Refuses"})


def test_a_sweep_writes_what_a_session_finds(tmp_path, monkeypatch):
    """Everything but the GPU: the plan, the processes, the requests, the checks, the record."""
    monkeypatch.setattr(sweep, "LATENCY_FUNCTION", "tests.benchmarks.fake_clock:serve")
    impls = {"plain": source("Plain"), "caches": source("Caches")}
    lines: list[str] = []
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        wanted = specs(impls, pattern="decode/*/d64/kv1024")
        assert sweep.sweep(wanted, Place("gpu", arch="sm_90a"), journal, report=lines.append) == []
    found = {cell.impl: cell for cell in read_journal(journal.path).cells}
    assert (found["caches"].status, found["caches"].how) == ("failed", "gpu")
    plain = found["plain"]
    assert (plain.status, plain.verdict) == ("ok", "ok")
    assert {name: len(taken) for name, taken in plain.series.items()} == {"latency": 20, "eager": 5, "host": 5}
    assert plain.clocks == {}
    assert plain.work["nvfp4_bytes"] == 8 * 1024 * 64 * 2 * 9 // 16
    assert "SM clocks are not recorded: this clock is made up." in lines


def test_requests_that_mean_nothing():
    session = Session(FakeClock())
    with pytest.raises(ValueError, match="a request is one of open, add, sample, not 'close'"):
        session.answer({"do": "close"})
    with pytest.raises(ValueError, match="no shape is open"):
        add(session, "Plain")


def test_negated_queries_have_another_reference_and_come_back():
    shape = Shape(TINY.problem(64, 128), torch.device("cpu"))
    before = shape.inputs.q.clone()
    shape.negate_queries()
    assert shape.overwritten() == ["q"]
    shape.negate_queries()
    assert torch.equal(shape.inputs.q, before)
    assert shape.overwritten() == []


def test_preparing_plans_for_an_architecture_that_is_not_here():
    request = {**SHAPE, "arch": "sm_90a"}
    assert prepare({**request, "impl": source("Plain")}) is None
    with pytest.raises(Unsupported, match="it does not want to"):
        prepare({**request, "impl": f"{Path(__file__).with_name('hostile.py')}:Refuses"})
