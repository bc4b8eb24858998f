"""Probe results as text and as JSON, and what changed between two releases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from impls.isa import divide
from impls.isa.divide import Verdict, verdict
from impls.isa.limits import LIMITS
from impls.isa.program import Program
from impls.isa.result import Cell, Probe

JSON_SCHEMA = 1

Change = Literal["gained", "lost", "native", "emulated", "opcodes", "reason"]
"""Between two releases a cell is newly accepted, newly refused, became native or emulated (or nothing at all, which counts
as native), kept its verdict with other opcodes, or is refused for another kind of reason."""


@dataclass(frozen=True)
class Difference:
    """One cell that two releases see differently."""

    program: str
    target: str
    change: Change
    before: str
    after: str


def matrix(probe: Probe, programs: Sequence[Program]) -> str:
    """Families by targets: how many programs are accepted, and how many of these are emulated."""
    names = [target.removeprefix("sm_") for target in probe.targets]
    rows = []
    for family, members in groupby(programs, key=lambda program: program.family):
        group = list(members)
        counts = [_count(probe, group, target) for target in probe.targets]
        rows.append([family, str(len(group)), *counts])
    legend = "accepted programs of each family; ~n: n of them emulated; .: none accepted; targets without their sm_"
    return f"{_table([['family', 'all', *names], *rows])}\n{legend}\n"


def _count(probe: Probe, group: Sequence[Program], target: str) -> str:
    verdicts = [verdict(program, probe.cells[program.id][target]) for program in group]
    accepted = len(verdicts) - verdicts.count("refused")
    emulated = verdicts.count("emulated")
    return f"{accepted}~{emulated}" if emulated else str(accepted or ".")


def details(probe: Probe, programs: Sequence[Program]) -> str:
    """Each program with its verdict on each target, and the opcodes or the refusal; equal targets share a line."""
    lines = []
    for program in programs:
        lines.append(program.id)
        found: dict[str, list[str]] = {}
        for target in probe.targets:
            found.setdefault(_describe(program, probe.cells[program.id][target], target), []).append(target)
        lines += [f"  {' '.join(targets)}: {text}" for text, targets in found.items()]
    return "\n".join(lines) + "\n"


def _describe(program: Program, cell: Cell, target: str) -> str:
    what = verdict(program, cell)
    if cell.error:
        text = re.sub(rf"\b{target}\b", "this target", cell.error.text)
        return f"refused ({cell.error.kind}): {text}"
    warned = "".join(f" (warning: {text})" for text in cell.warnings)
    if cell.opcodes is None:
        return f"{what}, not disassembled{warned}"
    code = " ".join(f"{name} x{count}" if count > 1 else name for name, count in sorted(cell.opcodes.items()))
    return f"{what} {code}".rstrip() + warned


def divide_text(table: Mapping[str, Mapping[str, divide.Entry]]) -> str:
    """The divide table: for each aspect, the targets of each entry and the programs that show it."""
    lines = ["the architectural divide"]
    for aspect, row in table.items():
        lines.append(f"  {aspect}")
        found: dict[divide.Entry, list[str]] = {}
        for target, entry in row.items():
            found.setdefault(entry, []).append(target)
        for entry, targets in found.items():
            lines.append(f"    {entry.text}: {' '.join(targets)}")
            shown = "; ".join(f"{item.program} {item.verdict}" for item in entry.evidence)
            lines += [f"      shown by {shown}"] if shown else []
    return "\n".join(lines) + "\n"


def limits_text(probe: Probe) -> str:
    """Limits by targets, and what each limit means."""
    head = ["limit", *(target.removeprefix("sm_") for target in probe.targets)]
    rows = [[name, *(_limit(probe, target, name) for target in probe.targets)] for name in LIMITS]
    meanings = "\n".join(f"  {name}: {limit.meaning}" for name, limit in LIMITS.items())
    return f"{_table([head, *rows])}\n{meanings}\n-: the assembler sets no limit; ?: it gave no answer\n"


def _limit(probe: Probe, target: str, name: str) -> str:
    found = probe.limits.get(target, {})
    if name not in found:
        return "?"
    value = found[name]
    return "-" if value is None else str(value)


def caveats_text() -> str:
    return "what this cannot show\n" + "\n".join(f"  {sentence}" for sentence in divide.CAVEATS) + "\n"


def as_json(probe: Probe, programs: Sequence[Program]) -> dict[str, Any]:
    """Everything: each cell has accepted, error and opcodes, and the verdict drawn from them."""
    by_id = {program.id: program for program in programs}
    return {
        "schema": JSON_SCHEMA,
        "release": probe.release,
        "ptx_version": probe.ptx_version,
        "disassembler": probe.disassembler,
        "targets": list(probe.targets),
        "programs": {
            program.id: {
                "family": program.family,
                "ptx": program.ptx,
                "directives": program.directives,
                "native": program.native,
                "cells": {
                    target: {**cell.as_json(), "verdict": verdict(program, cell)}
                    for target, cell in probe.cells[program.id].items()
                },
            }
            for program in programs
        },
        "limits": {target: dict(found) for target, found in probe.limits.items()},
        "divide": divide.as_json(divide.divide(probe, by_id)),
        "caveats": list(divide.CAVEATS),
    }


def differences(before: Probe, after: Probe, programs: Sequence[Program]) -> list[Difference]:
    """What changed for the programs and targets that both have."""
    targets = [target for target in before.targets if target in after.targets]
    found = []
    for program in programs:
        for target in targets:
            if program.id in before.cells and program.id in after.cells:
                old, new = before.cells[program.id][target], after.cells[program.id][target]
                change = _change(program, old, new)
                if change:
                    found.append(
                        Difference(program.id, target, change, _describe(program, old, target), _describe(program, new, target))
                    )
    return found


def _change(program: Program, old: Cell, new: Cell) -> Change | None:
    if old.error and new.error:
        return "reason" if old.error.kind != new.error.kind else None
    if old.error or new.error:
        return "gained" if old.error else "lost"
    was: Verdict = verdict(program, old)
    now: Verdict = verdict(program, new)
    if was != now:
        return "emulated" if now == "emulated" else "native"
    return "opcodes" if set(old.opcodes or ()) != set(new.opcodes or ()) else None


def differences_text(before: Probe, after: Probe, found: Sequence[Difference]) -> str:
    """Gains, losses and changes of verdict one by one; the rest is counted."""
    listed = ("gained", "lost", "native", "emulated")
    programs = len(before.cells.keys() & after.cells.keys())
    targets = len(set(before.targets) & set(after.targets))
    releases = f"{before.release} (PTX {before.ptx_version}) -> {after.release} (PTX {after.ptx_version})"
    lines = [f"{releases}: {programs} programs on {targets} targets compared"]
    for label, one, other in (("only in", before, after), ("only in", after, before)):
        missing = [target for target in one.targets if target not in other.targets]
        lines += [f"  targets {label} {one.release}: {' '.join(missing)}"] if missing else []
    for change in listed:
        for program, cells in groupby((item for item in found if item.change == change), key=lambda item: item.program):
            group = list(cells)
            lines.append(f"  {change} {program} on {' '.join(item.target for item in group)}")
            lines.append(f"    was {group[0].before}")
            lines.append(f"    is  {group[0].after}")
    counts = {change: sum(item.change == change for item in found) for change in (*listed, "opcodes", "reason")}
    lines.append("  " + ", ".join(f"{count} {change}" for change, count in counts.items()))
    return "\n".join(lines) + "\n"


def differences_json(before: Probe, after: Probe, found: Sequence[Difference]) -> dict[str, Any]:
    """Every difference, with both releases."""
    return {
        "schema": JSON_SCHEMA,
        "before": {"release": before.release, "ptx_version": before.ptx_version, "targets": list(before.targets)},
        "after": {"release": after.release, "ptx_version": after.ptx_version, "targets": list(after.targets)},
        "differences": [
            {"program": item.program, "target": item.target, "change": item.change, "before": item.before, "after": item.after}
            for item in found
        ],
    }


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned, the first to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )
