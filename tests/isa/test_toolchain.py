"""A tool that is not what it says it is must be refused in a sentence, and two copies of a release are one."""

from __future__ import annotations

from pathlib import Path

import pytest

from impls.errors import CommandError
from impls.isa import toolchain
from impls.isa.processes import Processes
from tests.isa.fake_tools import fake_ptxas


def executable(folder: Path, body: str) -> Path:
    path = folder / "ptxas"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def only(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Let these be the tools that are found."""
    monkeypatch.setattr(toolchain, "_candidates", lambda *names: iter(paths))


def make(folder: Path, release: str) -> Path:
    folder.mkdir()
    return fake_ptxas(folder, release=release)


def test_release_targets_and_ptx_version_are_asked_of_the_tool(tmp_path: Path) -> None:
    found = toolchain.inspect_assembler(fake_ptxas(tmp_path), Processes())
    assert found.release == "13.0.88"
    assert found.ptx_version == "9.0"
    assert found.targets == ("sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a")


def test_the_pinned_release_comes_first_then_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [make(tmp_path / str(n), release) for n, release in enumerate(["13.4.59", "13.10.1", "13.0.88", "13.4.59"])]
    only(monkeypatch, *paths)
    assert [found.release for found in toolchain.assemblers(Processes())] == ["13.0.88", "13.10.1", "13.4.59"]
    assert toolchain.choose(None, Processes()).release == "13.0.88"
    assert toolchain.choose("13.4", Processes()).path == paths[0]
    assert toolchain.choose(str(paths[1]), Processes()).release == "13.10.1"
    with pytest.raises(CommandError, match=r"no ptxas of release 13\.1 here; found are 13\.0\.88, 13\.10\.1, 13\.4\.59"):
        toolchain.choose("13.1", Processes())


def test_a_broken_ptxas_does_not_hide_one_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, executable(tmp_path, "exit 127"), make(tmp_path / "good", "13.4.59"))
    assert [found.release for found in toolchain.assemblers(Processes())] == ["13.4.59"]


def test_no_ptxas_is_a_sentence_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    with pytest.raises(
        CommandError, match=r"there is no ptxas here; install one with: pip install nvidia-cuda-nvcc==13\.0\.88"
    ):
        toolchain.choose(None, Processes())


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("exit 0", "names no CUDA release"),
        ("sleep 30", "gave no answer within 1 s"),
        ("kill -SEGV $$", "names no CUDA release"),
        ('[ "$1" = --version ] && echo "release 13.0, V13.0.88"', "lists no targets"),
    ],
)
def test_what_is_no_ptxas_is_a_sentence(tmp_path: Path, body: str, sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        toolchain.choose(str(executable(tmp_path, body)), Processes(time_limit=1.0))


def test_what_cannot_be_run_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot run .*ptxas: No such file or directory"):
        toolchain.choose(str(tmp_path / "ptxas"), Processes())
    (tmp_path / "ptxas").write_text("text")
    with pytest.raises(CommandError, match=r"cannot run .*ptxas: Permission denied"):
        toolchain.choose(str(tmp_path / "ptxas"), Processes())


def test_targets_are_sorted_by_capability_not_by_spelling() -> None:
    names = ["sm_121a", "sm_100a", "sm_90a", "sm_100f", "sm_89", "sm_90", "sm_100"]
    assert sorted(names, key=toolchain.target_key) == ["sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_121a"]
    with pytest.raises(ValueError, match="'compute_90' is not a compile target"):
        toolchain.target_key("compute_90")
