"""Every seeded fault is caught: by its case at once, and by the command with exit status 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nvfp4bench
from impls.numerics.measure import examine
from tests.numerics import faults

FILE = Path(faults.__file__)


def source(fault: type) -> str:
    return f"{FILE}:{fault.__name__}"


def gate(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """(exit status, its JSON)."""
    file = tmp_path / "gate.json"
    status = nvfp4bench.main(["gate", "--on", "cpu", "--json", str(file), *arguments])
    return status, json.loads(file.read_text())


@pytest.mark.parametrize(("fault", "case"), faults.FAULTS.items(), ids=lambda x: getattr(x, "__name__", x))
def test_fault_fails_its_case(fault: type, case: str) -> None:
    assert examine({"impl": source(fault), "case": case, "on": "cpu"})["numerics"]["verdict"] != "pass"


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (faults.MutatedInput, "it wrote to its inputs: k4.codes."),
        (faults.OutsideWriter, "it wrote outside of out."),
        (faults.UnwrittenTail, "it left elements unwritten: 512 of out, 0 of lse."),
        (faults.OwnOutput, "the runner's output is not the out and lse that bind was given."),
        (faults.FiniteLSE, "a row that sees no key must be 0 with lse = -inf, and is not."),
    ],
)
def test_breach_of_the_contract_is_told_as_such(fault: type, sentence: str) -> None:
    found = examine({"impl": source(fault), "case": faults.FAULTS[fault], "on": "cpu"})
    assert found["numerics"]["verdict"] == sentence


@pytest.mark.parametrize("case", sorted(set(faults.FAULTS.values())))
def test_unfaulted_passes_every_case_that_shows_a_fault(case: str) -> None:
    assert examine({"impl": source(faults.Unfaulted), "case": case, "on": "cpu"})["numerics"]["verdict"] == "pass"


@pytest.mark.slow
def test_command_exits_1_on_a_zero_output_and_0_without_it(tmp_path: Path) -> None:
    wrong, report = gate(tmp_path, "--impl", source(faults.ZeroOutput), "--case", "decode")
    right, _ = gate(tmp_path, "--impl", source(faults.Unfaulted), "--case", "decode")
    assert (wrong, right) == (1, 0)
    assert report["holds"] is False
    assert [cell["status"] for cell in report["cells"]] == ["fail"]
    assert "times its bound" in report["cells"][0]["sentence"]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "case"), faults.FAULTS.items(), ids=lambda x: getattr(x, "__name__", x))
def test_command_exits_1_on_each_fault(fault: type, case: str, tmp_path: Path) -> None:
    status, report = gate(tmp_path, "--impl", source(fault), "--case", case)
    assert status == 1
    assert [cell["status"] for cell in report["cells"]] == ["fail"]


@pytest.mark.slow
def test_command_exits_0_on_the_unfaulted_one_in_all_cases(tmp_path: Path) -> None:
    status, report = gate(tmp_path, "--impl", source(faults.Unfaulted))
    assert status == 0
    assert sum(cell["status"] == "pass" for cell in report["cells"]) > 70


@pytest.mark.slow
def test_hostile_implementations_are_failing_cells_and_nothing_is_lost(tmp_path: Path) -> None:
    hostile = (faults.Raises, faults.ReturnsNaN, faults.DiesBySignal, faults.ExitsSilently, faults.Unfaulted)
    status, report = gate(tmp_path, "--impl", ",".join(map(source, hostile)), "--case", "paged-hnd-1")
    found = {cell["implementation"]: (cell["status"], cell["sentence"]) for cell in report["cells"]}
    assert status == 1
    assert found["Raises"] == ("failed", "RuntimeError: the kernel could not be launched")
    assert found["ReturnsNaN"] == ("fail", "out and lse hold 4 NaN.")
    assert found["DiesBySignal"][0] == "crashed"
    assert "SIGSEGV" in found["DiesBySignal"][1]
    assert found["ExitsSilently"][0] == "crashed"
    assert "exited with status 0" in found["ExitsSilently"][1]
    assert found["Unfaulted"] == ("pass", None)


@pytest.mark.slow
def test_hanging_implementation_is_given_up(tmp_path: Path) -> None:
    status, report = gate(tmp_path, "--impl", source(faults.Hangs), "--case", "paged-?hd-[14]", "--timeout", "8")
    assert status == 1
    statuses = sorted(cell["status"] for cell in report["cells"])
    assert statuses[-2:] == ["timeout", "timeout"]
    assert set(statuses) <= {"timeout", "skipped"}
    assert all(cell["sentence"] for cell in report["cells"])
