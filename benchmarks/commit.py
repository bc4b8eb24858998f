"""Which commit the tree is at. Everything works without git as well; the commit is then unknown."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from benchmarks.source import ROOT
from impls.errors import CommandError

FULL_HASH = re.compile(r"[0-9a-f]{40}")


def current_commit() -> str:
    """Full hash of HEAD, or "unknown" where the tree is no git checkout (a copy inside another repository is none)."""
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != ROOT:
        return "unknown"
    return _git("rev-parse", "HEAD") or "unknown"


def resolve_commit(name: str) -> str:
    """Full hash of what a user calls a commit. Raises CommandError where git does not know it and it is no full hash."""
    if FULL_HASH.fullmatch(name):
        return name
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found is None:
        raise CommandError(f"there is no commit {name!r} here; give its full hash of 40 digits.")
    return found


def is_lost(commit: str) -> bool:
    """Whether HEAD does not descend from `commit`: it is unknown, or was squashed or rebased away."""
    return commit == "unknown" or _git("merge-base", "--is-ancestor", commit, "HEAD") is None


def commit_seconds(commit: str) -> int | None:
    """When `commit` was made, seconds since 1970; None where git does not have it."""
    found = _git("show", "--no-patch", "--format=%ct", "--end-of-options", commit)
    return int(found) if found else None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
