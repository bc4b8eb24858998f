"""What earlier probes found, one JSON file per module or target, named by a hash over everything that decides its content.

Files are replaced whole, so two processes may share the folder; a file that cannot be read counts as absent.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from impls.files import cache_folder, replace_file
from impls.isa.toolchain import Assembler, Disassembler

_DECIDING = ("program.py", "sass.py", "diagnostics.py", "assemble.py", "result.py", "limits.py")
"""Modules of this package whose text decides what is stored."""


def default_folder() -> Path:
    """Where results are kept unless a caller names a folder."""
    return cache_folder("isa")


class Cache:
    """A folder of JSON values. Where it cannot be written, `trouble` says so in a sentence and the work goes on without it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trouble: str | None = None

    def load(self, key: str) -> Any:
        """What is stored under `key`; None if nothing is, or nothing that can be read."""
        try:
            return json.loads((self.folder / f"{key}.json").read_text())
        except (OSError, ValueError):
            return None

    def store(self, key: str, value: Any) -> None:
        """Keep `value` under `key`."""
        try:
            replace_file(self.folder / f"{key}.json", json.dumps(value).encode())
        except OSError as error:
            self.trouble = f"results are not kept for the next call: {self.folder} cannot be written ({error.strerror})."


def key(content: str, assembler: Assembler, disassembler: Disassembler | None) -> str:
    """Hash of what is asked, of both tools and of the code that reads their answers."""
    parts = [content, assembler.fingerprint, disassembler.fingerprint if disassembler else "", _code()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _code() -> str:
    here = Path(__file__).parent
    return hashlib.sha256(b"\0".join((here / name).read_bytes() for name in _DECIDING)).hexdigest()
