"""README and CONTRIBUTING: their code runs, their commands and files exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import nvfp4bench

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of a language, without the indentation they may have in a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", read(document), re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def python(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def test_python_of_the_readme_runs():
    done = python("-c", "\n".join(blocks("README.md", "python")))  # later ones use names of earlier ones
    assert done.returncode == 0, done.stderr
    assert "torch-reference-bf16" in done.stdout


def test_quick_start_is_two_targets_that_exist():
    start, *_ = blocks("README.md", "sh")
    lines = start.splitlines()
    assert len(lines) == 2
    for line in lines:
        program, target = shlex.split(line, comments=True)
        assert program == "make"
        assert re.search(rf"^{target}:", read("Makefile"), re.MULTILINE)


def test_table_of_commands_is_the_commands():
    table = dict(re.findall(r"^\| `nvfp4bench (\w+)` \| (.+) \|$", read("README.md"), re.MULTILINE))
    assert table == {name: summary for name, (_, summary) in nvfp4bench.COMMANDS.items()}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_that_are_named_exist(document):
    named = set(re.findall(r"(?<!from )\bnvfp4bench ([a-z]+)", read(document)))
    assert named and named <= set(nvfp4bench.COMMANDS)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document):
    for target in re.findall(r"\]\(([^)]+)\)", read(document)):
        assert target.startswith("https://") or (ROOT / target).is_file(), f"{document} links to {target}"


def test_changelog_has_the_version_of_the_package():
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## \[{re.escape(version)}\]", read("CHANGELOG.md"), re.MULTILINE)


def gate_of_contributing() -> list[str]:
    (command,) = (block for block in blocks("CONTRIBUTING.md", "sh") if block.startswith("nvfp4bench gate"))
    return shlex.split(command)[1:]


@pytest.mark.slow
def test_worked_example_passes_the_gate():
    done = python("nvfp4bench.py", *gate_of_contributing(), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "my-attention" in done.stdout


@pytest.mark.slow
def test_worked_example_with_a_fault_fails_the_gate(tmp_path):
    """What the first test trusts: the same command does say no."""
    example = read("examples/my_attention.py")
    broken = tmp_path / "my_attention.py"
    broken.write_text(example.replace("problem.kv_len - problem.q_len,", "problem.kv_len - problem.q_len + 1,"))
    assert broken.read_text() != example
    arguments = [word.replace("examples/my_attention.py", str(broken)) for word in gate_of_contributing()]
    assert python("nvfp4bench.py", *arguments, timeout=600).returncode == 1
