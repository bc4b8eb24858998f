"""A probe result packed for the page's matrix: every text and every row of outcomes once, all else by number.

static/matrix.js reads it:

    targets    names, the columns of `rows`
    families   names
    programs   [family, what the id has behind the family's name, row]
    rows       an outcome for each target
    outcomes   [verdict, opcodes, warnings] of an accepted cell, [verdict, kind, messages] of a refused one
               verdict, kind, messages and warnings by number; opcodes as [opcode, how often, opcode, how often, ...],
               or null where nothing could disassemble the code
    verdicts, kinds, messages, opcodes    the texts

In messages a target's own name is written {target}, which makes equal refusals equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from impls.isa.divide import verdict
from impls.isa.program import Program
from impls.isa.result import Cell, Probe

BETWEEN_MESSAGES = "; "


class _Numbers:
    """Distinct values in the order of their first use."""

    def __init__(self) -> None:
        self._found: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        return self._found.setdefault(value, len(self._found))

    def values(self) -> list[Any]:
        return list(self._found)


class _Packer:
    def __init__(self) -> None:
        self.verdicts, self.kinds, self.messages, self.opcodes = (_Numbers() for _ in range(4))
        self.families, self.outcomes, self.rows = (_Numbers() for _ in range(3))

    def program(self, program: Program, cells: Sequence[tuple[str, Cell]]) -> list[Any]:
        row = tuple(self.outcomes.of(self._outcome(program, cell, target)) for target, cell in cells)
        return [self.families.of(program.family), program.id.removeprefix(program.family), self.rows.of(row)]

    def _outcome(self, program: Program, cell: Cell, target: str) -> tuple[Any, ...]:
        became = self.verdicts.of(verdict(program, cell))
        if cell.error:
            texts = self._texts(cell.error.text.split(BETWEEN_MESSAGES), target)
            return became, self.kinds.of(cell.error.kind), texts
        code = None
        if cell.opcodes is not None:
            code = tuple(number for name, count in sorted(cell.opcodes.items()) for number in (self.opcodes.of(name), count))
        return became, code, self._texts(cell.warnings, target)

    def _texts(self, texts: Sequence[str], target: str) -> tuple[int, ...]:
        return tuple(self.messages.of(re.sub(rf"\b{re.escape(target)}\b", "{target}", text)) for text in texts)


def pack(probe: Probe, programs: Sequence[Program]) -> dict[str, Any]:
    """`programs` on all targets of `probe`, which must have probed them, as described above."""
    packer = _Packer()
    rows = [
        packer.program(program, [(target, probe.cells[program.id][target]) for target in probe.targets]) for program in programs
    ]
    return {
        "release": probe.release,
        "targets": list(probe.targets),
        "families": packer.families.values(),
        "programs": rows,
        "rows": packer.rows.values(),
        "outcomes": packer.outcomes.values(),
        "verdicts": packer.verdicts.values(),
        "kinds": packer.kinds.values(),
        "messages": packer.messages.values(),
        "opcodes": packer.opcodes.values(),
    }


def sources(programs: Sequence[Program]) -> list[list[Any]]:
    """[id, PTX, directives, pattern of native opcodes] of each program: what a reader sees who opens it."""
    return [[program.id, program.ptx, program.directives, program.native] for program in programs]
