"""Implementations from the tree, from a file and from an installed package; what cannot be loaded says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from impls.arch import CPU, find
from impls.contract import Implementation, Plan, Problem, Unsupported
from impls.registry import BUILT_IN, ENTRY_POINT_GROUP, STAND_INS, implementation, implementations, why_not

PROBLEM = Problem(batch=1, q_heads=1, kv_heads=1, q_len=1, kv_len=16, head_dim=16, v_head_dim=16)

SOURCE = """\
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from impls.contract import Implementation


@dataclass
class Tiles:
    rows: int = 64
    known: ClassVar[int] = 1


class Mine(Implementation):
    name = "{name}"
    summary = "somebody else's"

    def why_not(self, problem, arch):
        return "it only says no."

    def plan(self, problem, arch):
        raise NotImplementedError


class Nameless(Implementation):
    why_not = Mine.why_not
    plan = Mine.plan


class NotOne:
    pass


class Unfinished(Implementation):
    name = "unfinished"
    summary = "has no plan"

    def why_not(self, problem, arch):
        return None
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE.format(name="mine"))
    return path


def install(site: Path, monkeypatch: pytest.MonkeyPatch, *entry_points: str) -> None:
    """Put a distribution with these entry points on the path, as pip would leave it."""
    info = site / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINT_GROUP}]", *entry_points, ""]))
    monkeypatch.syspath_prepend(site)


def test_built_in_implementations_are_what_their_lines_say() -> None:
    found = implementations()
    listed = [*BUILT_IN, *STAND_INS]
    assert list(found)[: len(listed)] == listed
    for name in listed:
        assert isinstance(found[name], Implementation)
        assert found[name].name == name
        assert found[name].summary
        assert implementation(name).name == name


def test_why_not_takes_an_architecture_or_its_name() -> None:
    float16 = Problem(batch=1, q_heads=1, kv_heads=1, q_len=1, kv_len=16, head_dim=16, v_head_dim=16, dtype="float16")
    assert why_not("torch-reference-bf16", PROBLEM, "cpu") is None
    assert why_not("torch-reference-bf16", PROBLEM, CPU) is None
    assert (
        why_not("torch-reference-bf16", float16, find("sm_90")) == "torch-reference-bf16 takes bfloat16 queries, not float16."
    )
    with pytest.raises(ValueError, match=r"^unknown architecture 'sm_12'; known are cpu, sm_80"):
        why_not("torch-reference-bf16", PROBLEM, "sm_12")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError) as caught:
        implementation("a5q")
    assert str(caught.value).startswith("unknown implementation 'a5q'; there are torch-reference-bf16, triton")
    assert str(caught.value).endswith(", or name one as path/to/file.py:Class.")


def test_an_implementation_that_holds_no_other_refuses_one_inside() -> None:
    with pytest.raises(ValueError, match=r"^triton has no other implementation inside, so triton:sdpa-flash means nothing\.$"):
        implementation("triton:sdpa-flash")
    with pytest.raises(ValueError, match=r"^unknown implementation 'a5q:triton'; there are"):
        implementation("a5q:triton")


# --- a file -----------------------------------------------------------------------------------------------------------


def test_an_implementation_in_a_file(file: Path) -> None:
    mine = implementation(f"{file}:Mine")
    assert mine.name == "mine"
    assert why_not(f"{file}:Mine", PROBLEM, "cpu") == "it only says no."
    assert "mine" not in implementations()


