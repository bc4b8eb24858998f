"""A sweep loses one cell to whatever goes wrong, says what went wrong, and can be continued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import sweep as sweep_module
from benchmarks.cells import find, specs
from benchmarks.journal import JournalWriter, read_journal, read_results
from benchmarks.outcome import FOLDERS
from benchmarks.sweep import Place, sweep, within
from tests.benchmarks.records_made_up import run

ROOT = Path(__file__).resolve().parent.parent.parent
HOSTILE = Path(__file__).with_name("hostile.py")
CPU = Place("cpu", no_gpu="there is none.")


def hostile_impls(*classes: str) -> dict[str, str]:
    from impls.registry import implementation

    sources = [f"{HOSTILE}:{name}" for name in classes]
    return {implementation(source).name: source for source in sources}


def swept(tmp_path: Path, impls: dict[str, str], pattern: str, **options):
    """({cell id: cell}, the lines that were reported)"""
    lines: list[str] = []
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        sweep(specs(impls, pattern=pattern), CPU, journal, report=lines.append, **options)
    return {cell.id: cell for cell in read_journal(journal.path).cells}, lines


def test_each_fault_becomes_the_status_and_sentence_of_its_cell(tmp_path):
    classes = ("Crashes", "Raises", "Quits", "OutOfMemory", "Refuses", "NoPlan")
    cells, lines = swept(tmp_path, hostile_impls(*classes), "host/*/d64/kv1024")
    found = {cell.impl: (cell.status, cell.sentence) for cell in cells.values()}
    assert found == {
        "crashes": ("crashed", "the process died by SIGSEGV."),
        "raises": ("failed", "RuntimeError: no kernel in attention.cubin"),
        "quits": ("crashed", "the process exited with status 0 before it answered."),
        "out-of-memory": ("oom", "MemoryError: no message"),
        "refuses": ("unsupported", "its host costs are not measured on a CPU: it does not want to."),
        "no-plan": (
            "failed",
            "what it measured is no record: cell host/no-plan/d64/kv1024: plan holds whole numbers and words only.",
        ),
    }
    assert len(lines) == len(classes)


def test_a_cell_that_no_journal_can_hold_does_not_end_the_sweep(tmp_path):
    cells, _ = swept(tmp_path, hostile_impls("Talks", "Refuses"), "host/*/d64/kv1024")
    talks, refuses = cells.values()
    assert talks.status == "failed"
    assert talks.sentence is not None
    assert "is longer than a journal's line may be" in talks.sentence
    assert refuses.status == "unsupported"


def test_a_long_reason_is_cut(tmp_path):
    cells, _ = swept(tmp_path, hostile_impls("Explains"), "host/*/d64/kv1024")
    (cell,) = cells.values()
    assert cell.sentence is not None
    assert len(cell.sentence) == 1000


def test_a_reason_of_which_nothing_may_be_told_does_not_end_the_sweep(tmp_path):
    cells, _ = swept(tmp_path, hostile_impls("Mumbles", "Refuses"), "host/*/d64/kv1024")
    mumbles, refuses = cells.values()
    assert (mumbles.status, mumbles.sentence) == ("unsupported", "no reason was given.")
    assert refuses.status == "unsupported"


def test_a_hang_costs_its_time_limit_and_its_cell(tmp_path):
    cells, _ = swept(tmp_path, hostile_impls("Hangs", "Refuses"), "host/*/d64/kv1024", timeout=3)
    assert next((cell.status, cell.sentence) for cell in cells.values()) == ("timeout", "no answer within 3 s.")
    assert [cell.status for cell in cells.values()] == ["timeout", "unsupported"]


def test_a_crash_costs_one_cell_of_its_implementation(tmp_path):
    cells, _ = swept(tmp_path, hostile_impls("Crashes", "Refuses"), "host/*/d64/*")
    assert [cell.status for cell in cells.values()] == ["crashed", "unsupported"] * 2


def test_host_costs_have_every_series_and_enough_samples(tmp_path):
    cells, _ = swept(tmp_path, {"torch-reference-bf16": "torch-reference-bf16"}, "host/*/d64/kv1024")
    (cell,) = cells.values()
    assert set(cell.series) == {"plan", "pack", "bind", "call"}
    assert all(len(taken) in (5, 10, 20) for taken in cell.series.values())
    assert cell.compile_seconds is not None
    assert cell.prepare_seconds is not None
    # a call computes 8 heads over 1024 tokens of 64 dims, a plan fills in a few fields
    assert min(cell.series["call"]) > max(cell.series["plan"])


def test_latency_without_a_gpu_is_unsupported(tmp_path):
    cells, lines = swept(tmp_path, {"triton": "triton"}, "decode/*/d128/*")
    assert {cell.status for cell in cells.values()} == {"unsupported"}
    assert {cell.sentence for cell in cells.values()} == {"latency is measured on a GPU, and there is none."}
    assert {cell.how for cell in cells.values()} == {"gpu"}
    assert lines[-1] == "3 more cells cannot be measured here, for the reasons above."


def test_a_budget_that_is_over_leaves_the_rest_by_name(tmp_path):
    wanted = specs(hostile_impls("Refuses"), pattern="host/*")
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        assert sweep(wanted, CPU, journal, budget=0.0) == wanted
        assert sweep(wanted, CPU, journal, budget=1e6) == []
    assert len(read_journal(journal.path).cells) == len(wanted)


def test_a_plan_within_a_budget_is_a_beginning_of_it_and_never_empty():
    wanted = specs({"torch-reference-bf16": ""}, pattern="host/*")
    assert within(1e-9, wanted, CPU) == wanted[:1]
    assert within(1.0, wanted, CPU) == wanted[:2]
    assert within(1e6, wanted, CPU) == wanted


def test_what_is_predicted_to_outlast_the_budget_is_left_but_the_first_is_measured(tmp_path, monkeypatch):
    wanted = specs(hostile_impls("Refuses"), pattern="host/*/d64/*")
    assert [spec.values[1] for spec in wanted] == [1024, 4096]
    monkeypatch.setattr(sweep_module, "predicted_seconds", lambda spec, place: 1000.0)
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        assert sweep(wanted, CPU, journal, budget=60.0) == wanted[1:]
        assert sweep(wanted, CPU, journal, budget=60.0) == []


def test_a_cell_too_long_for_the_budget_does_not_hold_up_shorter_ones(tmp_path, monkeypatch):
    wanted = specs(hostile_impls("Refuses"), pattern="host/*/kv1024")
    seconds = {spec.id: 1000.0 if spec is wanted[1] else 0.1 for spec in wanted}
    monkeypatch.setattr(sweep_module, "predicted_seconds", lambda spec, place: seconds[spec.id])
    assert within(60.0, wanted, CPU) == [wanted[0], *wanted[2:]]
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        assert sweep(wanted, CPU, journal, budget=60.0) == [wanted[1]]


def test_kill_9_in_the_middle_loses_one_cell_and_resume_finishes(tmp_path):
    hold, results = tmp_path / "hold", tmp_path / "results"
    hold.touch()
    command = [sys.executable, str(ROOT / "nvfp4bench.py"), "run", "--cpu", "--cell", "host/waits/*/kv1024"]
    command += ["--impl", f"{HOSTILE}:Waits", "--results", str(results)]
    environment = {**os.environ, "HOLD": str(hold)}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        reported = [first.stderr.readline() for _ in range(3)]
        time.sleep(0.3)  # the fourth cell has begun
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert first.returncode == -signal.SIGKILL
    assert [line.split()[1] for line in reported] == [f"host/waits/d{dim}/kv1024" for dim in (128, 64, 192)]
    (journal,), problems = read_results(results)
    assert problems == []
    assert len(journal.cells) == 3

    hold.unlink()
    done = subprocess.run([*command, "--resume"], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "3 of 5 cells are in the journal already." in done.stderr
    (finished,), _ = read_results(results)
    assert finished.cells[:3] == journal.cells
    assert len(finished.cells) == 5
    assert len(finished.path.read_text().splitlines()) == 2 + 5  # each call has its run


def test_interrupt_keeps_what_was_measured(tmp_path):
    hold, results = tmp_path / "hold", tmp_path / "results"
    hold.touch()
    command = [sys.executable, str(ROOT / "nvfp4bench.py"), "run", "--cpu", "--cell", "host/waits/*/kv1024"]
    command += ["--impl", f"{HOSTILE}:Waits", "--results", str(results)]
    with subprocess.Popen(
        command, env={**os.environ, "HOLD": str(hold)}, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for _ in range(3):
            process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in said
    assert "--resume goes on from there" in said
    assert "Traceback" not in said
    (journal,), _ = read_results(results)
    assert len(journal.cells) == 3


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("cannot open /home/me/.cache/x/kernel.cubin: no", "cannot open kernel.cubin: no"),
        ('File "/usr/lib/python3.11/a.py", line 3', 'File "a.py", line 3'),
        (
            "no cell is called 'decode/*/d128/*' or '*/t[a-z]/d64/kv1'",
            "no cell is called 'decode/*/d128/*' or '*/t[a-z]/d64/kv1'",
        ),
        ("see https://example.org/a/b and a/b/c, 3/4 of it", "see https://example.org/a/b and a/b/c, 3/4 of it"),
    ],
)
def test_sentences_name_no_folder_of_this_host(sentence, told):
    assert FOLDERS.sub("", sentence) == told


def test_find_takes_exactly_one_cell():
    spec = find("host/triton/d128/kv1024", {"triton": "triton"})
    assert (spec.id, spec.values) == ("host/triton/d128/kv1024", (128, 1024))
    with pytest.raises(ValueError, match="there is no cell 'host/triton/d128/\\*'"):
        find("host/triton/d128/*", {"triton": "triton"})
