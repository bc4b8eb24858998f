"""What earlier probes found, one JSON file per module or target, named by a hash over everything that decides its content.

Files are replaced whole, so two processes may share the folder; a file that cannot be read counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from impls.isa.toolchain import Assembler, Disassembler

_DECIDING = ("program.py", "sass.py", "diagnostics.py", "assemble.py", "result.py", "limits.py")
"""Modules of this package whose text decides what is stored."""


def default_folder() -> Path:
    """$XDG_CACHE_HOME/nvfp4bench/isa, in ~/.cache where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nvfp4bench" / "isa"


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
        temporary: str | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            with os.fdopen(handle, "w") as file:
                json.dump(value, file)
            Path(temporary).replace(self.folder / f"{key}.json")
        except OSError as error:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)
            self.trouble = f"results are not kept for the next call: {self.folder} cannot be written ({error.strerror})."


def key(content: str, assembler: Assembler, disassembler: Disassembler | None) -> str:
    """Hash of what is asked, of both tools and of the code that reads their answers."""
    parts = [content, assembler.fingerprint, disassembler.fingerprint if disassembler else "", _code()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _code() -> str:
    here = Path(__file__).parent
    return hashlib.sha256(b"\0".join((here / name).read_bytes() for name in _DECIDING)).hexdigest()