def test_a_file_relative_to_the_folder_one_is_in(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert implementation("mine.py:Mine").name == "mine"


def test_a_file_that_changed_is_read_again(file: Path) -> None:
    assert implementation(f"{file}:Mine").name == "mine"
    file.write_text(SOURCE.format(name="other"))
    assert implementation(f"{file}:Mine").name == "other"


def test_a_file_that_takes_the_name_of_another(file: Path) -> None:
    file.write_text(SOURCE.format(name="triton"))
    with pytest.raises(ValueError, match=r"mine.py:Mine calls itself 'triton', which is taken; rename it\.$"):
        implementation(f"{file}:Mine")


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("{folder}/none.py:Mine", "FileNotFoundError: there is no file {folder}/none.py."),
        ("{folder}/mine.py:Absent", "AttributeError: module 'nvfp4bench_external_mine' has no attribute 'Absent'."),
        ("{folder}/mine.py:NotOne", "NotOne is not an impls.contract.Implementation."),
        ("{folder}/mine.py:Nameless", "Nameless has no name or no summary."),
        ("{folder}/mine.py:Unfinished", "TypeError: Can't instantiate abstract class Unfinished with abstract method plan."),
        ("{folder}/syntax.py:Mine", "SyntaxError: invalid syntax (syntax.py, line 1)."),
        ("{folder}/imports.py:Mine", "ModuleNotFoundError: No module named 'no_such_module'."),
        ("{folder}/exits.py:Mine", "SystemExit: 3."),
        ("{folder}/raises.py:Mine", "RuntimeError: first line."),
    ],
)
def test_a_file_that_cannot_be_loaded(file: Path, place: str, why: str) -> None:
    (file.parent / "syntax.py").write_text("class:\n")
    (file.parent / "imports.py").write_text("import no_such_module\n")
    (file.parent / "exits.py").write_text("raise SystemExit(3)\n")
    (file.parent / "raises.py").write_text("raise RuntimeError('first line.\\nsecond line')\n")
    place, why = place.format(folder=file.parent), why.format(folder=file.parent)
    with pytest.raises(ValueError) as caught:
        implementation(place)
    assert str(caught.value) == f"cannot load implementation {place}: {why}"


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a,b", "..", "4bit", "ünï", "<b>", "a\\nb", "x" * 65, "a:", ":a", "a:b:c"])
def test_a_name_that_could_be_no_part_of_a_cell_id_is_refused(file: Path, name: str) -> None:
    file.write_text(SOURCE.format(name=name))
    with pytest.raises(ValueError, match=r"it calls itself '.*', and a name is a letter, then at most 63 letters, digits"):
        implementation(f"{file}:Mine")


def test_a_name_that_is_no_text_is_refused(file: Path) -> None:
    file.write_text(SOURCE.replace('"{name}"', "3"))
    with pytest.raises(ValueError, match="it calls itself 3, and a name is a letter"):
        implementation(f"{file}:Mine")


# --- an installed package ---------------------------------------------------------------------------------------------


def test_an_installed_implementation_is_listed_after_the_built_in_ones(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(file.parent, monkeypatch, "mine = mine:Mine")
    assert list(implementations()) == [*BUILT_IN, *STAND_INS, "mine"]
    assert why_not("mine", PROBLEM, "cpu") == "it only says no."
    sys.modules.pop("mine")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            "mine = not_there:Mine",
            "cannot load implementation not_there:Mine: ModuleNotFoundError: No module named 'not_there'.",
        ),
        ("mine = mine:NotOne", "cannot load implementation mine:NotOne: NotOne is not an impls.contract.Implementation."),
        ("mine = mine:Unfinished", "cannot load implementation mine:Unfinished: TypeError: Can't instantiate abstract class"),
        ("other = mine:Mine", "mine:Mine calls itself 'mine', and its entry point 'other'; make them one."),
    ],
)
def test_an_installed_implementation_that_cannot_be_used_is_listed_with_its_reason(
    file: Path, monkeypatch: pytest.MonkeyPatch, entry: str, sentence: str
) -> None:
    install(file.parent, monkeypatch, entry)
    name = entry.split()[0]
    found = implementations()
    assert list(found) == [*BUILT_IN, *STAND_INS, name]
    assert (found[name].name, found[name].summary) == (name, "installed, but cannot be loaded")
    reason = found[name].why_not(PROBLEM, CPU)
    assert reason is not None
    assert reason.startswith(sentence)
    with pytest.raises(Unsupported) as caught:
        found[name].plan(PROBLEM, CPU)
    assert str(caught.value) == reason
    sys.modules.pop("mine", None)


def test_two_implementations_of_one_name_are_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(file.parent, monkeypatch, "triton = mine:Mine")
    with pytest.raises(ValueError, match=r"^two implementations are called 'triton'; the second comes from mine:Mine\.$"):
        implementations()


def test_defaults_of_an_implementation() -> None:
    class Least(Implementation):
        name = "least"
        summary = "what a class must have"

        def why_not(self, problem: Problem, arch: object) -> str | None:
            return None

        def plan(self, problem: Problem, arch: object) -> Plan:
            raise NotImplementedError

    assert Least().rounds(PROBLEM) == {}
    assert Least().accumulator_chain(PROBLEM) == 16
    empty = Problem(batch=1, q_heads=1, kv_heads=1, q_len=1, kv_len=0, head_dim=16, v_head_dim=16)
    assert Least().accumulator_chain(empty) == 1
