"""asv reads the files made from journals as its own: the same numbers, failures as failures, and nothing it stumbles over."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from asv.results import Results
from asv_runner.statistics import compute_stats

from benchmarks.asv_file import _write, asv_path, benchmark_list, result_file, sample_statistics, write_asv_files
from benchmarks.asv_machine import machine_fields
from benchmarks.asv_names import told_apart
from benchmarks.cells import workloads
from benchmarks.journal import JournalWriter, read_journal, read_results
from benchmarks.published import faults
from benchmarks.records import PROTOCOL, Cell, Run
from impls.errors import CommandError
from tests.benchmarks.records_made_up import (
    IMPL,
    environment,
    failed_cell,
    host_cell,
    numerics_cell,
    run,
    with_samples,
)

ROOT = Path(__file__).resolve().parent.parent.parent
CASE = str(workloads()["numerics"].axes[0].values[0])


def measured(results: Path, of: Run, *cells: Cell) -> Path:
    """The asv file of a journal with these cells."""
    with JournalWriter(results, of, resume=False) as journal:
        for cell in cells:
            journal.append(cell)
    assert write_asv_files(results, read_results(results)[0]) == []
    return asv_path(read_journal(journal.path))


def some_samples(count: int) -> list[float]:
    return [1e-3 * (1 + math.sin(7.0 * i) / 9) for i in range(count)]


@pytest.mark.parametrize("count", [1, 8, 10, 20, 101])
def test_statistics_are_asvs(count):
    taken = some_samples(count)
    median, wanted = compute_stats(taken, 1)
    found = sample_statistics(taken)
    assert statistics.median(taken) == pytest.approx(median)
    for key in ("ci_99_a", "ci_99_b", "q_25", "q_75"):
        assert found[key] == pytest.approx(wanted[key], rel=1e-4), key
    assert (found["number"], found["repeat"]) == (wanted["number"], wanted["repeat"])


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_few_samples_bound_nothing(count):
    """Where asv assumes a distribution, to have an interval: two samples would be enough to find one code faster."""
    found = sample_statistics(some_samples(count))
    assert (found["ci_99_a"], found["ci_99_b"]) == (-math.inf, math.inf)


def test_asv_loads_what_was_measured(tmp_path):
    cell = host_cell()
    path = measured(tmp_path, run(), cell, numerics_cell(CASE))
    loaded = Results.load(str(path), machine_name="cpu-x86_64")
    described = benchmark_list([IMPL])
    name = "host.TorchReferenceBf16.track_call"
    params = described[name]["params"]
    point = params[0].index("128") * len(params[1]) + params[1].index("1024")
    values = loaded.get_result_value(name, params)
    assert values[point] == pytest.approx(statistics.median(cell.series["call"]), rel=1e-4)
    assert all(math.isnan(value) for i, value in enumerate(values) if i != point)
    assert loaded.get_result_samples(name, params)[point] == list(cell.series["call"])
    assert loaded.get_result_stats(name, params)[point]["repeat"] == 20
    assert loaded.benchmark_version[name] == PROTOCOL
    name = "numerics.TorchReferenceBf16.track_relative_l2"
    assert loaded.get_result_value(name, described[name]["params"])[0] == 0.0012346
    assert loaded.commit_hash == run().commit
    assert loaded.env_name == "py3.11-torch2.13.0"


def test_a_failure_is_null_and_a_refusal_is_not_a_failure(tmp_path):
    path = measured(
        tmp_path,
        run(),
        host_cell(),
        failed_cell(f"host/{IMPL}/d64/kv1024", "crashed"),
        failed_cell(f"host/{IMPL}/d256/kv1024", "unsupported"),
    )
    params = benchmark_list([IMPL])["host.TorchReferenceBf16.track_call"]["params"]
    values = dict(
        zip(
            [(head_dim, kv_len) for head_dim in params[0] for kv_len in params[1]],
            Results.load(str(path)).get_result_value("host.TorchReferenceBf16.track_call", params),
            strict=True,
        )
    )
    assert values["64", "1024"] is None
    assert math.isnan(values["256", "1024"])
    assert math.isnan(values["64", "4096"])


def test_an_infinite_error_is_a_failure_and_not_infinity(tmp_path):
    """An Inf as a result makes `asv publish` run for ever."""
    path = measured(tmp_path, run(), numerics_cell(CASE, error_over_bound=math.inf, nan_count=1, verdict="NaN."))
    rows = json.loads(path.read_text())["results"]
    assert rows["numerics.TorchReferenceBf16.track_error_over_bound"][0][0] is None
    assert rows["numerics.TorchReferenceBf16.track_relative_l2"][0][0] == 0.0012346
    for row in rows.values():
        assert not any(isinstance(value, float) and math.isinf(value) for value in row[0] or [])


def test_series_without_any_number_are_left_out(tmp_path):
    path = measured(tmp_path, run(), host_cell(), failed_cell(f"decode/{IMPL}/d64/kv1024", "unsupported"))
    assert {name.split(".")[0] for name in json.loads(path.read_text())["results"]} == {"host"}


def test_an_implementation_from_outside_is_described_too(tmp_path):
    measured(tmp_path, run(), host_cell(impl="my-kernel"))
    assert "host.MyKernel.track_call" in json.loads((tmp_path / "benchmarks.json").read_text())


@pytest.mark.parametrize("other", ["torch.reference-bf16", "torch-reference.bf16"])
def test_an_implementation_that_asv_cannot_tell_from_another_is_said_and_left_out(other, tmp_path):
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        journal.append(with_samples(host_cell(), 1.0))
        journal.append(with_samples(host_cell(impl=other), 7.0))
    journals, _ = read_results(tmp_path)
    (note,) = write_asv_files(tmp_path, journals)
    assert note == f"asv would call {IMPL!r} and {other!r} both numerics.TorchReferenceBf16; rename one of the implementations."
    row = json.loads(asv_path(journals[0]).read_text())["results"]["host.TorchReferenceBf16.track_call"]
    assert 1.0 in row[0] and 7.0 not in row[0]
    assert faults(tmp_path, "0" * 64) == [note]


def test_a_workloads_name_at_the_end_of_an_implementations_is_told_apart():
    """The decode cells of one would have the names of the decode-b8 cells of the other."""
    apart, clashes = told_apart(["kernel", "kernel-b8", "kernel-c8"])
    assert apart == ["kernel", "kernel-c8"]
    assert clashes == ["asv would call 'kernel' and 'kernel-b8' both decode.KernelB8; rename one of the implementations."]


def test_a_name_without_a_letter_does_not_stop_the_others(tmp_path):
    path = measured(tmp_path, run(), host_cell(), host_cell(impl=".."))
    assert "host.TorchReferenceBf16.track_call" in json.loads(path.read_text())["results"]


def test_an_unknown_commit_is_said_and_not_handed_on(tmp_path):
    with JournalWriter(tmp_path, run(commit="unknown"), resume=False) as journal:
        journal.append(host_cell())
    (note,) = write_asv_files(tmp_path, read_results(tmp_path)[0])
    assert note == f"{journal.path} is not handed to asv, because its commit is unknown; `results adopt` gives it one."
    assert not asv_path(read_journal(journal.path)).exists()


def test_a_file_that_cannot_be_written_is_one_sentence_and_the_journal_stays(tmp_path):
    path = measured(tmp_path, run(), host_cell())
    path.unlink()
    path.mkdir()
    journals, _ = read_results(tmp_path)
    with pytest.raises(CommandError, match=r"^cannot write .*: Is a directory; the journals it is made from are complete\.$"):
        write_asv_files(tmp_path, journals)
    assert read_journal(journals[0].path).cells == (host_cell(),)
    assert not list(tmp_path.rglob("*.draft"))


def test_two_that_write_at_once_leave_whole_files(tmp_path):
    path = tmp_path / "benchmarks.json"
    contents = [{"name": letter * 200_000} for letter in "ab"]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: _write(path, contents[number % 2]), range(40)))
    assert json.loads(path.read_text()) in contents
    assert list(tmp_path.iterdir()) == [path]


def test_a_driver_or_toolchain_update_starts_no_new_machine():
    old = environment(device="NVIDIA H200", arch="sm_90a", driver="570.1", cuda="12.8", torch="2.11.0")
    new = environment(device="NVIDIA H200", arch="sm_90a", driver="580.2", cuda="13.0", torch="2.15.0", python="3.12.1")
    assert machine_fields("nvidia-h200", old) == machine_fields("nvidia-h200", new)
    assert all(isinstance(value, str) for value in machine_fields("nvidia-h200", new).values())
    assert machine_fields("cpu-x86_64", environment(device="CPU A")) == machine_fields(
        "cpu-x86_64", environment(device="CPU B")
    )


def test_equal_journals_make_equal_files(tmp_path):
    paths = [measured(tmp_path / name, run(), host_cell(), numerics_cell(CASE)) for name in ("a", "b")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> tuple[Path, list[str]]:
    """(a repository with asv's configuration and results at two commits, these commits)"""
    tree = tmp_path_factory.mktemp("history")
    (tree / "asv.conf.json").write_bytes((ROOT / "asv.conf.json").read_bytes())
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(tree)], check=True)
    commits = []
    for number, factor in enumerate((1.0, 2.0)):
        subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", str(number)], cwd=tree, check=True)
        commits.append(subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True).stdout.strip())
        taken = [1e-3 * factor + i * 1e-6 for i in range(20)]
        broken = {"error_over_bound": math.inf, "verdict": "NaN."} if number else {}
        cells = (
            with_samples(host_cell(), *taken),
            with_samples(host_cell(4096), *taken[:3]),
            failed_cell(f"host/{IMPL}/d64/kv1024", "failed" if number else "unsupported"),
            numerics_cell(CASE, **broken),
        )
        measured(tree / "results", run(commit=commits[-1]), *cells)
    return tree, commits


