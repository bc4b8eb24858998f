"""Candidates of one shape take turns in one process, and a fault costs the one that made it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import preparing, sweep, together
from benchmarks.cells import CellSpec, specs, workloads
from benchmarks.journal import JournalWriter, read_journal
from benchmarks.records import ON_REQUEST, SUITES, Cell
from benchmarks.sweep import SAG, TIMEOUT, Bench, Place, predicted_seconds, units, within
from benchmarks.together import PROGRESS_SECONDS, Together, samples_of
from benchmarks.work import flops
from impls.registry import why_not
from impls.worker import Reply, Worker
from tests.benchmarks.fake_latency import SAMPLES, SECONDS
from tests.benchmarks.records_made_up import run

GPU = Place("gpu", arch="sm_90a")
ONE_SHAPE = "decode/*/d64/kv1024"
Log = Callable[[], list[list[str]]]


@pytest.fixture
def log(tmp_path, monkeypatch) -> Log:
    """What the processes were asked: [[process id, request, ...]]."""
    path = tmp_path / "requests"
    monkeypatch.setenv("FAKE_LATENCY_LOG", str(path))
    monkeypatch.setattr(sweep, "LATENCY_FUNCTION", "tests.benchmarks.fake_latency:serve")
    monkeypatch.setattr(preparing, "FUNCTION", "tests.benchmarks.fake_latency:prepare")
    return lambda: [line.split() for line in path.read_text().splitlines()]


def swept(tmp_path: Path, impls: str, pattern: str = ONE_SHAPE, **options) -> tuple[dict[str, Cell], list[str]]:
    """({implementation: its cell}, the lines that were reported)"""
    lines: list[str] = []
    wanted = specs({name: name for name in impls.split()}, pattern=pattern)
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        sweep.sweep(wanted, GPU, journal, report=lines.append, **options)
    return {cell.impl: cell for cell in read_journal(journal.path).cells}, lines


def test_candidates_take_turns_and_have_all_their_samples(tmp_path, log):
    cells, lines = swept(tmp_path, "one two")
    for cell in cells.values():
        assert (cell.status, cell.how) == ("ok", "gpu")
        assert cell.series == {"latency": (SECONDS,) * SAMPLES, "host": (SECONDS,) * 5}
        assert cell.clocks == {"latency": (1980,) * SAMPLES}
        assert (cell.plan, cell.compile_seconds) == ({"splits": 4}, 1.0)
    taken = [words[2:] for words in log() if words[1] == "sample"]
    first = [["one", "latency"], ["one", "host"], ["two", "latency"], ["two", "host"]]
    later = [["one", "latency"], ["two", "latency"]]
    assert taken == 5 * (later + first)  # what has five samples of ten rounds takes every other one
    assert lines.count("SM clocks are made up.") == 1


@pytest.mark.parametrize(
    ("impl", "status", "sentence", "processes"),
    [
        ("crashes-in-add", "crashed", "the process died by SIGSEGV.", 2),
        ("crashes-in-sample", "crashed", "the process died by SIGSEGV.", 2),
        ("hangs-in-add", "timeout", "no answer within 2 s.", 2),
        ("hangs-in-sample", "timeout", "no answer within 2 s.", 2),
        ("faults-in-add", "failed", "RuntimeError: CUDA error: an illegal memory access was encountered", 2),
        ("faults-in-sample", "failed", "RuntimeError: CUDA error: an illegal memory access was encountered", 2),
        ("fills-in-add", "oom", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.", 1),
        ("fills-in-sample", "oom", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.", 2),
        ("raises-in-add", "failed", "RuntimeError: its graph replay leaves the output unwritten.", 1),
        ("refuses-in-add", "unsupported", "it does not want to.", 1),
    ],
)
def test_a_fault_costs_its_candidate_and_nobody_else(impl, status, sentence, processes, tmp_path, log):
    cells, _ = swept(tmp_path, f"before {impl} after", timeout=2.0)
    assert (cells[impl].status, cells[impl].sentence) == (status, sentence)
    for name in ("before", "after"):
        assert cells[name].status == "ok"
        assert len(cells[name].series["latency"]) == SAMPLES
    last = [words for words in log() if words[0] == log()[-1][0]]
    assert len({words[0] for words in log() if words[1] != "prepare"}) == processes
    for name in ("before", "after"):  # samples of a process that was lost do not count
        assert [words[2:] for words in last].count([name, "latency"]) == SAMPLES


def test_two_faults_cost_two_cells(tmp_path, log):
    cells, _ = swept(tmp_path, "crashes-in-sample one faults-in-add fills-in-add")
    assert {name: cell.status for name, cell in cells.items()} == {
        "crashes-in-sample": "crashed",
        "one": "ok",
        "faults-in-add": "failed",
        "fills-in-add": "oom",
    }


@pytest.mark.parametrize("impl", ["crowds-in-add", "crowds-in-sample"])
def test_what_finds_no_memory_beside_others_gets_a_turn_alone(impl, tmp_path, log):
    cells, lines = swept(tmp_path, f"before {impl} after")
    assert {cell.status for cell in cells.values()} == {"ok"}
    assert {len(cell.series["latency"]) for cell in cells.values()} == {SAMPLES}
    assert {name for name, cell in cells.items() if cell.apart} == {impl}
    assert impl in lines[-1]
    assert lines[-1].endswith(": timed after the others of its shape, beside which it found no memory")


def test_late_samples_are_counted_and_said(tmp_path, log):
    cells, lines = swept(tmp_path, "one is-late")
    assert (cells["one"].late, cells["is-late"].late) == ({}, {"latency": SAMPLES})
    (line,) = [line for line in lines if "decode/is-late/d64/kv1024" in line]
    assert line.endswith(f": late on the stream: {SAMPLES} of latency")


@pytest.mark.parametrize(("counts", "rounds"), [((20, 10, 5), 20), ((10, 5, 1), 10), ((5, 1), 5), ((7, 3), 7)])
def test_few_samples_are_spread_over_all_rounds(counts, rounds):
    for count in counts:
        turns = [number for number in range(rounds) if together._has_turn(number, count, rounds)]
        assert len(turns) == count
        gaps = [after - before for before, after in itertools.pairwise((-1, *turns))]
        assert max(gaps) - min(gaps) <= 1 and turns[-1] == rounds - 1


def test_data_that_cannot_be_made_is_told_of_every_cell_and_the_next_shape_goes_on(tmp_path, log):
    wanted = [*specs({"one": "one"}, pattern="decode/*/d64/kv32768"), *specs({"one": "one"}, pattern=ONE_SHAPE)]
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        assert sweep.sweep(wanted, GPU, journal) == []
    assert [(cell.status, cell.sentence) for cell in read_journal(journal.path).cells] == [
        ("oom", "MemoryError: no message"),
        ("ok", None),
    ]


def test_plans_are_prepared_before_anything_is_timed_and_may_fail(tmp_path, log):
    cells, lines = swept(tmp_path, "one raises-in-prepare crashes-in-prepare", "decode/*/d64/*")
    kinds = [words[1] for words in log()]
    assert kinds.count("prepare") == 3 * 4
    assert "prepare" not in kinds[kinds.index("open") :]
    assert ["prepare", "one", "decode", "64", "1024", "sm_90a"] in [words[1:] for words in log()]
    assert cells["raises-in-prepare"].status == "ok"
    assert lines[0].startswith("12 of 12 plans are prepared, after ")


def test_only_whole_shapes_that_fit_the_budget_are_prepared(tmp_path, log):
    wanted = specs({"one": "one", "two": "two"}, pattern="prefill/*/d128/*,prefill-long/*")
    shapes = units(wanted, GPU)
    assert [shape[0].values[1] for shape in shapes] == [8192, 131072, 32768, 1024]
    fitting = [shape for shape in shapes if shape[0].values[1] < 131072]
    budget = sum(predicted_seconds(spec, GPU) for shape in fitting for spec in shape) + 20.0
    assert within(budget, wanted, GPU) == [spec for shape in fitting for spec in shape]
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        assert sweep.sweep(wanted, GPU, journal, budget=budget) == shapes[1]
    prepared = sorted((words[2], words[5]) for words in log() if words[1] == "prepare")
    assert prepared == [(impl, kv_len) for impl in ("one", "two") for kv_len in ("1024", "32768", "8192")]


def test_a_shape_that_nobody_thought_would_fit_is_prepared_before_it_is_opened(tmp_path, log, monkeypatch):
    wanted = specs({"one": "one", "two": "two"}, pattern="decode/*/d64/*")
    monkeypatch.setattr(sweep, "predicted_seconds", lambda spec, place: 20.0)  # a second would have been enough
    assert len(within(60.0, wanted, GPU)) == 2
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        assert sweep.sweep(wanted, GPU, journal, budget=60.0) == []
    asked = [(words[1], words[4 if words[1] == "open" else 5]) for words in log() if words[1] in ("prepare", "open")]
    for kv_len in ("1024", "8192", "32768", "131072"):
        assert asked.count(("prepare", kv_len)) == 2
        assert ("prepare", kv_len) not in asked[asked.index(("open", kv_len)) :]


def test_a_shape_that_no_longer_fits_once_it_is_prepared_is_left(tmp_path, log, monkeypatch):
    wanted = specs({"one": "one", "two": "two"}, pattern="decode/*/d64/*")
    now = [0.0]

    def slowly(*given: Any, **named: Any) -> None:
        now[0] += 15.0

    monkeypatch.setattr(sweep, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(sweep, "prepare", slowly)
    monkeypatch.setattr(sweep, "predicted_seconds", lambda spec, place: 20.0)
    with JournalWriter(tmp_path, run(), resume=False) as journal:  # 15 + 40 seconds would do, 30 + 40 do not
        assert len(sweep.sweep(wanted, GPU, journal, budget=60.0)) == 6
    assert now == [30.0]


def test_no_other_process_is_there_while_a_shape_is_timed(tmp_path, log, monkeypatch):
    at_work: list[int] = []
    measure = Together.measure

    def watched(self: Together, of: list[CellSpec]) -> Iterator[Cell]:
        at_work.append(sum(worker.running for worker in bench._workers.values()))
        return measure(self, of)

    monkeypatch.setattr(Together, "measure", watched)
    impls = {"torch-reference-bf16": "torch-reference-bf16"}
    numerics, shape = specs(impls, pattern="numerics/*/decode"), specs(impls, pattern=ONE_SHAPE)
    with Bench(Place("gpu", arch="sm_90a")) as bench:
        list(bench.measure(numerics))
        assert [worker.running for worker in bench._workers.values()] == [True]
        list(bench.measure(shape))
    assert at_work == [0]


def test_long_calls_have_longer_limits(tmp_path, log, monkeypatch):
    limits: dict[str, float] = {}
    call = Worker.call

    def noting(self: Worker, request: dict[str, Any], *, timeout: float) -> Reply:
        limits[request.get("do", "prepare")] = timeout
        return call(self, request, timeout=timeout)

    monkeypatch.setattr(Worker, "call", noting)
    swept(tmp_path / "short", "one")
    assert (limits["open"], limits["add"], limits["sample"]) == (TIMEOUT, TIMEOUT, PROGRESS_SECONDS)
    longest = 8.0
    monkeypatch.setattr(together, "predicted_call", lambda problem: longest)
    swept(tmp_path / "long", "one")
    assert limits["open"] == TIMEOUT
    assert limits["add"] > max(TIMEOUT, 20 * longest)
    assert limits["sample"] > PROGRESS_SECONDS


def test_a_clock_that_is_lost_costs_the_clocks_and_no_sample(tmp_path, log):
    cells, _ = swept(tmp_path, "one loses-its-clock")
    assert cells["one"].clocks == {"latency": (1980,) * SAMPLES}
    lost = cells["loses-its-clock"]
    assert (lost.status, len(lost.series["latency"]), lost.clocks) == ("ok", SAMPLES, {})


def test_a_budget_that_is_over_leaves_shapes_that_resume_measures(tmp_path, log):
    impls = {name: name for name in ("one", "two")}
    wanted = specs(impls, pattern="decode/*/d64/*")
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        assert sweep.sweep(wanted, GPU, journal, budget=1e-9) == wanted
        shape = [spec for spec in wanted if spec.values == (64, 1024)]
        assert sweep.sweep(shape, GPU, journal) == []
    lines: list[str] = []
    with JournalWriter(tmp_path, run(), resume=True) as journal:
        assert sweep.sweep(wanted, GPU, journal, report=lines.append) == []
    assert lines[0] == "2 of 8 cells are in the journal already."
    asked = [words for words in log() if words[1:3] == ["open", "decode"]]
    assert sorted(words[4] for words in asked) == ["1024", "131072", "32768", "8192"]


def test_one_shape_is_one_unit_where_its_first_cell_stands():
    wanted = specs({"one": "one", "two": "two"}, [suite for suite in SUITES if suite not in ON_REQUEST], quick=True)
    found = units(wanted, GPU)
    suites = [unit[0].suite for unit in found]
    assert suites == sorted(suites, key=lambda suite: suite != "latency")  # processes of the others end only once
    for same in (True, False):
        heads = [unit[0] for unit in found if (unit[0].suite == "latency") is same]
        assert heads == sorted(heads, key=wanted.index)
    assert sorted(spec.id for unit in found for spec in unit) == sorted(spec.id for spec in wanted)
    for unit in found:
        timed = unit[0].suite == "latency"
        assert [spec.impl for spec in unit] == (["one", "two"] if timed else [unit[0].impl])
        assert len({(spec.workload.name, spec.values) for spec in unit}) == 1
    assert all(len(unit) == 1 for unit in units(wanted, Place("cpu", no_gpu="there is none.")))


def test_a_sagging_clock_is_said(tmp_path, log):
    cells, lines = swept(tmp_path, "one sags")
    assert SAG * 1980 > 1500
    assert median(cells["sags"].clocks["latency"]) == 1980
    (line,) = [line for line in lines if "decode/sags/d64/kv1024" in line]
    assert line.endswith(": the SM clock sagged to 1500 MHz or less in a quarter of latency, and was 1980 MHz at its highest")
    assert not any("sagged" in line for line in lines if "decode/one/" in line)


def test_predictions_come_from_the_problem():
    def predicted(cell: str) -> float:
        workload, dim, kv_len = cell.split("/")
        spec = CellSpec(workloads()[workload], "any", "any", (int(dim), int(kv_len)), False)
        return predicted_seconds(spec, GPU)

    assert predicted("decode/128/1024") == pytest.approx(0.5, abs=0.01)
    longest = workloads()["prefill-long"].problem(128, 131072)
    calls = 8 + 5 + 4 * 2  # while it is added; latency; eager, host, attend and total, one sample and a warm-up each
    assert predicted("prefill-long/128/131072") == pytest.approx(0.5 + calls * flops(longest) / 100e12, rel=0.01)
    assert predicted("decode-b32/128/32768") > predicted("decode/128/32768")


def test_what_an_implementation_refuses_is_predicted_to_take_no_time():
    on_hopper = Place("gpu", arch="sm_90a")
    problem = (512, 131072)
    assert why_not("sdpa-flash", workloads()["decode"].problem(*problem), "sm_90a")
    assert predicted_seconds(CellSpec(workloads()["decode"], "sdpa-flash", "sdpa-flash", problem, False), on_hopper) == 0
    assert predicted_seconds(CellSpec(workloads()["decode"], "triton", "triton", problem, False), on_hopper) > 0


def test_long_calls_have_one_sample_of_what_is_no_latency():
    assert [samples_of("latency", seconds) for seconds in (0.001, 0.05, 0.1, 3.0)] == [20, 10, 5, 5]
    assert [samples_of("eager", seconds) for seconds in (0.001, 0.05, 0.1, 3.0)] == [5, 5, 1, 1]
