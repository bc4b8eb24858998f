"""Implementations from the tree, from a file and from an installed package; what cannot be loaded says so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchmarks.commands.selection import chosen_impls
from impls.arch import CPU, find
from impls.contract import Implementation, Plan, Problem, Unsupported
from impls.errors import CommandError
from impls.outside import name_of_file
from impls.registry import BUILT_IN, ENTRY_POINT_GROUP, STAND_INS, implementation, implementations, misnamed, names, why_not

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


def test_files_of_one_name_in_two_folders_are_two_modules(file: Path, tmp_path: Path) -> None:
    """Dataclasses and pickle look names up in the module that a class says it is of."""
    other = tmp_path / "elsewhere" / file.name
    other.parent.mkdir()
    other.write_text(SOURCE.format(name="other"))
    first, second = implementation(f"{file}:Mine"), implementation(f"{other}:Mine")
    assert sys.modules[type(first).__module__].Mine is type(first)
    assert sys.modules[type(second).__module__].Mine is type(second)


@pytest.mark.parametrize("name", ["triton", "dual-chunk", "dual-chunk:a4q", "triton:mine", "w4a16", "mine+w4a16"])
def test_a_file_that_takes_the_name_of_another(file: Path, name: str) -> None:
    file.write_text(SOURCE.format(name=name))
    with pytest.raises(ValueError, match=rf"mine.py:Mine calls itself '{re.escape(name)}', which is taken; rename it\.$"):
        implementation(f"{file}:Mine")


@pytest.mark.parametrize("name", ["mine:triton", "mine+", "a+b", "w4a17"])
def test_a_name_that_is_nobodys_may_be_taken(file: Path, name: str) -> None:
    file.write_text(SOURCE.format(name=name))
    assert implementation(f"{file}:Mine").name == name


def test_a_file_inside_another_is_refused_in_words(file: Path) -> None:
    with pytest.raises(ValueError, match=r"has a file inside dual-chunk, which takes registered implementations only"):
        implementation(f"dual-chunk:{file}:Mine")


def test_a_file_that_cannot_be_used_is_said_once(file: Path) -> None:
    with pytest.raises(CommandError) as caught:
        name_of_file(f"{file}:Absent")
    assert str(caught.value).startswith(f"cannot load implementation {file}:Absent: AttributeError: ")


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("{folder}/none.py:Mine", "FileNotFoundError: there is no file {folder}/none.py."),
        ("{folder}/mine.py:Absent", "AttributeError: there is no Absent in it."),
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


@pytest.mark.parametrize("name", ["triton", "dual-chunk", "dual-chunk:a4q", "w4a16", "mine+w4a16"])
def test_an_installed_one_whose_name_is_taken_is_refused_before_anything_is_measured(
    name: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(file.parent, monkeypatch, f"{name} = mine:Mine")
    sentence = rf"^the installed implementation mine:Mine is called '{re.escape(name)}', which is taken; uninstall it\.$"
    for ask in (implementations, names, lambda: chosen_impls(None)):
        with pytest.raises(ValueError, match=sentence):
            ask()


@pytest.mark.parametrize("name", ["a b/c", "4bit", "a:b:c"])
def test_an_installed_one_whose_name_is_no_part_of_an_id_is_left_out_and_said(
    name: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(file.parent, monkeypatch, f"{name} = mine:Mine")
    assert name not in chosen_impls(None)
    told = capsys.readouterr().err
    assert told.startswith(f"left out: the installed implementation mine:Mine is called {name!r}, and a name is a letter")
    assert told.count("\n") == 1
    assert implementations()[name].why_not(PROBLEM, CPU) == misnamed()[0]
    with pytest.raises(ValueError, match="and a name is a letter"):
        implementation(name)


def test_entry_points_that_cannot_be_read_are_one_sentence(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(file.parent, monkeypatch, "mine")
    with pytest.raises(
        ValueError, match=r"^the entry points of the installed package outside cannot be read; reinstall or remove"
    ):
        names()


@pytest.mark.parametrize("reason", [True, False, 3, 0, ["a"], "two\nlines", "\n", ""])
def test_a_reason_that_is_no_sentence_is_no_refusal(reason: object, file: Path) -> None:
    file.write_text(SOURCE.format(name="mine").replace('"it only says no."', repr(reason)))
    with pytest.raises(TypeError, match=r"^why_not gives one line that says why not, or None, and not "):
        why_not(f"{file}:Mine", PROBLEM, "cpu")
    with pytest.raises(TypeError, match="why_not gives one line"):
        raise Unsupported(reason)  # type: ignore[arg-type]


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
