"""`nvfp4bench dashboard` as it is called."""

from __future__ import annotations

import shutil
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

from nvfp4bench import main
from tests.dashboards.synthetic import H200, latency, run, write

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def dashboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call the command; (exit status, stdout, stderr)."""

    def call(results: Path, *arguments: str, out: Path = tmp_path / "out") -> tuple[int, str, str]:
        status = main(["dashboard", "--results", str(results), "--out", str(out), *arguments])
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def one_journal(tmp_path: Path) -> Path:
    return write(tmp_path / "results", run("nvidia-h200", H200), latency("a4q"))


@pytest.mark.slow
def test_it_names_the_page_it_wrote(dashboard: Command, one_journal: Path, tmp_path: Path) -> None:
    status, said, wrong = dashboard(one_journal.parent.parent)
    page = tmp_path / "out" / "index.html"
    assert (status, wrong) == (0, "")
    assert page.is_file() and said == f"1 journal drawn: {page}\n"


@pytest.mark.slow
def test_two_calls_write_the_same_bytes(dashboard: Command, results: Path, tmp_path: Path) -> None:
    written = []
    for out in (tmp_path / "one", tmp_path / "two"):
        dashboard(results, out=out)
        written.append({path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()})
    assert written[0] == written[1]


def test_an_empty_folder_is_said_and_leaves_no_page(dashboard: Command, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    status, _, wrong = dashboard(tmp_path / "results")
    assert status == 2 and "no results in" in wrong and "make bench" in wrong
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_not_there_is_said(dashboard: Command, tmp_path: Path) -> None:
    status, _, wrong = dashboard(tmp_path / "nowhere")
    assert status == 2 and "nowhere is not a folder" in wrong and wrong.count("\n") == 1


def test_a_corrupt_journal_is_shown_and_the_others_are_drawn(dashboard: Command, results: Path, tmp_path: Path) -> None:
    mixed = shutil.copytree(results, tmp_path / "results")
    (mixed / "cpu-x86_64" / "0-broken.cells.jsonl").write_bytes(b"\x00\xff garbage\n")
    status, _, wrong = dashboard(mixed)
    page = (tmp_path / "out" / "index.html").read_text()
    assert status == 1 and "0-broken.cells.jsonl" in wrong
    assert "cpu-x86_64/0-broken.cells.jsonl" in page and "nvidia-h200" in page
    assert str(tmp_path) not in page  # no path of the host


def test_a_results_folder_of_which_nothing_can_be_read_still_gives_a_page(dashboard: Command, tmp_path: Path) -> None:
    (tmp_path / "results" / "m").mkdir(parents=True)
    (tmp_path / "results" / "m" / "x.cells.jsonl").write_text("{}\n")
    status, _, _ = dashboard(tmp_path / "results")
    assert status == 1
    assert "nvfp4bench run --quick" in (tmp_path / "out" / "index.html").read_text()


def test_a_line_broken_off_is_shown_and_no_failure(dashboard: Command, one_journal: Path, tmp_path: Path) -> None:
    with one_journal.open("ab") as file:
        file.write(b'{"kind": "cell", "id"')
    status, _, wrong = dashboard(one_journal.parent.parent)
    assert status == 0 and "the last line is broken off" in wrong
    assert "the last line is broken off" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.slow
def test_a_number_too_large_is_a_problem_of_its_journal_alone(dashboard: Command, one_journal: Path, tmp_path: Path) -> None:
    text = one_journal.read_text()
    (one_journal.parent / "other.cells.jsonl").write_text(text.replace("4300000000000.0", "1" + "0" * 400))
    status, _, wrong = dashboard(one_journal.parent.parent)
    assert status == 1 and "other.cells.jsonl" in wrong
    assert (tmp_path / "out" / "sm_90a.html").exists()


@pytest.mark.slow
def test_an_unwritable_place_is_one_sentence(dashboard: Command, one_journal: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    status, _, wrong = dashboard(one_journal.parent.parent, out=tmp_path / "file" / "out")
    assert status == 2 and "cannot write the pages" in wrong and wrong.count("\n") == 1


@pytest.mark.slow
def test_open_shows_the_overview(
    dashboard: Command, one_journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def browse(address: str) -> bool:
        shown.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    assert dashboard(one_journal.parent.parent, "--open")[0] == 0
    assert shown == [(tmp_path / "out" / "index.html").as_uri()]


def test_open_says_where_the_page_is_when_there_is_no_browser(
    dashboard: Command, one_journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    status, _, wrong = dashboard(one_journal.parent.parent, "--open")
    assert status == 2 and "no browser could be started; open" in wrong


@pytest.mark.parametrize("package", ["plotly", "jinja2"])
def test_what_the_pages_need_and_is_not_installed_is_said(
    dashboard: Command, one_journal: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in (package, "dashboards")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    status, _, wrong = dashboard(one_journal.parent.parent)
    assert status == 2 and f"the pages need {package}, which is not installed" in wrong
