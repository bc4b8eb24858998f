"""A result that changes on its way through the file, or a difference that is not told, misleads whoever reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from impls.errors import CommandError
from impls.isa import divide, report
from impls.isa.catalogue import catalogue
from impls.isa.program import Program
from impls.isa.result import Cell, Probe, Refusal, load, save

QMMA = Program("a", "f", "x;", "QMMA")
OTHER = Program("b", "f", "y;", "OMMA")
NATIVE, EMULATED, NOTHING = Cell(opcodes={"QMMA.16": 1}), Cell(opcodes={"HMMA": 2, "F2FP": 6}), Cell(opcodes={})
REFUSED = Cell(error=Refusal("target", "Instruction 'mma' not supported on .target 'sm_90'; needs sm_90a"))


def probe(release: str = "13.0.88", targets: tuple[str, ...] = ("sm_90", "sm_90a"), **cells: tuple[Cell, ...]) -> Probe:
    limits: dict[str, dict[str, int | None]] = {target: {"static_shared_bytes": 1024, "registers": None} for target in targets}
    rows = {name: dict(zip(targets, row, strict=True)) for name, row in cells.items()}
    return Probe(release, "9.0", "13.5.37", "hash", targets, rows, limits)


def test_the_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    for_sm_90a = Cell(error=Refusal("target", "Instruction 'mma' not supported on .target 'sm_90a'; needs sm_90a"))
    warned = Cell(opcodes={}, warnings=("slow on sm_90a", "and more"))
    made = probe(a=(REFUSED, for_sm_90a), b=(NATIVE, warned), c=(Cell(), NOTHING))
    save(made, tmp_path / "x.json")
    assert load(tmp_path / "x.json") == made


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', '{"schema": 1, "targets": ["sm_90"]}', '{"schema": null}'])
def test_a_file_that_is_no_result_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CommandError, match="probe again with --update"):
        load(tmp_path / "x.json")


def test_targets_are_exact_names() -> None:
    made = probe(a=(REFUSED, NATIVE))
    assert not made.accepts("sm_90", "a")
    assert made.accepts("sm_90a", "a")
    with pytest.raises(KeyError):
        made.accepts("sm_100", "a")
    assert made.only(["sm_90a"]).cells == {"a": {"sm_90a": NATIVE}}
    with pytest.raises(CommandError, match="has no target sm_91; it has sm_90, sm_90a"):
        made.only(["sm_91"])


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (REFUSED, NATIVE, "gained"),
        (NATIVE, REFUSED, "lost"),
        (EMULATED, NATIVE, "native"),
        (NATIVE, EMULATED, "emulated"),
        (NATIVE, Cell(opcodes={"QMMA.32": 1}), "opcodes"),
        (REFUSED, Cell(error=Refusal("unknown", "Unknown modifier")), "reason"),
        (REFUSED, Cell(error=Refusal("target", "the same in other words")), None),
        (NATIVE, Cell(opcodes={"QMMA.16": 4}), None),
    ],
)
def test_what_changed_between_two_releases(old: Cell, new: Cell, change: str | None) -> None:
    before, after = probe(a=(old, REFUSED)), probe("13.4.59", a=(new, REFUSED))
    found = report.differences(before, after, [QMMA])
    assert [(item.target, item.change) for item in found] == ([("sm_90", change)] if change else [])


def test_differences_name_the_targets_of_one_release_only() -> None:
    before, after = probe(a=(NATIVE, NATIVE)), probe("13.4.59", ("sm_90a", "sm_107a"), a=(REFUSED, NATIVE))
    text = report.differences_text(before, after, report.differences(before, after, [QMMA]))
    assert "13.0.88 (PTX 9.0) -> 13.4.59 (PTX 9.0): 1 programs on 1 targets compared" in text
    assert "targets only in 13.0.88: sm_90\n" in text
    assert "targets only in 13.4.59: sm_107a\n" in text
    assert "lost a on sm_90a" in text
    assert "0 gained, 1 lost, 0 native, 0 emulated, 0 opcodes, 0 reason" in text


def test_the_matrix_counts_accepted_and_emulated() -> None:
    made = probe(a=(EMULATED, NATIVE), b=(REFUSED, REFUSED))
    first, row, *_ = report.matrix(made, [QMMA, OTHER]).splitlines()
    assert first.split() == ["family", "all", "90", "90a"]
    assert row.split() == ["f", "2", "1~1", "1"]


def test_details_say_what_each_target_made_of_it() -> None:
    text = report.details(probe(a=(REFUSED, EMULATED)), [QMMA])
    assert text.splitlines() == [
        "a",
        "  sm_90: refused (target): Instruction 'mma' not supported on .target 'this target'; needs sm_90a",
        "  sm_90a: emulated F2FP x6 HMMA x2",
    ]


def test_json_cells_have_accepted_error_and_opcodes() -> None:
    made = json.loads(json.dumps(report.as_json(probe(a=(REFUSED, NATIVE)), [QMMA])))
    cells = made["programs"]["a"]["cells"]
    assert cells["sm_90"]["accepted"] is False
    assert cells["sm_90"]["error"]["kind"] == "target"
    assert cells["sm_90"]["opcodes"] is None
    assert cells["sm_90a"] == {"accepted": True, "error": None, "opcodes": {"QMMA.16": 1}, "verdict": "native"}
    assert made["limits"]["sm_90"] == {"static_shared_bytes": 1024, "registers": None}
    assert any("not execution" in sentence for sentence in made["caveats"])


def test_every_aspect_of_the_divide_rests_on_programs_of_the_catalogue() -> None:
    known = {program.id for program in catalogue()}
    cited = {item.program for aspect in divide.ASPECTS for one in aspect.statements for item in one.evidence}
    assert cited <= known


def test_an_entry_follows_the_probe_and_not_the_targets_name() -> None:
    """The same target with the opposite cells gets the opposite entry."""
    programs = {program.id: program for program in catalogue()}
    aspect = next(one for one in divide.ASPECTS if one.name == "fp8 mma.sync")
    cited = aspect.statements[0].evidence[0].program
    for cell, text in ((NATIVE, "native"), (EMULATED, "emulated by conversion to f16"), (REFUSED, "none")):
        made = Probe("13.0.88", "9.0", None, "hash", ("sm_90",), {cited: {"sm_90": cell}}, {})
        table = divide.divide(made, programs)
        assert table["fp8 mma.sync"]["sm_90"].text == text
        assert table["shared memory"]["sm_90"].text == divide.NOT_SHOWN
        assert "execution model" not in table  # its programs were not probed
