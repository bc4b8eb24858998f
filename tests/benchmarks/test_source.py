"""The source hash changes with what is measured and with nothing else."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from benchmarks.source import ROOT, counted_files, source_hash


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in (("impls/a.py", "a"), ("impls/sub/b.cu", "b"), ("benchmarks/c.py", "c"), ("dashboards/d.py", "d")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_it_is_the_documented_sum(tree):
    lines = [f"{name} {hashlib.sha256(text).hexdigest()}\n" for name, text in (("benchmarks/c.py", b"c"), ("impls/a.py", b"a"))]
    lines.append(f"impls/sub/b.cu {hashlib.sha256(b'b').hexdigest()}\n")
    assert source_hash(tree) == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_a_copy_without_git_has_the_same_hash(tree, tmp_path_factory):
    copy = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(tree, copy)
    assert source_hash(copy) == source_hash(tree)


@pytest.mark.parametrize(
    "name",
    [
        "dashboards/d.py",
        "README.md",
        "impls/README.md",
        "impls/numerics/baselines/gpu-sm_90a.json",
        "impls/__pycache__/a.txt",
        "impls/a.pyc",
        "impls/.a.py.swp",
        "benchmarks/.x/y",
    ],
)
def test_what_is_not_measured_does_not_count(tree, name):
    before = source_hash(tree)
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text("changed")
    assert source_hash(tree) == before


def test_content_names_and_new_files_count(tree):
    seen = {source_hash(tree)}
    (tree / "impls/a.py").write_text("A")
    seen.add(source_hash(tree))
    (tree / "impls/a.py").rename(tree / "impls/z.py")
    seen.add(source_hash(tree))
    (tree / "impls/sub/new.json").write_text("{}")
    seen.add(source_hash(tree))
    (tree / "benchmarks/c.py").unlink()
    seen.add(source_hash(tree))
    assert len(seen) == 5


def test_content_cannot_move_between_files_unseen(tree):
    before = source_hash(tree)
    (tree / "impls/a.py").write_text("c")
    (tree / "benchmarks/c.py").write_text("a")
    assert source_hash(tree) != before


def test_this_tree_counts_itself():
    files = counted_files(ROOT)
    assert "benchmarks/source.py" in files
    assert "impls/contract.py" in files
    assert files == sorted(files)
