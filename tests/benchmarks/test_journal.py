"""A journal loses at most the record that was being written, whatever happens to the process or the disk."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.journal import (
    JournalError,
    JournalWriter,
    journal_path,
    read_journal,
    read_results,
    rewrite,
)
from benchmarks.records import Run
from tests.benchmarks.records_made_up import (
    OTHER_COMMIT,
    environment,
    failed_cell,
    host_cell,
    numerics_cell,
    run,
)

ROOT = Path(__file__).resolve().parent.parent.parent


def written(results: Path, *cells, of: Run | None = None, resume: bool = False) -> Path:
    with JournalWriter(results, of or run(), resume=resume) as journal:
        for cell in cells:
            journal.append(cell)
    return journal.path


def test_what_is_written_is_read(tmp_path):
    cells = (host_cell(), numerics_cell("causal", error_over_bound=float("inf"), nan_count=3, verdict="NaN."), failed_cell())
    journal = read_journal(written(tmp_path, *cells))
    assert journal.run == run()
    assert journal.cells == cells
    assert journal.problems == ()


def test_path_says_machine_commit_and_toolchain(tmp_path):
    of = run(environment=environment(torch="2.13.0+cpu", triton="3.9.0"))
    assert journal_path(tmp_path, of) == tmp_path / "cpu-x86_64/01234567-py3.11-torch2.13.0+cpu-triton3.9.0.cells.jsonl"
    assert journal_path(tmp_path, run(commit="unknown")).name == "unknown-py3.11-torch2.13.0.cells.jsonl"


def test_a_version_with_a_slash_stays_in_its_folder(tmp_path):
    of = run(environment=environment(torch="../../x"))
    assert journal_path(tmp_path, of).parent == tmp_path / "cpu-x86_64"


def test_the_later_of_two_records_of_a_cell_counts(tmp_path):
    path = written(tmp_path, failed_cell("host/a/d128/kv1024"), host_cell(impl="b"), host_cell(impl="a"))
    assert read_journal(path).cells == (host_cell(impl="a"), host_cell(impl="b"))


def test_runs_of_one_origin_add_up(tmp_path):
    written(tmp_path, host_cell(1024))
    path = written(tmp_path, host_cell(4096), of=run(started="2026-01-02T00:00:00Z", command="nvfp4bench run --full"))
    journal = read_journal(path)
    assert journal.run.command == "nvfp4bench run --full"
    assert journal.cells == (host_cell(1024), host_cell(4096))


@pytest.mark.parametrize("changed", [{"source": "1" * 64}, {"protocol": "another"}, {"environment": environment(numpy="9")}])
def test_cells_of_another_origin_are_not_mixed_in(tmp_path, changed):
    written(tmp_path, host_cell(1024))
    path = written(tmp_path, host_cell(4096), of=run(**changed))
    assert read_journal(path).cells == (host_cell(4096),)


def test_a_last_line_torn_at_any_byte_costs_that_line_only(tmp_path):
    path = written(tmp_path, host_cell(), failed_cell())
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for end in range(start + 1, len(whole)):
        path.write_bytes(whole[:end])
        journal = read_journal(path)
        assert journal.cells == (host_cell(),), end
        assert journal.problems == (f"{path}:3: the last line is broken off and left out.",), end
        with JournalWriter(tmp_path, run(), resume=True) as writer:
            assert writer.cut == f"{path}:3: the last line was broken off, and is cut."
            writer.append(failed_cell())
        assert path.read_bytes() == whole[:start] + whole[: whole.index(b"\n") + 1] + whole[start:], end


def test_a_torn_first_line_is_no_journal_until_a_run_begins_it_anew(tmp_path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(JournalError, match="holds no run"):
        read_journal(path)
    written(tmp_path, host_cell(), resume=True)
    assert read_journal(path).cells == (host_cell(),)


def test_resume_knows_what_is_there(tmp_path):
    written(tmp_path, host_cell())
    with JournalWriter(tmp_path, run(started="2026-02-02T00:00:00Z"), resume=True) as journal:
        assert list(journal.recorded) == [(host_cell().id, "cpu")]
    found = read_journal(journal.path)
    assert (found.run.started, found.cells) == ("2026-02-02T00:00:00Z", (host_cell(),))


def test_resume_tells_of_ceilings_that_are_no_more_what_they_were(tmp_path):
    before = {"copy_bytes_per_s": 4.0e12, "read_bytes_per_s": 4.0e12, "cold_over_warm": 2.0}
    now = {"copy_bytes_per_s": 4.07e12, "read_bytes_per_s": 3.9e12}
    written(tmp_path, host_cell(), of=run(ceilings=before))
    with JournalWriter(tmp_path, run(ceilings=now), resume=True) as journal:
        assert journal.drifted == [
            "read_bytes_per_s was 4e+12 for the cells that are there, and is 3.9e+12, which pages now rate them by."
        ]
    with JournalWriter(tmp_path, run(), resume=False) as journal:  # none of the cells counts any more
        assert journal.drifted == []


def test_cells_of_a_file_that_was_edited_do_not_count(tmp_path):
    a, b = ({"mine": digit * 64} for digit in "ab")
    cells = (host_cell(1024, "mine"), host_cell(4096, "mine"), host_cell(1024))
    path = written(tmp_path, *cells, of=run(outside=a))
    with JournalWriter(tmp_path, run(outside=a), resume=True) as journal:
        assert (list(journal.recorded.values()), journal.edited) == (list(cells), [])
    with JournalWriter(tmp_path, run(), resume=True) as journal:  # a run without it says nothing of it
        assert list(journal.recorded.values()) == list(cells)
    with JournalWriter(tmp_path, run(outside=b), resume=True) as journal:
        assert (list(journal.recorded.values()), journal.edited) == ([host_cell(1024)], ["mine"])
        journal.append(host_cell(4096, "mine"))
    assert list(read_journal(path).cells) == [host_cell(1024), host_cell(4096, "mine")]
    assert read_journal(path).run.outside == b


def test_a_journal_that_says_nothing_of_files_loses_their_cells_when_it_is_gone_on_with(tmp_path):
    path = written(tmp_path, host_cell(1024, "mine"), host_cell(1024))
    assert len(read_journal(path).cells) == 2
    with JournalWriter(tmp_path, run(outside={"mine": "a" * 64}), resume=True) as journal:
        assert list(journal.recorded.values()) == [host_cell(1024)]


def test_ceilings_are_the_last_ones_measured(tmp_path):
    first, second = {"copy_bytes_per_s": 4e12}, {"copy_bytes_per_s": 3e12}
    path = written(tmp_path, host_cell(1024), of=run(ceilings=first))
    written(tmp_path, host_cell(4096), of=run(), resume=True)  # nothing of it was timed on the GPU
    assert read_journal(path).run.ceilings == first
    written(tmp_path, of=run(ceilings=second), resume=True)
    assert read_journal(path).run.ceilings == second
    written(tmp_path, of=run(source="1" * 64))
    assert read_journal(path).run.ceilings == {}


def test_without_resume_everything_is_measured_anew(tmp_path):
    written(tmp_path, host_cell())
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        assert journal.recorded == {}


def test_resume_refuses_another_origin_and_leaves_the_file_alone(tmp_path):
    path = written(tmp_path, host_cell())
    before = path.read_bytes()
    with pytest.raises(JournalError, match="measured from other sources or with another toolchain; run without --resume"):
        JournalWriter(tmp_path, run(source="1" * 64), resume=True)
    assert path.read_bytes() == before


def test_a_corrupt_journal_is_not_appended_to(tmp_path):
    path = written(tmp_path, host_cell())
    path.write_bytes(b"{}\n" + path.read_bytes())
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r":1: a record's kind is run or cell, not None"):
        JournalWriter(tmp_path, run(), resume=False)
    assert path.read_bytes() == before


def test_a_second_writer_gets_one_sentence(tmp_path):
    other = f"""
        from pathlib import Path
        from benchmarks.journal import JournalWriter
        from tests.benchmarks.records_made_up import run
        JournalWriter(Path({str(tmp_path)!r}), run(), resume=True)
    """
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(other)], cwd=ROOT, capture_output=True, text=True)
        journal.append(host_cell())
    assert done.stderr.strip().endswith(
        f"another process is writing {journal.path}; wait for it, or name another folder by --results."
    )
    assert read_journal(journal.path).cells == (host_cell(),)


def test_the_lock_ends_with_a_killed_writer(tmp_path):
    other = f"""
        import os, signal
        from pathlib import Path
        from benchmarks.journal import JournalWriter
        from tests.benchmarks.records_made_up import host_cell, run
        JournalWriter(Path({str(tmp_path)!r}), run(), resume=False).append(host_cell())
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(other)], cwd=ROOT).returncode == -9
    path = written(tmp_path, host_cell(4096), resume=True)
    assert read_journal(path).cells == (host_cell(), host_cell(4096))


