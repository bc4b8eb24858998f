"""What came of a cell, as a record that any journal can hold: numbers, or a status with its sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from benchmarks.cells import CellSpec
from benchmarks.journal import encode
from benchmarks.records import Cell, Status, from_json
from impls.worker import Reply

FOLDERS = re.compile(r"(?<![\w.:/*?\]-])/(?:[\w.+@-]+/)+")
"""The folders of an absolute path: they name this host and its user, and say nothing elsewhere. File names stay."""
MAX_SENTENCE = 1000
MEASURED = (
    "series",
    "clocks",
    "late",
    "apart",
    "numerics",
    "launches",
    "kernels",
    "counters",
    "rules",
    "cache_layout",
    "work",
    "plan",
    "prepare_seconds",
    "compile_seconds",
)
"""What of a worker's reply goes into the record."""


def cell_of(spec: CellSpec, how: str, measured: Mapping[str, Any]) -> Cell:
    """The record of what was measured; a failed one, with the reason, where that makes none."""
    fields = {name: measured[name] for name in MEASURED if name in measured}
    try:
        cell = from_json({"kind": "cell", "id": spec.id, "suite": spec.suite, "how": how, "status": "ok", **fields})
        assert isinstance(cell, Cell)
        encode(cell)
    except ValueError as error:
        return without_number(spec, how, "failed", f"what it measured is no record: {error}")
    return cell


def failure_of(spec: CellSpec, how: str, reply: Reply) -> Cell:
    """The record of a reply that is not ok."""
    assert reply.status != "ok"
    return without_number(spec, how, reply.status, reply.sentence or "")


def without_number(spec: CellSpec, how: str, status: Status, sentence: str) -> Cell:
    told = FOLDERS.sub("", sentence).strip()[:MAX_SENTENCE] or "no reason was given."
    return Cell(id=spec.id, suite=spec.suite, how=how, status=status, sentence=told)
