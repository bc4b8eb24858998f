"""The outcome of a probe, and its compact file.

The file holds each distinct cell once and each program as a row of indices, so a release with all its targets stays below
a megabyte. In error texts the target's own name is written {target}, which makes equal refusals equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from impls.errors import CommandError

SCHEMA = 1
PROBES = Path(__file__).parent / "probes"
HOLES = ("crash", "timeout")
"""Kinds of refusal that the machine, not the program, may be the cause of."""


@dataclass(frozen=True)
class Refusal:
    """Why a program was not assembled. `kind` is one of `diagnostics.KINDS`, "crash", "timeout" or "other"."""

    kind: str
    text: str


@dataclass(frozen=True)
class Cell:
    """One program on one target. `error` is there exactly when it was refused, `opcodes` only when it was accepted."""

    error: Refusal | None = None
    opcodes: Mapping[str, int] | None = None
    """{SASS opcode: how often}, without the scaffold; None also where nothing could disassemble the cubin."""
    warnings: tuple[str, ...] = ()
    """What ptxas said although it accepted."""

    @property
    def accepted(self) -> bool:
        return self.error is None

    def as_json(self) -> dict[str, Any]:
        """{accepted, error, opcodes} and, where ptxas warned, warnings."""
        made: dict[str, Any] = {
            "accepted": self.accepted,
            "error": {"kind": self.error.kind, "text": self.error.text} if self.error else None,
            "opcodes": dict(self.opcodes) if self.opcodes is not None else None,
        }
        return {**made, "warnings": list(self.warnings)} if self.warnings else made

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Cell:
        error = value["error"]
        return Cell(
            Refusal(error["kind"], error["text"]) if error else None, value["opcodes"], tuple(value.get("warnings", ()))
        )


@dataclass(frozen=True)
class Probe:
    """All programs on some targets of one release."""

    release: str
    ptx_version: str
    disassembler: str | None
    targets: tuple[str, ...]
    cells: Mapping[str, Mapping[str, Cell]]
    """{program id: {target: cell}}."""
    limits: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    """{target: {limit: value}}, see `impls.isa.limits`."""

    def rows(self) -> Iterator[tuple[str, str, Cell]]:
        """(program id, target, cell) of every cell."""
        for program, by_target in self.cells.items():
            for target, cell in by_target.items():
                yield program, target, cell

    def accepts(self, target: str, program: str) -> bool:
        """Whether `target`, by its exact name, takes `program`. Raises KeyError for a target or program that was not probed."""
        return self.cells[program][target].accepted


def save(probe: Probe, path: Path) -> None:
    """Write the compact file."""
    distinct: dict[str, int] = {}
    rows = {}
    for program in sorted(probe.cells):
        texts = [_dump(probe.cells[program][target].as_json()).replace(target, _TARGET) for target in probe.targets]
        rows[program] = [distinct.setdefault(text, len(distinct)) for text in texts]
    head = {
        "schema": SCHEMA,
        "release": probe.release,
        "ptx_version": probe.ptx_version,
        "disassembler": probe.disassembler,
        "targets": list(probe.targets),
        "limits": probe.limits,
    }
    lines = [f"{_dump(key)}:{_dump(value)}" for key, value in head.items()]
    lines.append('"distinct":[\n' + ",\n".join(distinct) + "\n]")
    lines.append('"cells":{\n' + ",\n".join(f"{_dump(name)}:{_dump(row)}" for name, row in rows.items()) + "\n}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


_TARGET = "{target}"


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def load(path: Path) -> Probe:
    """Read a compact file. Raises CommandError when it is not one."""
    try:
        data = json.loads(path.read_text())
        if data["schema"] != SCHEMA:
            raise CommandError(f"{path} has schema {data['schema']} where {SCHEMA} is read; probe again with --update.")
        targets = tuple(data["targets"])
        distinct = [(Cell.from_json(value), _TARGET in _dump(value)) for value in data["distinct"]]
        cells = {
            program: {
                target: _named(cell, target) if names_target else cell
                for target, (cell, names_target) in zip(targets, (distinct[index] for index in row), strict=True)
            }
            for program, row in data["cells"].items()
        }
        return Probe(data["release"], data["ptx_version"], data["disassembler"], targets, cells, data["limits"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CommandError(f"{path} is not a probe result ({type(error).__name__}); probe again with --update.") from error


def _named(cell: Cell, target: str) -> Cell:
    """`cell` with its target's name put back into the texts."""
    error = cell.error and Refusal(cell.error.kind, cell.error.text.replace(_TARGET, target))
    return Cell(error, cell.opcodes, tuple(text.replace(_TARGET, target) for text in cell.warnings))


def committed() -> list[str]:
    """Releases whose result is committed."""
    return sorted(path.stem for path in PROBES.glob("*.json"))


def load_committed(release: str) -> Probe:
    """The committed result of `release`. Raises CommandError if there is none."""
    if release not in committed():
        raise CommandError(f"no result of release {release} is committed; there are {', '.join(committed()) or 'none'}.")
    return load(PROBES / f"{release}.json")
