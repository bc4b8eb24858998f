"""The outcome of a probe, and its compact file.

The file holds each message and each distinct cell once and each program as a row of indices, so that a release with all
its targets takes about a megabyte. In messages the target's own name is written {target}, which makes equal refusals equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from impls.errors import CommandError
from impls.files import replace_file

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
    programs: str
    """`program.digest` of what was probed: tells a result of today's catalogue from one that is out of date."""
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

    def only(self, targets: Sequence[str]) -> Probe:
        """This result on fewer targets. Raises CommandError for one that it does not have."""
        unknown = [target for target in targets if target not in self.targets]
        if unknown:
            raise CommandError(
                f"the result of ptxas {self.release} has no target {', '.join(unknown)}; it has {', '.join(self.targets)}."
            )
        cells = {program: {target: row[target] for target in targets} for program, row in self.cells.items()}
        limits = {target: self.limits[target] for target in targets if target in self.limits}
        return replace(self, targets=tuple(targets), cells=cells, limits=limits)

    def accepts(self, target: str, program: str) -> bool:
        """Whether `target`, by its exact name, takes `program`. Raises KeyError for a target or program that was not probed."""
        return self.cells[program][target].accepted


def save(probe: Probe, path: Path) -> None:
    """Write the compact file. Raises OSError that names it, and then what was there is there still."""
    messages: dict[str, int] = {}
    distinct: dict[str, int] = {}
    rows = {}
    for program in sorted(probe.cells):
        packed = [_dump(_pack(probe.cells[program][target], target, messages)) for target in probe.targets]
        rows[program] = [distinct.setdefault(text, len(distinct)) for text in packed]
    head = {
        "schema": SCHEMA,
        "release": probe.release,
        "ptx_version": probe.ptx_version,
        "disassembler": probe.disassembler,
        "programs": probe.programs,
        "targets": list(probe.targets),
        "limits": probe.limits,
    }
    lines = [f"{_dump(key)}:{_dump(value)}" for key, value in head.items()]
    lines.append('"messages":[\n' + ",\n".join(map(_dump, messages)) + "\n]")
    lines.append('"distinct":[\n' + ",\n".join(distinct) + "\n]")
    lines.append('"cells":{\n' + ",\n".join(f"{_dump(name)}:{_dump(row)}" for name, row in rows.items()) + "\n}")
    replace_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def load(path: Path) -> Probe:
    """Read a compact file. Raises CommandError when it is not one."""
    try:
        data = json.loads(path.read_text())
        if data["schema"] != SCHEMA:
            raise CommandError(f"{path} has schema {data['schema']} where {SCHEMA} is read; probe again with --update.")
        targets = tuple(data["targets"])
        unpacked: dict[tuple[int, str], Cell] = {}
        cells: dict[str, dict[str, Cell]] = {}
        for program, row in data["cells"].items():
            cells[program] = {}
            for target, index in zip(targets, row, strict=True):
                if (index, target) not in unpacked:
                    unpacked[index, target] = _unpack(data["distinct"][index], target, data["messages"])
                cells[program][target] = unpacked[index, target]
        head = (data["release"], data["ptx_version"], data["disassembler"], data["programs"])
        return Probe(*head, targets, cells, data["limits"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CommandError(f"{path} is not a probe result ({type(error).__name__}); probe again with --update.") from error


_TARGET = "{target}"
_BETWEEN = "; "
"""What joins the messages of one refusal."""


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _pack(cell: Cell, target: str, messages: dict[str, int]) -> list[object]:
    """[opcodes, warnings] of an accepted cell, [kind, messages] of a refused one; messages by their number."""

    def numbers(texts: Iterable[str]) -> list[int]:
        named = (re.sub(rf"\b{target}\b", _TARGET, text) for text in texts)
        return [messages.setdefault(text, len(messages)) for text in named]

    if cell.error:
        return [cell.error.kind, numbers(cell.error.text.split(_BETWEEN))]
    return [dict(cell.opcodes) if cell.opcodes is not None else None, numbers(cell.warnings)]


def _unpack(packed: list[Any], target: str, messages: list[str]) -> Cell:
    what, numbers = packed
    texts = [messages[number].replace(_TARGET, target) for number in numbers]
    return Cell(Refusal(what, _BETWEEN.join(texts))) if isinstance(what, str) else Cell(None, what, tuple(texts))


def committed() -> list[str]:
    """Releases whose result is committed."""
    return sorted(path.stem for path in PROBES.glob("*.json"))


def load_committed(release: str) -> Probe:
    """The committed result of `release`. Raises CommandError if there is none."""
    if release not in committed():
        raise CommandError(f"no result of release {release} is committed; there are {', '.join(committed()) or 'none'}.")
    return load(PROBES / f"{release}.json")
