"""A small repository of git to make commits in."""

from __future__ import annotations

import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")


class Checkout:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder.resolve()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        command = ["git", *IDENTITY, *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout.strip()

    def commit(self, name: str, text: str) -> str:
        """The hash of a commit where the file `name` holds `text`."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", name)
        return self.git("rev-parse", "HEAD")

    def tag(self, name: str) -> str:
        """The hash of a new tag, which is not the one of its commit."""
        self.git("tag", "-a", name, "-m", name)
        return self.git("rev-parse", name)
