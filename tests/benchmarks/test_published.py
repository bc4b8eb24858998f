"""Published results are sound, belong to the tree they lie in, and can be made smaller without changing what they say."""

from __future__ import annotations

import dataclasses
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest

from benchmarks import commit, published
from benchmarks.asv_file import asv_path, write_asv_files
from benchmarks.commit import current_commit
from benchmarks.journal import JournalError, JournalWriter, read_journal, read_results
from benchmarks.records import Cell, Run
from benchmarks.source import source_hash
from tests.benchmarks.checkout import Checkout
from tests.benchmarks.records_made_up import (
    failed_cell,
    host_cell,
    numerics_cell,
    run,
)

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = run().source
LOST = "deadbeef" * 5


def measured(results: Path, *cells: Cell, of: Run | None = None) -> Path:
    with JournalWriter(results, of or run(), resume=False) as journal:
        for cell in cells:
            journal.append(cell)
    write_asv_files(results, read_results(results)[0])
    return journal.path


def test_sound_results_have_no_faults(tmp_path):
    measured(tmp_path, host_cell(), failed_cell())
    assert published.faults(tmp_path, SOURCE) == []


def test_no_results_cannot_be_judged(tmp_path):
    with pytest.raises(JournalError, match=r"^there are no results in .*; `nvfp4bench run` makes some\.$"):
        published.faults(tmp_path, SOURCE)


def test_a_corrupt_and_a_torn_journal_are_faults(tmp_path):
    path = measured(tmp_path, host_cell(), failed_cell())
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert f"{path}:3: the last line is broken off and left out." in published.faults(tmp_path, SOURCE)
    path.write_bytes(whole.replace(b'"ok"', b'"fine"'))
    assert published.faults(tmp_path, SOURCE) == [f"{path}:2: cell {host_cell().id}: unknown status 'fine'."]


def test_other_sources_are_a_fault_of_the_newest_journal_only(tmp_path):
    measured(tmp_path, host_cell(), of=run(commit=LOST, source="1" * 64))
    newest = measured(tmp_path, host_cell(), of=run(started="2026-02-01T00:00:00Z"))
    assert published.faults(tmp_path, SOURCE) == []
    (fault,) = published.faults(tmp_path, "2" * 64)
    assert fault == f"{newest} was measured from other sources than these; `nvfp4bench run` measures them anew."


@pytest.mark.parametrize("name", ["result", "machine", "benchmarks"])
@pytest.mark.parametrize("how", ["changed", "missing", "nonsense"])
def test_asv_files_that_say_something_else_are_faults(tmp_path, name, how):
    journal = read_journal(measured(tmp_path, host_cell()))
    path = {
        "result": asv_path(journal),
        "machine": tmp_path / "cpu-x86_64" / "machine.json",
        "benchmarks": tmp_path / "benchmarks.json",
    }[name]
    if how == "changed":
        text = path.read_text()
        path.write_text(text.replace("0.00109", "0.00009").replace('"linux"', '"plan9"').replace('"seconds"', '"years"'))
        assert path.read_text() != text
    elif how == "missing":
        path.unlink()
    else:
        path.write_text("[")
    found = published.faults(tmp_path, SOURCE)
    assert found
    assert all(fault.startswith(str(path)) for fault in found)


@pytest.mark.parametrize("sentence", ["no such file: /home/someone/kernel.cubin.", 'File "/opt/x/y.py", line 3.'])
def test_a_path_of_this_host_is_a_fault(tmp_path, sentence):
    measured(tmp_path, host_cell(), failed_cell(sentence=sentence))
    (fault,) = published.faults(tmp_path, SOURCE)
    assert "names a path of this host: /" in fault


def test_ids_patterns_rates_and_links_are_no_paths_of_this_host(tmp_path):
    of = run(command="nvfp4bench run --cell 'host/*/d128/kv[0-9]/d64/kv1024'")
    measured(tmp_path, host_cell(), of=of)
    assert published.faults(tmp_path, SOURCE) == []
    measured(tmp_path, host_cell(), failed_cell(sentence="12 GB/s of 4/5, see https://example.org/a/b and impls/a/b."))
    assert published.faults(tmp_path, SOURCE) == []


