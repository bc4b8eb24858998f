"""Whatever somebody puts into a journal is one sentence that names file and line, never a traceback and never a number."""

from __future__ import annotations

import json
import os

import pytest

from benchmarks.journal import MAX_LINE, JournalError, JournalWriter, journal_path, read_journal, read_results
from benchmarks.records import to_json
from tests.benchmarks.records_made_up import host_cell, numerics_cell, run


def line(record, **changes) -> bytes:
    return json.dumps({**to_json(record), **changes}).encode() + b"\n"


RUN = line(run())
CELL = to_json(host_cell())
NUMERICS = to_json(numerics_cell("causal"))

BAD_SECOND_LINES = {
    "not JSON": (b"{'a': 1}\n", "the line is not JSON"),
    "binary": (b"\x00\xff\xfe\x80\n", "the line is not"),
    "empty": (b"\n", "the line is not JSON"),
    "cut in the middle": (line(host_cell())[:40] + b"\n", "the line is not JSON"),
    "no object": (b"[1, 2]\n", "a record is a JSON object, not list"),
    "deeply nested": (b"[" * 200_000 + b"\n", "the line is nested too deeply"),
    "longer than any record": (b'"' + b"a" * MAX_LINE + b'"\n', f"the line is longer than {MAX_LINE} bytes"),
    "NaN literal": (line(host_cell(), prepare_seconds=float("nan")), "NaN is not a number in JSON"),
    "Infinity literal": (line(host_cell(), prepare_seconds=float("inf")), "Infinity is not a number in JSON"),
    "a number beyond float64": (line(host_cell()).replace(b"0.001,", b"1e999,"), "samples must be finite"),
    "an integer of many digits": (b'{"kind": "cell", "prepare_seconds": ' + b"9" * 10_000 + b"}\n", "Exceeds the limit"),
    "unknown kind": (line(host_cell(), kind="note"), "kind is run or cell, not 'note'"),
    "unknown field": (line(host_cell(), speed=1), "a cell record has wrong fields"),
    "field missing": (b'{"kind": "cell"}\n', "a cell record has wrong fields"),
    "id of another type": (line(host_cell(), id=7), "field id should be str, not 7"),
    "id that climbs": (line(host_cell(), id="../../etc/passwd x"), "is not workload/implementation/parameters"),
    "unknown status": (line(host_cell(), status="fine"), "unknown status 'fine'"),
    "status of another type": (line(host_cell(), status=["ok"]), "unknown status"),
    "unknown suite": (line(host_cell(), suite="speed"), "suite 'speed'"),
    "unknown how": (line(host_cell(), how="guessed"), "how 'guessed'"),
    "ok without a number": (line(host_cell(), series={}), "needs a measurement"),
    "failed with a number": (line(host_cell(), status="failed", sentence="x."), "needs a sentence and no measurement"),
    "series no object": (line(host_cell(), series=[1.0]), "a cell record has wrong fields"),
    "samples no list": (line(host_cell(), series={"call": 3}), "a cell record has wrong fields"),
    "samples not numbers": (line(host_cell(), series={"call": [{}]}), "a cell record has wrong fields"),
    "no samples": (line(host_cell(), series={"call": []}), "series call has no samples"),
    "negative time": (line(host_cell(), series={"call": [-1.0]}), "samples must be finite, non-negative"),
    "clocks not numbers": (line(host_cell(), clocks={"call": ["fast"] * 20}), "clocks of call: samples must be finite"),
    "plan with nested data": (line(host_cell(), plan={"tiles": [1]}), "plan holds whole numbers and words only"),
    "seconds of another type": (line(host_cell(), prepare_seconds="soon"), "could not convert"),
    "numerics no object": (json.dumps({**NUMERICS, "numerics": "good"}).encode() + b"\n", ""),
    "numerics NaN": (
        json.dumps({**NUMERICS, "numerics": {**NUMERICS["numerics"], "relative_l2": "nan"}}).encode() + b"\n",
        "relative_l2 is not a number",
    ),
    "numerics of words": (
        json.dumps({**NUMERICS, "numerics": {**NUMERICS["numerics"], "relative_l2": "small"}}).encode() + b"\n",
        "could not convert string to float",
    ),
    "another schema": (line(run(), schema=99), "journal schema 99 is not 2"),
    "machine that climbs": (line(run(), machine="../x"), "machine '../x' is not a plain folder name"),
    "started in words": (line(run(), started="yesterday"), "started 'yesterday' is not a moment such as"),
    "started on no day": (line(run(), started="9999-99-99T00:00:00Z"), "started '9999-99-99T00:00:00Z' is not a moment"),
    "started without a zone": (line(run(), started="2026-01-01T00:00:00"), "is not a moment"),
    "started in short": (line(run(), started="2026-1-1T00:00:00Z"), "is not a moment"),
    "files that are no hash": (line(run(), outside={"mine": "x"}), "outside must hold the SHA-256"),
    "commit no hash": (line(run(), commit="main"), "commit 'main' is not a full hash"),
    "environment no object": (line(run(), environment=[]), "a run record has wrong fields"),
}


@pytest.mark.parametrize("name", BAD_SECOND_LINES)
def test_a_bad_line_is_one_sentence_with_file_and_line(tmp_path, name):
    bad, words = BAD_SECOND_LINES[name]
    path = journal_path(tmp_path, run())
    path.parent.mkdir()
    path.write_bytes(RUN + bad + line(host_cell()))
    with pytest.raises(JournalError) as raised:
        read_journal(path)
    message = str(raised.value)
    assert message.startswith(f"{path}:2: ")
    assert words in message
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 1000
    assert read_results(tmp_path) == ([], [message])


def test_a_journal_that_begins_with_a_cell_is_refused(tmp_path):
    path = tmp_path / "x.cells.jsonl"
    path.write_bytes(line(host_cell()) + RUN)
    with pytest.raises(JournalError, match=":1: a journal begins with its run, not with a cell"):
        read_journal(path)


def test_a_link_out_of_the_results_is_not_followed(tmp_path):
    results, secret = tmp_path / "results", tmp_path / "secret"
    secret.write_bytes(RUN)
    path = journal_path(results, run())
    path.parent.mkdir(parents=True)
    path.symlink_to(secret)
    assert read_results(results) == ([], [f"{path} is a link that leads out of {results}."])
    with pytest.raises(JournalError, match="cannot write"):
        JournalWriter(results, run(), resume=True)
    assert secret.read_bytes() == RUN


def test_a_machine_folder_that_leads_out_is_not_written_to(tmp_path):
    results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    results.mkdir()
    elsewhere.mkdir()
    (results / "cpu-x86_64").symlink_to(elsewhere)
    with pytest.raises(JournalError, match="is a link that leads out of"):
        JournalWriter(results, run(), resume=False)
    assert list(elsewhere.iterdir()) == []


def test_a_pipe_in_place_of_a_journal_does_not_hang(tmp_path):
    path = journal_path(tmp_path, run())
    path.parent.mkdir()
    os.mkfifo(path)
    assert read_results(tmp_path) == ([], [f"{path} is not a file."])
    with pytest.raises(JournalError, match="is not a file"):
        JournalWriter(tmp_path, run(), resume=True)


def test_a_folder_in_place_of_a_journal_is_one_sentence(tmp_path):
    path = journal_path(tmp_path, run())
    path.mkdir(parents=True)
    assert read_results(tmp_path) == ([], [f"{path} is not a file."])
    with pytest.raises(JournalError, match=r"cannot write .*: Is a directory"):
        JournalWriter(tmp_path, run(), resume=False)
