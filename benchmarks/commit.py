"""Which commit the tree is at. Everything works without git as well; the commit is then unknown."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile

from benchmarks.source import ROOT, counts, hash_of
from impls.errors import CommandError

FULL_HASH = re.compile(r"[0-9a-f]{40}")


def current_commit() -> str:
    """Full hash of HEAD, or "unknown" where the tree is no git checkout (a copy inside another repository is none)."""
    return _git("rev-parse", "HEAD") or "unknown"


def resolve_commit(name: str) -> str:
    """Full hash of what a user calls a commit. Raises CommandError where git does not know it and it is no full hash."""
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found is None and not FULL_HASH.fullmatch(name):
        raise CommandError(f"there is no commit {name!r} here; give its full hash of 40 digits.")
    return found or name


def require_sources(commit: str, source: str) -> None:
    """Raises CommandError where git has `commit`, and its sources are others than those of the hash `source`."""
    if committed_source(commit) not in (None, source):
        raise CommandError(f"commit {commit[:8]} has other sources than these; check it out, without changes, to measure it.")


def committed_source(commit: str) -> str | None:
    """What `source_hash` gives for a checkout of `commit`; None where git does not have it."""
    archive = _git_bytes("archive", "--format=tar", commit) if FULL_HASH.fullmatch(commit) else None
    if archive is None:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = ((member.name, tar.extractfile(member)) for member in tar if counts(member.name))
        return hash_of({name: file.read() for name, file in members if file is not None})


def is_lost(commit: str) -> bool:
    """Whether HEAD does not descend from `commit`: it is unknown, or was squashed or rebased away."""
    return commit == "unknown" or _git("merge-base", "--is-ancestor", commit, "HEAD") is None


def commit_seconds(commit: str) -> int | None:
    """When `commit` was made, seconds since 1970; None where git does not have it."""
    found = _git("show", "--no-patch", "--format=%ct", "--end-of-options", commit)
    return int(found) if found else None


def _git(*arguments: str) -> str | None:
    printed = _git_bytes(*arguments)
    return None if printed is None else printed.decode(errors="replace").strip()


def _git_bytes(*arguments: str) -> bytes | None:
    """What git prints; None where it fails, or the tree is no checkout: a repository around the tree is another's."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(ROOT.parent)}
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