def test_too_much_is_a_fault(tmp_path, monkeypatch):
    measured(tmp_path, host_cell())
    monkeypatch.setattr(published, "MAX_BYTES", 1000)
    (fault,) = published.faults(tmp_path, SOURCE)
    assert "`nvfp4bench results thin` makes it smaller" in fault


def test_other_sources_than_those_of_its_commit_are_a_fault(tmp_path, monkeypatch):
    tree = Checkout(tmp_path / "tree")
    monkeypatch.setattr(commit, "ROOT", tree.folder)
    made = tree.commit("impls/a.py", "a")
    other = tree.commit("impls/a.py", "b")
    source = source_hash(tree.folder)
    for name, machine in ((other, "a-gpu"), (LOST, "b-gpu"), ("unknown", "c-gpu")):
        measured(tmp_path / "results", host_cell(), of=run(commit=name, machine=machine, source=source))
    assert published.faults(tmp_path / "results", source) == []
    path = measured(tmp_path / "results", host_cell(), of=run(commit=made, source=source))
    (fault,) = published.faults(tmp_path / "results", source)
    assert fault == f"{path} was measured from other sources than its commit has; measure it anew."


def test_what_is_measured_from_an_edited_tree_is_sound_until_the_edits_are_gone(tmp_path, monkeypatch):
    tree = Checkout(tmp_path / "tree")
    monkeypatch.setattr(commit, "ROOT", tree.folder)
    head = tree.commit("impls/a.py", "a")
    committed = source_hash(tree.folder)
    (tree.folder / "impls/a.py").write_text("edited")
    edited = source_hash(tree.folder)
    assert edited != committed
    measured(tmp_path / "results", host_cell(), of=run(commit=head, source=edited))
    assert published.faults(tmp_path / "results", edited) == []
    assert "from other sources than its commit has" in published.faults(tmp_path / "results", committed)[0]


def test_adopt_gives_lost_results_of_these_sources_the_commit(tmp_path):
    lost = measured(tmp_path, host_cell(), of=run(commit=LOST))
    unknown = measured(tmp_path, host_cell(), of=run(commit="unknown", machine="a-gpu"))
    old_file = asv_path(read_journal(lost))
    head = current_commit()
    done, refused = published.adopt(tmp_path, head, SOURCE)
    assert (len(done), refused) == (2, [])
    journals, problems = read_results(tmp_path)
    assert problems == []
    assert {journal.run.commit for journal in journals} == {head}
    assert all(journal.cells == (host_cell(),) for journal in journals)
    assert not lost.exists()
    assert not unknown.exists()
    assert not old_file.exists()


def test_adopt_leaves_out_what_was_measured_from_something_else(tmp_path):
    measured(tmp_path, host_cell(4096), of=run(commit=LOST, source="1" * 64))
    measured(tmp_path, host_cell(), of=run(commit=LOST))
    published.adopt(tmp_path, current_commit(), SOURCE)
    (journal,) = read_results(tmp_path)[0]
    assert len(journal.path.read_text().splitlines()) == 2
    assert journal.cells == (host_cell(),)


def test_adopt_refuses_other_sources(tmp_path):
    path = measured(tmp_path, host_cell(), of=run(commit=LOST))
    before = path.read_bytes()
    done, refused = published.adopt(tmp_path, current_commit(), "1" * 64)
    assert done == []
    assert refused == [f"{path} cannot be adopted: it was measured from other sources than {current_commit()[:8]}'s."]
    assert path.read_bytes() == before


def test_adopt_leaves_results_of_this_history_where_they_are(tmp_path):
    path = measured(tmp_path, host_cell(), of=run(commit=current_commit()))
    assert published.adopt(tmp_path, current_commit(), SOURCE) == ([], [])
    assert path.exists()


