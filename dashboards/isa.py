"""The page of instruction sets: the committed results of `nvfp4bench isa` made into isa.html and its data.

data/isa-<release>.js            the matrix of one ptxas release, see `dashboards.matrix`
data/isa-<release>-<release>.js  what changed from one release to the next
data/isa-programs.js             the programs themselves
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any

from jinja2 import Environment as Templates

from dashboards.matrix import pack, sources
from dashboards.rows import Row
from dashboards.scripts import packed, script
from impls.isa import report
from impls.isa.catalogue import SOFTWARE, catalogue
from impls.isa.divide import ASPECTS, CAVEATS, Entry, divide, verdict
from impls.isa.limits import LIMITS
from impls.isa.program import Program
from impls.isa.result import Probe

PAGE = "isa.html"
CHANGES = ("gained", "lost", "native", "emulated", "opcodes", "reason")


@dataclass(frozen=True)
class TargetClass:
    """Targets that one table cannot tell apart, and their column in it: {row: what stands there}."""

    targets: tuple[str, ...]
    column: Mapping[str, Any]


@dataclass(frozen=True)
class Release:
    """What one ptxas release says, as the page shows it."""

    probe: Probe
    programs: tuple[Program, ...]
    """Those of the catalogue that it was asked."""

    @property
    def forgotten(self) -> int:
        """How many programs of the result the catalogue has no more: their verdict cannot be told."""
        return len(self.probe.cells) - len(self.programs)

    @property
    def counts(self) -> dict[str, int]:
        """{verdict: cells}."""
        cells = self.probe.cells
        return dict(
            Counter(verdict(one, cells[one.id][target]) for one in self.programs for target in self.probe.targets).most_common()
        )

    @cached_property
    def divide(self) -> dict[str, dict[str, Entry]]:
        return divide(self.probe, self._by_id)

    @property
    def classes(self) -> list[TargetClass]:
        """Targets by the whole of their column in the divide table."""
        return _classes(self.probe.targets, lambda target: {aspect: row[target] for aspect, row in self.divide.items()})

    @property
    def chips(self) -> list[TargetClass]:
        """The classes of the `a` targets alone: those that name one chip and have all that it has."""
        own = [target for target in self.probe.targets if target.endswith("a")]
        return [
            TargetClass(kept, one.column)
            for one in self.classes
            if (kept := tuple(target for target in one.targets if target in own))
        ]

    @property
    def limits(self) -> list[TargetClass]:
        return _classes(self.probe.targets, lambda target: dict(self.probe.limits.get(target, {})))

    def evidence(self, aspect: str, targets: Sequence[str]) -> list[tuple[str, dict[str, list[str]]]]:
        """[(program, {verdict: those of `targets`})] behind an entry of `divide`.

        Where no statement was confirmed: all programs that were asked for one.
        """
        entry = self.divide[aspect][targets[0]]
        asked = {item.program for one in ASPECTS if one.name == aspect for way in one.statements for item in way.evidence}
        shown: list[tuple[str, dict[str, list[str]]]] = []
        for program in [item.program for item in entry.evidence] or sorted(asked):
            verdicts: dict[str, list[str]] = {}
            for target in targets:
                verdicts.setdefault(verdict(self._by_id[program], self.probe.cells[program][target]), []).append(target)
            shown.append((program, verdicts))
        return shown

    @cached_property
    def _by_id(self) -> dict[str, Program]:
        return {program.id: program for program in self.programs}


@dataclass(frozen=True)
class Change:
    """What two releases see differently."""

    before: Release
    after: Release
    rows: Sequence[Row]
    """One for each program and each way in which it changed, with its targets."""

    @property
    def name(self) -> str:
        return f"isa-{self.before.probe.release}-{self.after.probe.release}"

    @property
    def counts(self) -> dict[str, int]:
        """{kind of change: cells}, in the order of CHANGES."""
        return {change: sum(row["cells"] for row in self.rows if row["change"] == change) for change in CHANGES}

    @property
    def targets(self) -> dict[str, list[str]]:
        """{release: the targets that only it has}."""
        sides = (self.before.probe, self.after.probe), (self.after.probe, self.before.probe)
        return {one.release: alone for one, other in sides if (alone := [t for t in one.targets if t not in other.targets])}


def newest_first(probes: Sequence[Probe]) -> list[Probe]:
    """By the numbers of the release: 13.10 is newer than 13.9."""
    return sorted(probes, key=lambda probe: [int(part) for part in re.findall(r"\d+", probe.release)], reverse=True)


def build(probes: Sequence[Probe], templates: Templates, frame: Mapping[str, Any]) -> dict[str, bytes]:
    """The page's files. `probes` come the newest first; `frame` is what base.html needs."""
    releases = [Release(one, tuple(program for program in catalogue() if program.id in one.cells)) for one in probes]
    changes = [_change(before, after) for after, before in pairwise(releases)]
    page = templates.get_template(PAGE).render(
        frame, page=PAGE, releases=releases, changes=changes, limits=LIMITS, caveats=CAVEATS
    )
    files = {PAGE: page.encode("utf-8", "replace")}
    for one in releases:
        name = f"isa-{one.probe.release}"
        files[f"data/{name}.js"] = script(name, pack(one.probe, one.programs))
    for change in changes:
        files[f"data/{change.name}.js"] = script(change.name, packed(change.rows))
    files["data/isa-programs.js"] = script("isa-programs", {"software": SOFTWARE, "programs": sources(catalogue())})
    return files


def _classes(targets: Sequence[str], column: Callable[[str], Mapping[str, Any]]) -> list[TargetClass]:
    """`targets` with the same column together, in the order of the first of each."""
    found: list[TargetClass] = []
    for target in targets:
        mine = column(target)
        same = next((number for number, one in enumerate(found) if one.column == mine), None)
        if same is None:
            found.append(TargetClass((target,), mine))
        else:
            found[same] = TargetClass((*found[same].targets, target), mine)
    return found


def _change(before: Release, after: Release) -> Change:
    def alike(item: report.Difference) -> tuple[str, str, str, str]:
        return item.program, item.change, item.before, item.after

    found = sorted(report.differences(before.probe, after.probe, after.programs), key=alike)
    rows = []
    for (program, change, was, now), items in groupby(found, key=alike):
        targets = [item.target for item in items]
        rows.append(
            {"change": change, "program": program, "targets": " ".join(targets), "cells": len(targets), "was": was, "is": now}
        )
    return Change(before, after, sorted(rows, key=lambda row: CHANGES.index(row["change"])))
