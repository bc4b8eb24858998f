"""What git says of the tree: of this one alone, and nothing where there is no git."""

from __future__ import annotations

import shutil

import pytest

from benchmarks import commit
from benchmarks.source import source_hash
from impls.errors import CommandError
from tests.benchmarks.checkout import Checkout


@pytest.fixture
def tree(tmp_path, monkeypatch):
    made = Checkout(tmp_path / "tree")
    monkeypatch.setattr(commit, "ROOT", made.folder)
    return made


def test_a_commit_has_the_source_hash_of_its_checkout(tree):
    names = ("README.md", "impls/a.py", "impls/.b/c", "impls/d.md", "benchmarks/e f/g.py", "impls/\u00e4.py")
    made = {}
    for number, name in enumerate(names):
        committed = tree.commit(name, f"line {number}\n")
        made[committed] = source_hash(tree.folder)
    assert {name: commit.committed_source(name) for name in made} == made
    assert len(set(made.values())) == 4
    (tree.folder / "impls/a.py").write_text("changed")
    assert commit.committed_source(commit.current_commit()) != source_hash(tree.folder)


def test_sources_are_refused_where_git_has_others_and_only_there(tree, monkeypatch):
    made = tree.commit("impls/a.py", "a")
    commit.require_sources(made, source_hash(tree.folder))
    with pytest.raises(CommandError, match=f"^commit {made[:8]} has other sources than these; "):
        commit.require_sources(made, "1" * 64)
    for unknown in ("f" * 40, "unknown"):
        commit.require_sources(unknown, "1" * 64)
    monkeypatch.setenv("PATH", str(tree.folder))
    commit.require_sources(made, "1" * 64)


def test_a_tag_is_its_commit(tree):
    made = tree.commit("impls/a.py", "a")
    assert commit.resolve_commit(tree.tag("new")) == commit.resolve_commit("HEAD") == made


def test_a_repository_around_the_tree_is_another_one(tree, monkeypatch):
    made = tree.commit("inside/impls/a.py", "a")
    monkeypatch.setattr(commit, "ROOT", tree.folder / "inside")
    assert (commit.current_commit(), commit.committed_source(made), commit.commit_seconds(made)) == ("unknown", None, None)
    assert commit.is_lost(made)
    assert commit.resolve_commit(made) == made
    with pytest.raises(CommandError, match="there is no commit 'HEAD' here"):
        commit.resolve_commit("HEAD")


def test_a_tree_without_git_has_no_commit(tree):
    made = tree.commit("impls/a.py", "a")
    shutil.rmtree(tree.folder / ".git")
    assert (commit.current_commit(), commit.committed_source(made)) == ("unknown", None)