def test_a_disk_that_takes_half_a_line_keeps_the_rest(tmp_path):
    """RLIMIT_FSIZE makes write() stop short, as a disk does that fills up."""
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        journal.append(host_cell())
        whole = journal.path.read_bytes()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 40, hard))
        try:
            with pytest.raises(JournalError, match=r"cannot write .*; what was measured before is kept, and --resume"):
                journal.append(failed_cell())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert journal.path.read_bytes() == whole
        journal.append(failed_cell())
    assert read_journal(journal.path).cells == (host_cell(), failed_cell())


@pytest.mark.parametrize("function", ["write", "fsync"])
def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch, function):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with JournalWriter(tmp_path, run(), resume=False) as journal:
        before = journal.path.read_bytes()
        monkeypatch.setattr(os, function, full)
        with pytest.raises(JournalError, match="No space left on device; what was measured before is kept"):
            journal.append(host_cell())
        monkeypatch.undo()
        assert journal.path.read_bytes() == before
        assert journal.recorded == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_one_sentence(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(JournalError, match=r"cannot write .*: Permission denied\.$"):
        written(tmp_path)


def test_a_file_in_place_of_the_folder_is_one_sentence(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(JournalError, match=r"cannot write .*: Not a directory\.$"):
        written(tmp_path / "results")


def test_results_come_by_machine_and_start(tmp_path):
    late = written(tmp_path, of=run(started="2026-03-01T00:00:00Z"))
    early = written(tmp_path, of=run(commit=OTHER_COMMIT))
    gpu = written(tmp_path, of=run(machine="a-gpu"))
    journals, problems = read_results(tmp_path)
    assert [journal.path for journal in journals] == [gpu, early, late]
    assert problems == []


def test_a_journal_under_a_wrong_name_is_not_read_as_another_machines(tmp_path):
    path = written(tmp_path, host_cell())
    moved = tmp_path / "nvidia-h200" / path.name
    moved.parent.mkdir()
    path.rename(moved)
    assert read_results(tmp_path) == ([], [f"{moved} holds a run that belongs into {path}."])


def test_one_bad_journal_does_not_hide_the_others(tmp_path):
    good = written(tmp_path, host_cell())
    bad = good.with_name("bad.cells.jsonl")
    bad.write_text("nonsense\n")
    journals, problems = read_results(tmp_path)
    assert [journal.path for journal in journals] == [good]
    assert problems == [f"{bad}:1: the line is not JSON (Expecting value, column 1)."]


def test_no_folder_is_one_sentence(tmp_path):
    with pytest.raises(JournalError, match="is not a folder; `nvfp4bench run` writes results"):
        read_results(tmp_path / "none")


def test_rewrite_changes_nothing_while_the_journal_is_written(tmp_path):
    with JournalWriter(tmp_path, run(), resume=False) as journal:
        journal.append(host_cell())
        with pytest.raises(JournalError, match="another process is writing"):
            rewrite(journal.path, lambda records: records[:1], journal.path)
    assert read_journal(journal.path).cells == (host_cell(),)


def test_rewrite_does_not_overwrite_another_journal(tmp_path):
    path, target = written(tmp_path, host_cell()), written(tmp_path, of=run(commit=OTHER_COMMIT))
    before = target.read_bytes()
    with pytest.raises(JournalError, match="is there already"):
        rewrite(path, lambda records: records, target)
    assert target.read_bytes() == before
    assert read_journal(path).cells == (host_cell(),)


def test_a_full_disk_while_rewriting_leaves_the_journal(tmp_path, monkeypatch):
    path = written(tmp_path, host_cell())
    before = path.read_bytes()

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match="No space left on device"):
        rewrite(path, lambda records: records[:1], path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_writer_that_waited_out_a_rewrite_does_not_write_into_the_replaced_file(tmp_path, monkeypatch):
    """Between open() and flock() the file can be replaced; the lock would then be on a file that nobody reads."""
    path = written(tmp_path, host_cell())
    opened = os.open

    def replaced_meanwhile(name, *arguments):
        file = opened(name, *arguments)
        if Path(name) == path:
            draft = path.with_name("draft")
            draft.write_bytes(path.read_bytes())
            draft.replace(path)
        return file

    monkeypatch.setattr(os, "open", replaced_meanwhile)
    with pytest.raises(JournalError, match="another process is writing"):
        JournalWriter(tmp_path, run(), resume=True)