def test_adopt_does_not_overwrite_the_commits_own_results(tmp_path):
    measured(tmp_path, host_cell(), of=run(commit=LOST))
    own = measured(tmp_path, numerics_cell("causal"), of=run(commit=current_commit()))
    before = own.read_bytes()
    done, (refusal,) = published.adopt(tmp_path, current_commit(), SOURCE)
    assert done == []
    assert "is there already" in refusal
    assert own.read_bytes() == before


def test_thin_keeps_the_median_and_the_quartiles():
    cell = host_cell()
    thinned = published.thinned_cell(dataclasses.replace(cell, clocks={"call": (1980,) * 20}))
    for name, taken in cell.series.items():
        left = thinned.series[name]
        assert len(left) == 5
        assert (left[0], left[-1]) == (min(taken), max(taken))
        assert statistics.quantiles(left, n=4, method="inclusive") == statistics.quantiles(taken, n=4, method="inclusive")
    assert thinned.taken == {name: len(taken) for name, taken in cell.series.items()}
    assert thinned.clocks == {}
    assert published.thinned_cell(thinned) == thinned


def test_thin_spares_the_newest_and_the_newest_full_run_of_each_machine(tmp_path):
    def journal(commit: str, day: int, **changes) -> Path:
        of = run(commit=commit * 40, started=f"2026-01-{day:02}T00:00:00Z", **changes)
        return measured(tmp_path, host_cell(), numerics_cell("causal"), failed_cell(), of=of)

    old = journal("a", 1, command="nvfp4bench run --full")
    full = journal("b", 2, command="nvfp4bench run --full")
    with JournalWriter(tmp_path, run(commit="b" * 40, started="2026-01-02T01:00:00Z"), resume=True):
        pass  # it is full also after another call that went on with it
    quick = journal("c", 3)
    newest = journal("d", 4)
    other = journal("a", 1, machine="a-gpu")
    kept = {path: path.read_bytes() for path in (full, newest, other)}
    done, refused = published.thin(tmp_path)
    assert refused == []
    assert [sentence.split(":")[0] for sentence in done] == [str(old), str(quick)]
    assert {path: path.read_bytes() for path in kept} == kept
    for path in (old, quick):
        host, case, failed = read_journal(path).cells
        assert {len(taken) for taken in host.series.values()} == {5}
        assert (case, failed) == (numerics_cell("causal"), failed_cell())
    assert published.thin(tmp_path) == ([], [])


def test_a_command_that_no_shell_reads_is_no_full_run(tmp_path):
    path = measured(tmp_path, host_cell(), of=run(command="nvfp4bench run --full --cell 'host/*"))
    measured(tmp_path, host_cell(), of=run(commit="b" * 40, started="2026-02-01T00:00:00Z"))
    (done,), refused = published.thin(tmp_path)
    assert done.startswith(f"{path}: ") and refused == []


def test_thinned_results_are_sound(tmp_path):
    measured(tmp_path, host_cell(), of=run(commit=LOST))
    measured(tmp_path, host_cell(), of=run(started="2026-02-01T00:00:00Z"))
    published.thin(tmp_path)
    write_asv_files(tmp_path, read_results(tmp_path)[0])
    assert published.faults(tmp_path, SOURCE) == []


def test_a_visitors_runs_stay_out_of_the_tree_until_a_line_publishes_them(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    results = tmp_path / "results"
    results.mkdir()
    shutil.copy(ROOT / "results" / ".gitignore", results)
    measured(results, host_cell())
    measured(results, host_cell(), of=run(machine="nvidia-b200"))

    def visible() -> set[str]:
        command = ["git", "ls-files", "--others", "--exclude-standard", "results"]
        listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        return {line.split("/")[1] for line in listed.splitlines()} - {"benchmarks.json"}  # came with the first machine

    assert visible() == {".gitignore"}
    with (results / ".gitignore").open("a") as file:
        file.write("!/nvidia-b200/*\n")
    assert visible() == {".gitignore", "nvidia-b200"}
