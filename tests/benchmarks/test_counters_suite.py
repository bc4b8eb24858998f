"""The counters suite: what emulated kernels did, in a journal of a virtual machine, and from there in asv's files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import nvfp4bench
from benchmarks.asv_names import TRACKS, samples
from benchmarks.cells import COUNTED_ON, SHAPES, workloads
from benchmarks.counting import exact_inputs, problem_of
from benchmarks.journal import Journal, read_results
from benchmarks.records import Cell, CounterRecord, from_json, to_json
from impls.nvfp4 import decode
from tests.cuda.needs import needs_nvrtc

KERNELS = Path(__file__).with_name("counted_kernels.py")
IMPLS = ",".join(f"{KERNELS}:{name}" for name in ("Twice", "Outside"))
DONE = CounterRecord(
    entry="attend",
    ptx="a" * 64,
    blocks=8,
    executed=1000,
    global_bytes=4096,
    global_requests=32,
    sectors=128,
    dram_bytes=2048,
    shared_bytes=1024,
    wavefronts=20,
    ideal_wavefronts=10,
    barriers=3,
    divergent_branches=1,
    classes={"integer": 900, "special function": 100},
    mma={},
    work={"issue": 3200.0, "dram": 2048.0, "xu": 0.5},
)


def counted_cell(**changes: object) -> Cell:
    fields: dict[str, object] = {
        "id": "counters-decode/triton/sm_120a/d128",
        "suite": "counters",
        "how": "emulated:sm_120a",
        "status": "ok",
        "counters": (DONE, dataclasses.replace(DONE, entry="merge", executed=10, sectors=2)),
        "rules": {"sectors of a request": "documented only"},
    }
    return Cell(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, Journal]:
    results = tmp_path_factory.mktemp("results")
    arguments = ["--suite", "counters", "--impl", IMPLS, "--cell", "counters-decode/*/sm_120a/d*", "--results", str(results)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.sweep.usable_cores", lambda: 1)
        status = nvfp4bench.main(["run", *arguments])
    (journal,), problems = read_results(results)
    assert not problems
    return results, status, journal


@needs_nvrtc
def test_every_launch_is_counted_on_a_machine_that_is_none(measured):
    _, status, journal = measured
    assert status == 1  # one is at fault
    assert (journal.run.machine, journal.run.environment.arch, journal.run.environment.platform) == ("emulated", "cpu", "any")
    cells = {cell.id: cell for cell in journal.cells}
    assert {cell.how for cell in cells.values()} == {"emulated:sm_120a"}
    first, second = cells["counters-decode/twice/sm_120a/d64"].counters
    # 3 blocks of one warp: 32 floats in and out, a request and 4 sectors each; every second word of shared memory, twice
    assert (first.entry, first.blocks, first.global_requests, first.global_bytes) == ("counted", 3, 6, 6 * 128)
    assert (first.sectors, first.shared_bytes, first.wavefronts, first.ideal_wavefronts) == (24, 6 * 128, 12, 6)
    assert (first.classes["special function"], first.classes["barrier"], first.mma) == (3, 3, {})
    assert sum(first.classes.values()) == first.executed
    assert first.barriers == 3
    assert first.work["xu"] == 3 * 32
    assert dataclasses.replace(second, dram_bytes=first.dram_bytes, work=first.work) == first


@needs_nvrtc
def test_what_an_earlier_launch_has_touched_need_not_come_from_dram(measured):
    (cell,) = (cell for cell in measured[2].cells if cell.id == "counters-decode/twice/sm_120a/d64")
    assert [one.dram_bytes for one in cell.counters] == [3 * 128, 0]


@needs_nvrtc
def test_a_fault_of_a_kernel_and_a_refusal_are_told_apart(measured):
    cells = {cell.id: cell for cell in measured[2].cells}
    wrong = cells["counters-decode/outside/sm_120a/d64"]
    assert wrong.status == "failed" and "shared memory" in (wrong.sentence or "")
    refused = cells["counters-decode/twice/sm_120a/d512"]
    assert (refused.status, refused.sentence) == ("unsupported", "wide heads are refused.")


@needs_nvrtc
def test_the_rules_it_rests_on_are_recorded(measured):
    (cell,) = (cell for cell in measured[2].cells if cell.id == "counters-decode/twice/sm_120a/d64")
    assert cell.rules["banks of shared memory"] == cell.rules["causality order"] == "documented only"
    assert set(cell.rules.values()) <= {"silicon", "independent compiler", "documented only"}


@needs_nvrtc
def test_it_is_handed_to_asv(measured):
    results, _, journal = measured
    rows = json.loads(journal.path.with_name(journal.path.name.replace(".cells.jsonl", ".json")).read_text())["results"]
    place = list(workloads()["counters-decode"].points()).index(("sm_120a", 64))
    assert rows["counters.TwiceDecode.track_sectors"][0][place] == 48
    assert rows["counters.OutsideDecode.track_sectors"][0][place] is None
    assert nvfp4bench.main(["results", "check", "--results", str(results)]) == 0


@pytest.mark.parametrize(
    ("words", "counted"),
    [
        ((), False),
        (("--cell", "*/triton/*"), False),
        (("--cell", "counters-decode/triton/*"), True),
        (("--suite", "counters"), True),
    ],
)
def test_emulating_for_minutes_is_asked_for(words, counted, capsys):
    assert nvfp4bench.main(["run", "--cpu", "--plan", "--impl", "triton", *words]) == 0
    told = capsys.readouterr().out
    assert ("counters-decode/triton" in told) == counted == ("emulated by one core" in told)


def test_a_call_did_what_its_launches_did_together():
    found = {track.name: samples(counted_cell(), track) for track in TRACKS["counters"]}
    assert found == {
        "executed": (1010.0,),
        "sectors": (130.0,),
        "wavefronts": (40.0,),
        "dram_bytes": (4096.0,),
        "barriers": (6.0,),
        "divergent_branches": (2.0,),
    }


def test_the_architecture_is_a_parameter_and_the_four_that_are_emulated_have_cells():
    workload = workloads()["counters-prefill"]
    assert {axis.name: axis.values for axis in workload.axes}["arch"] == COUNTED_ON
    assert workload.done_by(["torch-reference-bf16", "a4q", "a4q-q16", "triton", "mine"]) == ["a4q", "triton", "mine"]


def test_counters_come_back_from_json():
    assert from_json(json.loads(json.dumps(to_json(counted_cell())))) == counted_cell()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"how": "gpu"}, "counters cells are not gpu"),
        ({"counters": (), "rules": {}}, "is ok, so it needs a measurement"),
        ({"counters": (), "rules": {}, "series": {"latency": (1.0,)}}, "counters are what an ok cell of counters has"),
        ({"suite": "numerics"}, "counters are what an ok cell of counters has"),
        ({"counters": (), "status": "failed", "sentence": "x."}, "rules are what counters rest on"),
        ({"rules": {"sectors of a request": "certain"}}, "rules are what counters rest on"),
    ],
)
def test_what_is_counted_and_what_is_measured_are_told_apart(changes, words):
    with pytest.raises(ValueError, match=words):
        counted_cell(**changes)


@pytest.mark.parametrize("changes", [{"ptx": "x"}, {"sectors": -1}, {"wavefronts": 1.5}, {"classes": {"integer": -1}}])
def test_counters_that_cannot_be_are_refused(changes):
    with pytest.raises(ValueError, match="counters of attend"):
        dataclasses.replace(DONE, **changes)


@pytest.mark.parametrize("kind", SHAPES)
def test_operands_are_of_standard_normal_size_and_exact(kind):
    """No operand is rounded on its way, so no host can have another."""
    inputs = exact_inputs(problem_of(kind, 64))
    caches = [decode(cache).double() * cache.global_scale for cache in (inputs.k4, inputs.v4)]
    for values in (inputs.q.double(), *caches):
        assert 0.8 < float(values.square().mean().sqrt()) < 1.3
    assert set((inputs.q.double() * 64 % 1).unique().tolist()) == {0.0}
    assert set(inputs.k4.scales.double().unique().tolist()) == {2.0, 4.0}
