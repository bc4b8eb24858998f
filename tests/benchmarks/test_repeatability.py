"""Two runs of one commit are held against each other cell by cell."""

from __future__ import annotations

import pytest

from benchmarks.journal import JournalWriter
from scripts.repeatability import main
from tests.benchmarks.records_made_up import OTHER_COMMIT, failed_cell, latency_cell, run


def results(folder, latencies, **changes):
    """A folder of results whose cell i takes latencies[i] seconds."""
    with JournalWriter(folder, run(**changes), resume=False) as journal:
        for i, seconds in enumerate(latencies):
            journal.append(latency_cell(f"decode/impl/d128/kv{i}", series={"latency": (seconds,) * 20}, clocks={}))
        journal.append(failed_cell("decode/impl/d128/kv999"))
    return str(folder)


def test_95_in_100_cells_have_to_agree_within_2_percent(tmp_path, capsys):
    first = results(tmp_path / "a", [1e-4] * 100)
    assert main([first, results(tmp_path / "b", [1.03e-4] * 5 + [1.019e-4] * 95)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "95 of 100 cells agree within 2%: 95.0%, wanted 95%."
    assert main([first, results(tmp_path / "c", [0.97e-4] * 6 + [1e-4] * 94)]) == 1
    assert capsys.readouterr().out.splitlines()[0] == "  0.970  decode/impl/d128/kv5"


def test_what_takes_no_longer_than_a_launch_is_not_compared(tmp_path, capsys):
    assert main([results(tmp_path / "a", [1e-5, 1e-4]), results(tmp_path / "b", [5e-5, 1e-4])]) == 0
    assert capsys.readouterr().out.startswith("1 of 1 cells")


@pytest.mark.parametrize("changes", [{"commit": OTHER_COMMIT}, {"source": "1" * 64}, {"machine": "nvidia-h200"}])
def test_runs_of_different_things_cannot_be_compared(tmp_path, capsys, changes):
    assert main([results(tmp_path / "a", [1e-4]), results(tmp_path / "b", [1e-4], **changes)]) == 2
    assert capsys.readouterr().err.startswith("repeatability: no cell of the same commit")


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path, capsys):
    assert main([str(tmp_path / "none"), str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
