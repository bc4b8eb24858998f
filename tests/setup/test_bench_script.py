"""scripts/bench.py, what `make bench` ends with: no failure is lost, and the last lines are true."""

from __future__ import annotations

import sys

import pytest

from scripts import bench


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the script with commands that end in the given statuses: (exit status, commands run, what it printed)."""

    def go(plotly: bool = True, **statuses: int) -> tuple[int, list[str], str]:
        ran: list[str] = []

        def command(*arguments: str) -> int:
            name = "static" if "static" in arguments else arguments[0]
            ran.append(name)
            return statuses.get(name, 0)

        monkeypatch.setattr(bench, "nvfp4bench", command)
        monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: object() if plotly else None)
        return bench.main(), ran, capsys.readouterr().out

    return go


def test_all_well_ends_with_the_page_and_the_next_command(run):
    status, ran, printed = run()
    assert (status, ran) == (0, ["run", "static", "dashboard", "doctor"])
    assert printed.splitlines()[-2] == f"page: {bench.PAGE.as_uri()}"
    assert printed.splitlines()[-1].startswith("next: make gate")


def test_failed_cell_is_still_drawn_and_still_fails(run):
    status, ran, printed = run(run=1)
    assert (status, ran) == (1, ["run", "static", "dashboard", "doctor"])
    assert f"page: {bench.PAGE.as_uri()}" in printed


@pytest.mark.parametrize("broken", ["run", "static"])
def test_one_of_two_runs_is_drawn_alone(run, broken):
    status, ran, printed = run(**{broken: 2})
    assert (status, ran) == (2, ["run", "static", "dashboard", "doctor"])
    assert f"page: {bench.PAGE.as_uri()}" in printed


def test_run_that_measured_nothing_draws_nothing_and_still_says_what_works(run):
    status, ran, printed = run(run=2, static=2)
    assert (status, ran) == (2, ["run", "static", "doctor"])
    assert "no pages" in printed and "page: " not in printed
    assert "next: " not in printed  # which would fail for the same reason


def test_failing_dashboard_is_not_hidden_by_the_doctor(run):
    status, ran, printed = run(dashboard=2)
    assert (status, ran) == (2, ["run", "static", "dashboard", "doctor"])
    assert "no pages" in printed and "page: " not in printed


def test_missing_plotly_is_one_sentence_and_no_failure(run):
    status, ran, printed = run(plotly=False)
    assert (status, ran) == (0, ["run", "static", "doctor"])
    assert "no plotly" in printed


def test_command_that_dies_by_a_signal_fails(monkeypatch, tmp_path):
    (tmp_path / "nvfp4bench.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    assert bench.nvfp4bench("run") == 2


def test_next_command_names_a_foreign_python(monkeypatch):
    monkeypatch.setattr(sys, "prefix", "/somewhere/else")
    assert bench.next_command() == f"make gate PYTHON={sys.executable}"
    monkeypatch.setattr(sys, "prefix", str(bench.ROOT / ".venv"))
    assert bench.next_command() == "make gate"
