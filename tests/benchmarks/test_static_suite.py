"""The static suite: what kernels became, in a journal of a virtual machine, and from there in asv's files."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

import nvfp4bench
from benchmarks.asv_names import TRACKS, samples
from benchmarks.cells import workloads
from benchmarks.journal import Journal, read_results
from benchmarks.records import Cell, KernelRecord, from_json, to_json
from impls.arch import ARCHES
from tests.benchmarks.records_made_up import latency_cell
from tests.cuda.needs import needs_nvrtc

KERNELS = Path(__file__).with_name("static_kernels.py")
IMPLS = ",".join(f"{KERNELS}:{name}" for name in ("Tidy", "Broken"))
SMALL = KernelRecord(
    entry="merge",
    cubin="a" * 64,
    registers=40,
    spill_bytes=8,
    local_bytes=16,
    shared_bytes=1024,
    threads=128,
    warps_per_sm=32,
    instructions=500,
)
LARGE = dataclasses.replace(
    SMALL, entry="attend", registers=168, spill_bytes=4, local_bytes=8, shared_bytes=40960, instructions=3000
)


def static_cell(**changes: object) -> Cell:
    fields: dict[str, object] = {
        "id": "static-decode/triton/sm_90a/d128",
        "suite": "static",
        "how": "static:sm_90a",
        "status": "ok",
        "kernels": (LARGE, SMALL),
    }
    return Cell(**{**fields, **changes})  # type: ignore[arg-type]


def run(results: Path, *words: str) -> tuple[int, Journal]:
    arguments = ["--suite", "static", "--impl", IMPLS, "--cell", "static-decode/*/sm_90a/d*", "--results", str(results)]
    status = nvfp4bench.main(["run", *arguments, *words])
    (journal,), problems = read_results(results)
    assert not problems
    return status, journal


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, Journal]:
    results = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.sweep.usable_cores", lambda: 1)
        return results, *run(results)


@needs_nvrtc
def test_every_kernel_is_recorded_on_a_machine_that_is_none(measured):
    _, status, journal = measured
    assert status == 1  # one does not compile
    assert (journal.run.machine, journal.run.environment.arch, journal.run.environment.platform) == ("static", "cpu", "any")
    cells = {cell.id: cell for cell in journal.cells}
    assert {cell.how for cell in cells.values()} == {"static:sm_90a"}
    (kernel,) = cells["static-decode/tidy/sm_90a/d64"].kernels
    assert (kernel.entry, kernel.shared_bytes, kernel.threads, kernel.warps_per_sm) == ("tidy", 2112, 128, 64)
    assert kernel.registers > 0 and kernel.instructions > 0 == kernel.spill_bytes == kernel.local_bytes
    assert cells["static-decode/broken/sm_90a/d64"].status == "failed"
    assert "no kernel missing" in (cells["static-decode/broken/sm_90a/d64"].sentence or "")
    refused = cells["static-decode/tidy/sm_90a/d512"]
    assert (refused.status, refused.sentence) == ("unsupported", "wide heads are refused.")


@needs_nvrtc
def test_it_is_handed_to_asv(measured):
    results, _, journal = measured
    rows = json.loads(journal.path.with_name(journal.path.name.replace(".cells.jsonl", ".json")).read_text())["results"]
    place = list(workloads()["static-decode"].points()).index(("sm_90a", 64))
    (cell,) = (cell for cell in journal.cells if cell.id == "static-decode/tidy/sm_90a/d64")
    assert rows["static.TidyDecode.track_registers"][0][place] == cell.kernels[0].registers
    assert rows["static.TidyDecode.track_shared_bytes"][0][place] == 2112
    assert nvfp4bench.main(["results", "check", "--results", str(results)]) == 0


@needs_nvrtc
def test_what_was_compiled_is_not_compiled_again(measured, tmp_path, monkeypatch, capsys):
    shutil.copytree(measured[0], tmp_path / "results")
    monkeypatch.setattr("benchmarks.sweep.Inspector", None)
    status, journal = run(tmp_path / "results", "--resume")
    assert (status, journal.cells) == (1, measured[2].cells)


def test_without_a_disassembler_the_reason_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.inspection.disassembler", lambda processes: None)
    monkeypatch.setattr("benchmarks.sweep.Inspector", None)
    status, journal = run(tmp_path)
    assert status == 0
    assert {cell.status for cell in journal.cells} == {"skipped"}
    assert all((cell.sentence or "").startswith("there is no nvdisasm here") for cell in journal.cells)


@pytest.mark.parametrize(
    ("words", "compiled"),
    [
        ((), False),
        (("--cell", "*/triton/*"), False),
        (("--cell", "static-decode/triton/*"), True),
        (("--suite", "static"), True),
        (("--suite", "numerics,static"), True),
    ],
)
def test_compiling_for_minutes_is_asked_for(words, compiled, capsys):
    assert nvfp4bench.main(["run", "--cpu", "--plan", "--impl", "triton", *words]) == 0
    assert ("static-decode/triton" in capsys.readouterr().out) == compiled


@pytest.mark.parametrize("word", ["--once", "--check"])
def test_what_is_not_executed_cannot_be_checked(word, capsys):
    assert nvfp4bench.main(["cell", "static-decode/triton/sm_90a/d128", word]) == 2
    told = capsys.readouterr().err
    assert told.endswith("static-decode/triton/sm_90a/d128 is compiled and not executed here; leave --once and --check out.\n")
    assert told.count("\n") == 1


def test_a_call_is_as_large_as_its_largest_kernel_and_spills_what_all_spill():
    found = {track.name: samples(static_cell(), track) for track in TRACKS["static"]}
    assert found == {
        "registers": (168.0,),
        "spill_bytes": (12.0,),
        "local_bytes": (16.0,),
        "shared_bytes": (40960.0,),
        "instructions": (3500.0,),
    }


def test_every_architecture_is_a_parameter():
    axes = {axis.name: axis.values for axis in workloads()["static-prefill"].axes}
    assert axes["arch"] == tuple(ARCHES)


def test_a_static_cell_comes_back_from_json():
    assert from_json(json.loads(json.dumps(to_json(static_cell())))) == static_cell()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"how": "gpu"}, "static cells are not gpu"),
        ({"suite": "host"}, "host cells are not static:sm_90a"),
        ({"kernels": ()}, "is ok, so it needs a measurement"),
        ({"kernels": (), "series": {"latency": (1.0,)}}, "kernels are what an ok cell of static has"),
        ({"status": "failed", "sentence": "x."}, "needs a sentence and no measurement"),
    ],
)
def test_what_is_compiled_and_what_is_executed_are_told_apart(changes, words):
    with pytest.raises(ValueError, match=words):
        static_cell(**changes)


def test_kernels_of_what_was_executed_are_refused():
    with pytest.raises(ValueError, match="kernels are what an ok cell of static has"):
        dataclasses.replace(latency_cell(), kernels=(SMALL,))


@pytest.mark.parametrize("changes", [{"cubin": "x"}, {"registers": -1}, {"shared_bytes": 1.5}])
def test_a_kernel_that_cannot_be_is_refused(changes):
    with pytest.raises(ValueError, match="kernel merge"):
        dataclasses.replace(SMALL, **changes)
