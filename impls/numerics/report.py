"""The gate's verdicts as a table, as JSON and as JUnit."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from impls.cuda.emulator.machine.schedules import SCHEDULES
from impls.numerics.baselines import toolchain
from impls.numerics.gate import Verdict, refused_as_a_whole

SCHEMA = 1
MEASURED = ("numerics", "over_bound", "bounds", "positions", "plan", "schedules", "rules")
HEADINGS = ("implementation", "case", "status", "error/bound", "relative L2", "/baseline", "")


def table(verdicts: Sequence[Verdict]) -> str:
    """A line for each case; one line for an implementation that is unsupported as a whole."""
    refused = refused_as_a_whole(verdicts)
    lines: list[tuple[str, ...]] = [HEADINGS]
    lines += [_row(verdict) for verdict in verdicts if verdict.implementation not in refused]
    lines += [(name, "all", "unsupported", "", "", "", sentence) for name, sentence in refused.items()]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS) - 1)]
    return "\n".join(
        "  ".join([*(word.ljust(width) for word, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def summary(verdicts: Sequence[Verdict], *, holds: bool, named: Collection[str]) -> str:
    """One paragraph: how many, and the word; of an emulator also what its numbers rest on."""
    counts = Counter(verdict.status for verdict in verdicts)
    unbaselined = sum(verdict.measured is not None and verdict.baseline is None for verdict in verdicts)
    parts = [f"{count} {status}" for status, count in counts.items()]
    if unbaselined:
        parts.append(f"{unbaselined} had no baseline")
    asked = f" {', '.join(sorted(named))} was asked for and cannot run here." if named else ""
    return f"{'holds' if holds else 'does not hold'}: {', '.join(parts)}.{asked}{_trust(verdicts)}"


def as_json(verdicts: Sequence[Verdict], *, on: str, arch: str, baseline: str, holds: bool, named: Collection[str]) -> str:
    """Everything, as JSON without Inf and NaN (they are the strings "inf" and "nan").

    schema, on, arch, baseline (file name), toolchain, holds
    refused    {implementation: sentence} of those asked for by name that cannot run at all
    rules      {name: status} of the emulator's rules that any cell rests on; empty where nothing was emulated
    cells      [{implementation, case, status, sentence, seconds, numerics, over_bound, bounds, positions, plan, schedules,
                 rules, baseline, baseline_ratio}]; what was not measured is null
    """
    refused = refused_as_a_whole(verdicts)
    data = {
        "schema": SCHEMA,
        "on": on,
        "arch": arch,
        "baseline": baseline,
        "toolchain": toolchain(on),
        "holds": holds,
        "refused": {name: refused[name] for name in sorted(named)},
        "rules": rules(verdicts),
        "cells": [_cell(verdict) for verdict in verdicts],
    }
    return json.dumps(_plain(data), indent=1, allow_nan=False) + "\n"


def as_junit(verdicts: Sequence[Verdict], *, named: Collection[str]) -> str:
    """A test suite for each implementation, a test for each case; unsupported is skipped."""
    root = ElementTree.Element("testsuites", name="nvfp4bench gate")
    for name in dict.fromkeys(verdict.implementation for verdict in verdicts):
        mine = [verdict for verdict in verdicts if verdict.implementation == name]
        broken = {verdict.case for verdict in mine if not verdict.holds or name in named}
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(len(mine)),
            failures=str(len(broken)),
            skipped=str(sum(verdict.status == "unsupported" and name not in named for verdict in mine)),
            time=f"{sum(verdict.seconds for verdict in mine):.3f}",
        )
        for verdict in mine:
            test = ElementTree.SubElement(suite, "testcase", classname=name, name=verdict.case, time=f"{verdict.seconds:.3f}")
            if verdict.case in broken:
                ElementTree.SubElement(test, "failure", type=verdict.status, message=_xml(verdict.sentence))
            elif verdict.status == "unsupported":
                ElementTree.SubElement(test, "skipped", message=_xml(verdict.sentence))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def rules(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """{name: status} of the emulator's rules that any of them rests on, sorted."""
    found: dict[str, str] = {}
    for verdict in verdicts:
        if verdict.measured is not None:
            found |= verdict.measured["rules"]
    return dict(sorted(found.items()))


def _trust(verdicts: Sequence[Verdict]) -> str:
    """How far the numbers of an emulator go, as a line of its own; nothing where nothing was emulated."""
    found = rules(verdicts)
    if not found:
        return ""
    documented = [name for name, status in found.items() if status == "documented only"]
    rest = f" that are only documented: {'; '.join(documented)}" if documented else " that are only documented"
    return f"\nPTX executed, SASS not; rests on {len(documented)} of {len(found)} rules{rest}."


def _row(verdict: Verdict) -> tuple[str, ...]:
    numbers = ("", "", "")
    if verdict.measured is not None:
        numerics, ratio = verdict.measured["numerics"], verdict.baseline_ratio
        numbers = (
            f"{numerics['error_over_bound']:.3f}",
            f"{numerics['relative_l2']:.2e}",
            "none" if ratio is None else f"{ratio:.2f}",
        )
    return (verdict.implementation, verdict.case, verdict.status, *numbers, verdict.sentence or _orders(verdict))


def _orders(verdict: Verdict) -> str:
    """Says so where an emulator did not run a case in all the orders that it has."""
    orders = verdict.measured["schedules"] if verdict.measured is not None else ()
    return f"in the schedule {', '.join(orders)} alone" if 0 < len(orders) < len(SCHEDULES) else ""


def _cell(verdict: Verdict) -> dict[str, Any]:
    measured = verdict.measured or dict.fromkeys(MEASURED)
    return {
        "implementation": verdict.implementation,
        "case": verdict.case,
        "status": verdict.status,
        "sentence": verdict.sentence,
        "seconds": round(verdict.seconds, 3),
        **measured,
        "baseline": verdict.baseline,
        "baseline_ratio": verdict.baseline_ratio,
    }


def _plain(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, Mapping):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    return data


def _xml(sentence: str | None) -> str:
    """Without what XML 1.0 cannot hold: a broken implementation may put anything into its message."""
    return "".join(c if c.isprintable() else "?" for c in sentence or "")
