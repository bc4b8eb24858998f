"""run, cell and results: what they do for a user, and one sentence with the right exit status for every wrong input."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import nvfp4bench
from benchmarks import commit, environment, here, sweep
from benchmarks.asv_file import asv_path
from benchmarks.candidate import Candidate
from benchmarks.cells import specs
from benchmarks.commands import cell as cell_command
from benchmarks.commands import results as results_command
from benchmarks.commands import run as run_command
from benchmarks.environment import GpuState
from benchmarks.journal import JournalWriter, read_results
from benchmarks.once import answer_check
from benchmarks.operations import implementation
from benchmarks.source import source_hash
from benchmarks.subjects import subject
from impls.arch import find
from impls.worker import Reply
from tests.benchmarks.checkout import Checkout
from tests.benchmarks.fake_clock import FakeClock
from tests.benchmarks.records_made_up import COMMIT, failed_cell, host_cell, run

ROOT = Path(__file__).resolve().parent.parent.parent
HOSTILE = Path(__file__).with_name("hostile.py")
REFUSES = f"{HOSTILE}:Refuses"


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    monkeypatch.setattr(environment, "gpu", lambda: GpuState(present=False, why_not="there is none."))
    monkeypatch.setattr(here, "gpu", lambda: GpuState(present=False, why_not="there is none."))


def nvfp4bench_main(*words: object) -> int:
    try:
        return nvfp4bench.main([str(word) for word in words])
    except SystemExit as end:  # argparse's own way out
        assert isinstance(end.code, int)
        return end.code


BAD_INPUT = {
    "unknown implementation": (
        ["run", "--impl", "fa9"],
        "unknown implementation 'fa9'; there are torch-reference-bf16, triton",
    ),
    "implementation twice": (["run", "--impl", "triton,triton"], "--impl names 'triton' twice."),
    "empty implementation": (["run", "--impl", "triton,"], "--impl takes names with commas between them, not 'triton,'."),
    "file that is not there": (["run", "--impl", "none.py:Kernel"], "there is no file none.py"),
    "class that is not there": (["run", "--impl", f"{HOSTILE}:Kernel"], "there is no Kernel in it"),
    "name that is no part of an id": (["run", "--impl", f"{HOSTILE}:Named"], "it calls itself 'a b/c', and a name is a letter"),
    "name that asv cannot tell": (
        ["run", "--impl", f"{HOSTILE}:Punctuated"],
        "asv would call 'torch-reference-bf16' and 'torch.reference-bf16' both numerics.TorchReferenceBf16;",
    ),
    "empty words": (["run", "--cell", "host/*", "--commit", ""], "an argument is empty"),
    "empty value": (["results", "check", "--results="], "an argument is empty"),
    "unknown suite": (
        ["run", "--suite", "speed"],
        "unknown suite 'speed'; there are latency, projection, layer, numerics, host, static, counters.",
    ),
    "unknown cell": (["run", "--cell", "nothing/*"], "no cell is called 'nothing/*'; ids read like"),
    "no quick cell": (["run", "--quick", "--cell", "decode-b8/*"], "no quick cell is called 'decode-b8/*'"),
    "budget of words": (["run", "--budget", "soon"], "a positive number of seconds is needed, not 'soon'"),
    "budget of nothing": (["run", "--budget", "0"], "a positive number of seconds is needed, not '0'"),
    "budget without end": (["run", "--budget", "inf"], "a positive number of seconds is needed, not 'inf'"),
    "quick and full": (["run", "--quick", "--full"], "not allowed with argument"),
    "unknown commit": (["run", "--commit", "no-such-branch"], "there is no commit 'no-such-branch' here; give its full hash"),
    "commit that is an option": (["run", "--commit=--all"], "there is no commit '--all' here"),
    "plan for an unknown commit": (["run", "--plan", "--commit", "no-such-branch"], "there is no commit 'no-such-branch' here"),
    "second glob unknown": (["run", "--cell", "host/*, nothing/*"], "no cell is called 'nothing/*'; ids read like"),
    "empty glob": (["run", "--cell", "host/*,"], "one of 'host/*,' is empty"),
    "option nobody knows": (["run", "--fast"], "unrecognized arguments: --fast"),
    "cell without id": (["cell"], "the following arguments are required: ID"),
    "cell that is not there": (["cell", "decode/triton/d100/kv1024"], "there is no cell 'decode/triton/d100/kv1024'"),
    "cell of a GPU, once": (["cell", "decode/triton/d128/kv1024", "--once"], "needs a GPU, and there is none."),
    "cell that is refused, once": (["cell", "host/refuses/d64/kv1024", "--once", "--impl", REFUSES], "it does not want to."),
    "cell of nobody": (["cell", "host/a5q:triton/d64/kv1024"], "unknown implementation 'a5q:triton'; there are"),
    "cell of a pair that is none": (["cell", "host/triton:a4q/d64/kv1024"], "triton has no other implementation inside"),
    "id that is none": (["cell", "host//d64"], "there is no cell 'host//d64'"),
    "once and check": (["cell", "host/refuses/d64/kv1024", "--once", "--check"], "not allowed with argument"),
    "results without action": (["results"], "the following arguments are required: ACTION"),
    "unknown action": (["results", "burn"], "invalid choice: 'burn'"),
    "no results, check": (["results", "check", "--results", "none"], "none is not a folder"),
    "no results, adopt": (["results", "adopt", "--results", "none"], "none is not a folder"),
    "no results, thin": (["results", "thin", "--results", "none"], "none is not a folder"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_sentence_and_status_2(name, capsys, tmp_path, monkeypatch):
    words, sentence = BAD_INPUT[name]
    monkeypatch.chdir(tmp_path)
    assert nvfp4bench_main(*words) == 2
    told = capsys.readouterr()
    last = told.err.strip().splitlines()[-1]
    assert sentence in last
    assert last.startswith("nvfp4bench")
    assert "Traceback" not in told.err
    assert list(tmp_path.iterdir()) == []


def test_results_that_are_a_file_are_one_sentence(tmp_path, capsys):
    (tmp_path / "results").write_text("")
    for plan in ((), ("--plan",)):
        words = ["run", "--impl", REFUSES, "--suite", "host", "--results", tmp_path / "results", *plan]
        assert nvfp4bench_main(*words) == 2
        assert capsys.readouterr().err.strip().endswith("results is not a folder; name another.")


def test_a_gpu_that_torch_cannot_use_is_said_and_the_cpu_only_asked_for(tmp_path, capsys, monkeypatch):
    broken = GpuState(present=True, why_not="the GPU cannot be used: its driver is too old.")
    for module in (environment, here):
        monkeypatch.setattr(module, "gpu", lambda: broken)
    words = ["run", "--impl", REFUSES, "--suite", "host", "--results", tmp_path]
    assert nvfp4bench_main(*words) == 2
    assert "its driver is too old. Repair that, or measure the CPU with --cpu." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert nvfp4bench_main(*words, "--cpu") == 0
    (journal,), _ = read_results(tmp_path)
    assert journal.run.machine.startswith("cpu-")


@pytest.fixture
def beside_a_gpu(monkeypatch):
    usable = GpuState(present=True, arch=find("sm_90a"), name="NVIDIA H200", driver="580.1", cuda="13.0")
    for module in (environment, here):
        monkeypatch.setattr(module, "gpu", lambda: usable)


def test_a_timed_run_beside_a_gpu_begins_with_its_ceilings(tmp_path, monkeypatch, beside_a_gpu):
    monkeypatch.setenv("FAKE_LATENCY_LOG", str(tmp_path / "requests"))
    monkeypatch.setattr(sweep, "LATENCY_FUNCTION", "tests.benchmarks.fake_latency:serve")
    monkeypatch.setattr(here, "measured_ceilings", lambda path: {"copy_bytes_per_s": 4.3e12, "cold_over_warm": 1.6})
    words = ["run", "--impl", REFUSES, "--cell", "[hd]*/d64/kv1024", "--results", tmp_path]
    assert nvfp4bench_main(*words) == 0
    (journal,), _ = read_results(tmp_path)
    assert journal.run.machine == "nvidia-h200"
    assert journal.run.ceilings == {"copy_bytes_per_s": 4.3e12, "cold_over_warm": 1.6}
    assert {cell.how for cell in journal.cells} == {"gpu"}
    assert {cell.id.split("/")[0]: cell.status for cell in journal.cells} == {
        "decode": "ok",
        "host": "skipped",
    }


def test_a_gpu_that_cannot_be_timed_is_one_sentence(tmp_path, monkeypatch, capsys, beside_a_gpu):
    """Here because torch finds none."""
    words = ["run", "--impl", REFUSES, "--cell", "decode/*/d64/kv1024", "--results", tmp_path]
    assert nvfp4bench_main(*words) == 2
    assert capsys.readouterr().err.startswith("nvfp4bench run: this GPU cannot be timed: ")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_measures_nothing(tmp_path, capsys):
    assert nvfp4bench_main("run", "--plan", "--full", "--impl", "triton", "--results", tmp_path / "results") == 0
    told = capsys.readouterr().out.splitlines()
    assert any(line.endswith("decode/triton/d128/kv131072") for line in told)
    assert all(float(line.split()[0]) >= 0 for line in told[:-1])
    assert "cells, about" in told[-1]
    assert not (tmp_path / "results").exists()


def test_a_plan_within_a_budget_says_what_is_over_it(tmp_path, capsys):
    assert nvfp4bench_main("run", "--plan", "--suite", "host", "--full", "--budget", "1.2", "--impl", REFUSES) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].endswith("host/refuses/d128/kv1024")
    assert told[-2].endswith("over the budget")
    assert told[-1].startswith("2 of 10 cells")


def test_run_counts_says_where_and_can_be_continued(tmp_path, capsys):
    words = ["run", "--impl", REFUSES, "--cell", "host/*/d64/*", "--results", tmp_path]
    assert nvfp4bench_main(*words) == 0
    (journal,), problems = read_results(tmp_path)
    assert problems == []
    told = capsys.readouterr().out.splitlines()
    assert told == ["2 cells: 2 unsupported.", str(journal.path)]
    assert [cell.id for cell in journal.cells] == ["host/refuses/d64/kv1024", "host/refuses/d64/kv4096"]
    assert nvfp4bench_main(*words, "--resume") == 0
    assert "2 of 2 cells are in the journal already." in capsys.readouterr().err


def test_resuming_measures_again_what_was_edited_since(tmp_path, capsys):
    file = tmp_path / "mine" / "mine.py"
    file.parent.mkdir()
    file.write_text(Path(HOSTILE).read_text())
    words = ["run", "--impl", f"{file}:Refuses", "--cell", "host/*/d64/*", "--results", tmp_path / "results"]
    assert nvfp4bench_main(*words) == 0
    file.with_name("notes.txt").write_text("which no source is")
    capsys.readouterr()
    assert nvfp4bench_main(*words, "--resume") == 0
    assert "2 of 2 cells are in the journal already." in capsys.readouterr().err
    file.write_text(file.read_text().replace("it does not want to.", "it still does not want to."))
    assert nvfp4bench_main(*words, "--resume", "--cell", "host/*/d64/kv1024") == 0
    told = capsys.readouterr().err
    assert "the file of refuses or one beside it was edited since its cells were measured" in told
    assert "already" not in told
    (journal,), _ = read_results(tmp_path / "results")
    (cell,) = journal.cells  # the other was not measured yet
    assert str(cell.sentence).endswith("it still does not want to.")


def test_the_recorded_command_names_no_folder(tmp_path):
    assert nvfp4bench_main("run", "--impl", REFUSES, "--cell", "host/*/d64/*", "--budget", "60", "--results", tmp_path) == 0
    (journal,), _ = read_results(tmp_path)
    assert journal.run.command == "nvfp4bench run --impl hostile.py:Refuses --cell 'host/*/d64/*' --budget 60"
    assert journal.run.source == source_hash()


def test_a_failed_cell_is_status_1_also_when_resumed(tmp_path, capsys):
    words = ["run", "--impl", f"{HOSTILE}:Raises", "--cell", "host/*/d64/kv1024", "--results", tmp_path]
    assert nvfp4bench_main(*words) == 1
    assert "1 cells: 1 failed." in capsys.readouterr().out
    assert nvfp4bench_main(*words, "--resume") == 1


def test_a_wrong_number_is_recorded_as_wrong_and_is_status_1(tmp_path, capsys):
    words = ["run", "--impl", f"{HOSTILE}:ReturnsNaN", "--cell", "numerics/*/decode", "--results", tmp_path]
    assert nvfp4bench_main(*words) == 1
    told = capsys.readouterr()
    assert told.out.startswith("1 cells: 1 wrong.")
    assert "numerics/nan/decode  wrong" in told.err
    assert "NaN" in told.err
    (journal,), problems = read_results(tmp_path)
    assert problems == []
    (cell,) = journal.cells
    assert cell.numerics is not None
    assert cell.numerics.error_over_bound == float("inf")
    assert cell.numerics.nan_count > 0
    assert "Infinity" not in journal.path.read_text()
    stored = json.loads(asv_path(journal).read_text())["results"]["numerics.Nan.track_error_over_bound"]
    assert None in stored[0]
    assert not any(isinstance(value, float) and value == value for value in stored[0])


def test_a_budget_leaves_cells_by_name(tmp_path, capsys):
    words = ["run", "--impl", REFUSES, "--cell", "host/*", "--results", tmp_path]
    assert nvfp4bench_main(*words, "--budget", "0.000001") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "10 cells are left, the first is host/refuses/d128/kv1024; the same command with --resume goes on."
    assert nvfp4bench_main(*words, "--resume") == 0


def test_results_for_another_commit(tmp_path):
    words = ["run", "--impl", REFUSES, "--cell", "host/*/d64/kv1024", "--results", tmp_path, "--commit", COMMIT]
    assert nvfp4bench_main(*words) == 0
    (journal,), _ = read_results(tmp_path)
    assert journal.run.commit == COMMIT
    assert journal.path.name.startswith(COMMIT[:8])


def test_results_for_a_commit_of_other_sources_are_refused(tmp_path, capsys, monkeypatch):
    tree = Checkout(tmp_path / "tree")
    other, same = tree.commit("impls/a.py", "a"), tree.commit("impls/a.py", "b")
    monkeypatch.setattr(commit, "ROOT", tree.folder)
    monkeypatch.setattr(run_command, "source_hash", lambda: source_hash(tree.folder))
    words = ["run", "--impl", REFUSES, "--cell", "host/*/d64/kv1024", "--results", tmp_path / "results", "--commit"]
    for name in (other, "HEAD~1"):
        for plan in ((), ("--plan",)):
            assert nvfp4bench_main(*words, name, *plan) == 2
            sentence = f"commit {other[:8]} has other sources than these; check it out, without changes, to measure it."
            assert capsys.readouterr().err == f"nvfp4bench run: {sentence}\n"
    assert not (tmp_path / "results").exists()
    for name in ("HEAD", same, tree.tag("new")):
        assert nvfp4bench_main(*words, name) == 0
    assert {journal.run.commit for journal in read_results(tmp_path / "results")[0]} == {same}


def test_a_cell_alone_prints_its_record(capsys):
    assert nvfp4bench_main("cell", "host/refuses/d64/kv1024", "--impl", REFUSES) == 2
    assert json.loads(capsys.readouterr().out)["status"] == "unsupported"
    assert nvfp4bench_main("cell", "host/raises/d64/kv1024", "--impl", f"{HOSTILE}:Raises") == 1
    assert json.loads(capsys.readouterr().out)["status"] == "failed"


@pytest.mark.parametrize("cell", ["host/torch-reference-bf16/d64/kv1024", "numerics/torch-reference-bf16/ragged"])
def test_a_cell_called_once_and_checked(cell, capsys):
    assert nvfp4bench_main("cell", cell, "--once") == 0
    assert capsys.readouterr().out.strip() == f"{cell}: called once, by way of torch."
    assert nvfp4bench_main("cell", cell, "--check") == 0


@pytest.mark.parametrize("name", ["dual-chunk:triton", "dual-chunk:hybrid-fp8", "triton+w4a16:fused"])
def test_an_id_names_its_implementation_and_triton_is_interpreted_to_check_it(name, monkeypatch, capsys):
    """Of pairs and layers that no list has, too: `run` records them."""
    asked = []

    class Child:
        def __init__(self, function, *, env):
            asked.append(env)

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return

        def call(self, request, *, timeout):
            asked.append(request)
            return Reply("failed", sentence="it is not asked here.")

    monkeypatch.setattr(cell_command, "Worker", Child)
    monkeypatch.setattr(cell_command, "_device", lambda spec, place: "cpu")
    cell = f"layer/{name}/llama-3-8b/kv8192" if "+" in name else f"host/{name}/d64/kv1024"
    assert nvfp4bench_main("cell", cell, "--check", "--cpu") == 1
    assert capsys.readouterr().err == f"{cell} failed: it is not asked here.\n"
    assert asked == [{"TRITON_INTERPRET": "1"}, {"id": cell, "impl": name, "source": name, "device": "cpu"}]


@pytest.mark.parametrize("cell", ["decode/torch-reference-bf16/d64/kv1024", "host/torch-reference-bf16/d64/kv1024"])
def test_a_cell_is_checked_on_the_data_of_a_sweep(cell):
    """And on its rows: the errors are the same to the last digit."""
    impl = "torch-reference-bf16"
    (spec,) = specs({impl: impl}, pattern=cell)
    on = subject(spec.workload.problem(*spec.values), torch.device("cpu"))
    recorded = Candidate(implementation(impl), on, FakeClock()).facts()["numerics"]
    found = answer_check({"id": cell, "impl": impl, "source": impl, "device": "cpu"})
    assert {**found["numerics"], "verdict": "pass"} == recorded
    assert found["kernels"] == () and found["why_wrong"] is None


def test_a_wrong_output_is_found_by_check(capsys):
    cell = "host/wrong/d64/kv1024"
    assert nvfp4bench_main("cell", cell, "--check", "--impl", f"{HOSTILE}:Wrong") == 1
    assert f"{cell} is wrong" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["quits-late", "raises-late"])
def test_an_implementation_that_ends_or_raises_is_not_right(name, capsys):
    """Ending the process with status 0 would otherwise be the status of the check."""
    source = f"{HOSTILE}:{name.title().replace('-', '')}"
    assert nvfp4bench_main("cell", f"host/{name}/d64/kv1024", "--check", "--impl", source) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"host/{name}/d64/kv1024 {'crashed' if name == 'quits-late' else 'failed'}: ")
    assert "Traceback" not in told and len(told.splitlines()) == 1


def test_an_implementation_that_raises_when_called_once_is_one_sentence(capsys):
    assert nvfp4bench_main("cell", "host/raises-late/d64/kv1024", "--once", "--impl", f"{HOSTILE}:RaisesLate") == 1
    assert capsys.readouterr().err == "host/raises-late/d64/kv1024 failed: KeyError: 'no such tile'\n"


@pytest.mark.parametrize("statement", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit(0)"])
def test_a_module_that_ends_its_process_does_not_end_the_command(statement, tmp_path, capsys):
    (tmp_path / "ends.py").write_text(f"import os, sys\n{statement}\n")
    assert nvfp4bench_main("run", "--impl", f"{tmp_path}/ends.py:Kernel", "--results", tmp_path / "results") == 2
    assert re.search(rf"cannot (use|load implementation) {tmp_path}/ends.py:Kernel: ", capsys.readouterr().err)
    assert not (tmp_path / "results").exists()


def test_results_check_adopt_thin(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(results_command, "committed_source", lambda commit: source_hash())  # there may be changes
    with JournalWriter(tmp_path, run(commit="unknown", source=source_hash()), resume=False) as journal:
        journal.append(host_cell())
        journal.append(failed_cell())
    assert nvfp4bench_main("results", "check", "--results", tmp_path) == 0
    assert nvfp4bench_main("results", "adopt", "--results", tmp_path) == 0
    assert "is now" in capsys.readouterr().out
    assert nvfp4bench_main("results", "check", "--results", tmp_path) == 0
    assert nvfp4bench_main("results", "thin", "--results", tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "there is nothing to do."
    next(tmp_path.rglob("*.jsonl")).write_text("nonsense\n")
    for action in ("check", "adopt", "thin"):
        assert nvfp4bench_main("results", action, "--results", tmp_path) == 1
        assert "the line is not JSON" in capsys.readouterr().out


def test_the_commit_adopts_nothing_that_was_measured_from_changes_to_it(tmp_path, capsys, monkeypatch):
    tree = Checkout(tmp_path / "tree")
    made = tree.commit("impls/a.py", "a")
    monkeypatch.setattr(commit, "ROOT", tree.folder)
    monkeypatch.setattr(results_command, "source_hash", lambda: source_hash(tree.folder))
    committed = source_hash(tree.folder)
    (tree.folder / "impls/a.py").write_text("changed")
    for machine, source in (("cpu-x86_64", committed), ("a-gpu", source_hash(tree.folder))):
        with JournalWriter(
            tmp_path / "results", run(commit="unknown", machine=machine, source=source), resume=False
        ) as journal:
            journal.append(host_cell())
    assert nvfp4bench_main("results", "adopt", "--results", tmp_path / "results") == 1
    assert f"it was measured from other sources than {made[:8]}'s." in capsys.readouterr().out
    found = {journal.run.machine: journal.run.commit for journal in read_results(tmp_path / "results")[0]}
    assert found == {"cpu-x86_64": made, "a-gpu": "unknown"}


def test_a_bad_journal_is_said_and_the_others_are_measured_checked_and_thinned(tmp_path, capsys):
    for number, bad in (("a", {"started": "yesterday"}), ("b", {"command": "nvfp4bench run --cell 'host/*"})):
        with JournalWriter(tmp_path, run(commit=number * 40), resume=False) as journal:
            journal.append(host_cell())
        text = journal.path.read_text()
        for name, value in bad.items():
            text = text.replace(json.dumps({name: getattr(run(), name)})[1:-1], json.dumps({name: value})[1:-1])
        journal.path.write_text(text)
    words = ["run", "--impl", REFUSES, "--cell", "host/*/d64/kv1024", "--results", tmp_path]
    assert nvfp4bench_main(*words) == 0
    assert f"{'a' * 8}-py3.11-torch2.13.0.cells.jsonl:1: started 'yesterday' is not a moment" in capsys.readouterr().err
    for action in ("check", "thin"):
        assert nvfp4bench_main("results", action, "--results", tmp_path) == 1
        assert capsys.readouterr().out.count("is not a moment") == 1


def test_the_tree_works_from_a_bare_copy(tmp_path):
    """Without git, and from another folder: the copy measures itself, and says that its commit is unknown."""
    copy = tmp_path / "copy"
    for name in ("impls", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name)
    shutil.copy(ROOT / "nvfp4bench.py", copy)
    command = [sys.executable, str(copy / "nvfp4bench.py"), "run", "--cpu", "--impl", REFUSES, "--cell", "host/*/d64/kv1024"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "its commit is unknown; `results adopt` gives it one" in done.stderr
    (journal,), _ = read_results(tmp_path / "results")
    assert (journal.run.commit, journal.run.source) == ("unknown", source_hash(copy))
