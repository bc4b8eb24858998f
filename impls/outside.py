"""An implementation in somebody's file: what it is made of, and what it calls itself.

The latter is asked for in a child: its module may do anything when imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from impls.errors import CommandError
from impls.registry import implementation
from impls.worker import Worker

SOURCES = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".ptx")
TIMEOUT = 120.0
"""Seconds that importing it may take, torch and what it compiles included."""


def name_of_file(place: str) -> str:
    """The name of the implementation at path/to/file.py:Class. Raises CommandError if it does not load."""
    with Worker("impls.outside:answer_name", env={"TRITON_INTERPRET": "1"}) as worker:
        reply = worker.call({"impl": place}, timeout=TIMEOUT)
    if reply.status != "ok":
        raise CommandError(f"cannot use {place}: {reply.sentence}")
    if reply.value["why_not"]:
        raise CommandError(reply.value["why_not"])
    return str(reply.value["name"])


def hash_of_file(place: str) -> str:
    """SHA-256 of the file at path/to/file.py:Class and of the sources beside it, which it may import or compile.

    What it takes from other folders is not noticed.
    """
    path = Path(place.rpartition(":")[0])
    files = sorted({path, *(one for one in path.parent.iterdir() if one.suffix in SOURCES and one.is_file())})
    lines = (f"{one.name} {hashlib.sha256(one.read_bytes()).hexdigest()}\n" for one in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def answer_name(request: Mapping[str, Any]) -> dict[str, str | None]:
    """The child's side of `name_of_file`: its name, or the sentence that says why it cannot be used."""
    try:
        return {"name": implementation(request["impl"]).name, "why_not": None}
    except ValueError as error:
        return {"name": None, "why_not": str(error)}