def asv(history: tuple[Path, list[str]], home: Path, *arguments: str) -> str:
    environment = {**os.environ, "HOME": str(home)}
    command = [sys.executable, "-m", "asv", *arguments]
    done = subprocess.run(command, cwd=history[0], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_asv_shows_them(history, tmp_path):
    shown = asv(history, tmp_path, "show", history[1][0], "--machine", "cpu-x86_64")
    assert "host.TorchReferenceBf16.track_call [cpu-x86_64/py3.11-torch2.13.0]" in shown
    assert "1.01±0ms" in shown


def test_asv_compares_them(history, tmp_path):
    compared = asv(history, tmp_path, "compare", *history[1])
    lines = {line.split("|")[-2].strip(): line for line in compared.splitlines() if line.startswith("| ")}
    slower = lines["host.TorchReferenceBf16.track_call(128, 1024)"]
    assert slower.split("|")[1].strip() == "+"
    assert "1.99" in slower
    assert lines["host.TorchReferenceBf16.track_call(64, 1024)"].split("|")[1].strip() == "!"
    assert lines[f"numerics.TorchReferenceBf16.track_error_over_bound('{CASE}')"].split("|")[1].strip() == "!"
    assert lines[f"numerics.TorchReferenceBf16.track_relative_l2('{CASE}')"].split("|")[1].strip() == ""


def test_asv_publishes_them(history, tmp_path):
    asv(history, tmp_path, "publish", "--html-dir", str(tmp_path / "html"))
    index = json.loads((tmp_path / "html" / "index.json").read_text())
    assert "host.TorchReferenceBf16.track_call" in index["benchmarks"]
    assert index["params"]["machine"] == ["cpu-x86_64"]
    assert len(index["revision_to_hash"]) == 2


def test_the_file_is_a_function_of_the_journal(history):
    journals, problems = read_results(history[0] / "results")
    assert problems == []
    for journal in journals:
        stored = json.loads(asv_path(journal).read_text())
        assert json.dumps(stored["results"]) == json.dumps(result_file(journal, [IMPL])["results"])
