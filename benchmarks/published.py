"""Results that are kept: whether they are sound, which commit they belong to, how small they can be."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.asv_file import BENCHMARKS, asv_path, benchmark_list, handed_to_asv, result_file
from benchmarks.asv_machine import machine_fields
from benchmarks.commit import committed_source, current_commit, is_lost
from benchmarks.journal import Journal, JournalError, Record, journal_path, read_records, read_results, rewrite, what_counts
from benchmarks.records import Cell, Run, to_json

MAX_BYTES = 20 * 10**6
HOST_PATH = re.compile(r"(?<![\w.:/*?\]-])/[\w.+@-]+/[\w.+@/-]+")
"""An absolute path with at least two parts. The parts of a cell id, or of a pattern of ids, do not begin with a slash."""


def faults(results: Path, source: str) -> list[str]:
    """A sentence for everything that keeps the results from being published. Raises JournalError where there are none."""
    journals, found = read_results(results)
    if not journals and not found:
        raise JournalError(f"there are no results in {results}; `nvfp4bench run` makes some.")
    impls, clashes = handed_to_asv(journals)
    found += clashes
    for journal in journals:
        found += journal.problems
        found += [f"{journal.path} names a path of this host: {path}" for path in _host_paths(journal)]
        if journal.run.commit != "unknown":
            found += _asv_faults(results, journal, impls)
    for journal in journals:
        # what is measured from a tree that is being edited is named for the commit that the edits began from
        edited = journal.run.commit == current_commit() and journal.run.source == source
        if not edited and committed_source(journal.run.commit) not in (None, journal.run.source):
            found.append(f"{journal.path} was measured from other sources than its commit has; measure it anew.")
    for journal in newest_journals(journals).values():
        if journal.run.source != source:
            found.append(f"{journal.path} was measured from other sources than these; `nvfp4bench run` measures them anew.")
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    if size > MAX_BYTES:
        limit = f"{MAX_BYTES / 10**6:.0f} MB"
        found.append(f"{results} has {size / 10**6:.1f} MB, more than {limit}; `nvfp4bench results thin` makes it smaller.")
    return found


def adopt(results: Path, commit: str, source: str) -> tuple[list[str], list[str]]:
    """Re-home to `commit` what was measured from `source` at a commit that is unknown, or that HEAD does not descend from.

    What stood in such a journal before its newest origin was measured from something else, and is left out.
    Returns (what was done, what was refused or cannot be read) in sentences.
    """
    done = []
    journals, refused = read_results(results)
    for journal in journals:
        if journal.run.commit == commit or not is_lost(journal.run.commit):
            continue
        if journal.run.source != source:
            refused.append(f"{journal.path} cannot be adopted: it was measured from other sources than {commit[:8]}'s.")
            continue
        target = journal_path(results, dataclasses.replace(journal.run, commit=commit))
        try:
            rewrite(journal.path, _rehomed(commit), target)
            asv_path(journal).unlink(missing_ok=True)
            done.append(f"{journal.path} is now {target}.")
        except JournalError as error:
            refused.append(str(error))
    return done, refused


def thin(results: Path) -> tuple[list[str], list[str]]:
    """Leave five numbers of each series in journals that are neither the newest nor the newest full one of a machine.

    Returns what `adopt` does.
    """
    done = []
    journals, refused = read_results(results)
    full = [journal for journal in journals if _is_full(journal)]
    kept = {journal.path for newest in (newest_journals(journals), newest_journals(full)) for journal in newest.values()}
    for journal in journals:
        if journal.path in kept or tuple(map(thinned_cell, journal.cells)) == journal.cells:
            continue
        before = journal.path.stat().st_size
        try:
            rewrite(journal.path, _thinned, journal.path)
            done.append(f"{journal.path}: {before} bytes are now {journal.path.stat().st_size}.")
        except JournalError as error:
            refused.append(str(error))
    return done, refused


def _is_full(journal: Journal) -> bool:
    """Whether any of its runs was: the newest may have gone on with a few cells."""
    records, _ = read_records(journal.path)
    return any("--full" in _words(record.command) for record in records if isinstance(record, Run))


def _words(command: str) -> list[str]:
    """Those of a command; none of one that no shell would read, which is none of ours."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def thinned_cell(cell: Cell) -> Cell:
    """Each series by its least, quartiles and greatest: the median and the quartiles of these five are those of all.

    The clocks go with the samples they belong to.
    """
    if all(len(taken) <= 5 for taken in cell.series.values()):
        return cell
    series = {name: five_numbers(samples) for name, samples in cell.series.items()}
    taken = {name: len(samples) for name, samples in cell.series.items() if len(samples) > 5}
    clocks = {name: clocks for name, clocks in cell.clocks.items() if name not in taken}
    return dataclasses.replace(cell, series=series, taken={**taken, **cell.taken}, clocks=clocks)


def five_numbers(taken: tuple[float, ...]) -> tuple[float, ...]:
    if len(taken) <= 5:
        return taken
    return (min(taken), *statistics.quantiles(taken, n=4, method="inclusive"), max(taken))


def newest_journals(journals: list[Journal]) -> dict[str, Journal]:
    """{machine: its journal that was begun last}"""
    return {journal.run.machine: journal for journal in sorted(journals, key=lambda journal: journal.run.started)}


def _rehomed(commit: str) -> Callable[[list[Record]], list[Record]]:
    def change(records: list[Record]) -> list[Record]:
        run, cells = what_counts(records)
        return [dataclasses.replace(run, commit=commit), *cells]

    return change


def _thinned(records: list[Record]) -> list[Record]:
    run, cells = what_counts(records)
    return [run, *map(thinned_cell, cells)]


def _host_paths(journal: Journal) -> list[str]:
    text = json.dumps([to_json(journal.run), *map(to_json, journal.cells)])
    return sorted(set(HOST_PATH.findall(text)))


def _asv_faults(results: Path, journal: Journal, impls: list[str]) -> list[str]:
    """What asv's files say otherwise than the journal. The date is git's, and git may not be here."""
    wanted = result_file(journal, impls)
    machine = {**machine_fields(journal.run.machine, journal.run.environment), "version": 1}
    found = []
    for path, content in ((asv_path(journal), wanted), (results / journal.run.machine / "machine.json", machine)):
        if _comparable(_load(path)) != _comparable(content):
            found.append(f"{path} is not what {journal.path} says; any `nvfp4bench run` writes it anew.")
    listed = _load(results / BENCHMARKS) or {}
    described = benchmark_list(impls)
    fields = ("name", "params", "param_names", "unit", "type", "version")
    for name in wanted["results"]:
        entry = listed.get(name) or {}
        if any(entry.get(key) != described[name][key] for key in fields):
            found.append(f"{results / BENCHMARKS} does not describe {name} as this version does.")
    return found


def _load(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _comparable(content: dict[str, Any] | None) -> str:
    """As text, in which NaN equals NaN."""
    return json.dumps({name: value for name, value in (content or {}).items() if name != "date"}, sort_keys=True)
