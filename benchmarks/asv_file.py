"""asv's own files, made from journals: `asv show`, `compare` and `publish` read them.

    <results>/benchmarks.json                        the series: names, units, parameters
    <results>/<machine>/machine.json
    <results>/<machine>/<commit8>-<env>.json         beside the journal it is made from

The layout is asv's version 2 (asv.results.Results.save). As asv writes it itself: a failed cell is null, a skipped or
unmeasured one NaN, and an interval that few samples leave open ends at an infinity. A result itself is never infinite.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.asv_machine import machine_fields
from benchmarks.asv_names import TRACKS, Track, benchmark_name, class_names, samples, told_apart
from benchmarks.cells import Workload, workloads
from benchmarks.commit import commit_seconds
from benchmarks.journal import SUFFIX, Journal, environment_slug
from benchmarks.operations import all_names
from benchmarks.records import FAILURES, PROTOCOL, Cell
from impls.errors import CommandError
from impls.files import replace_file

BENCHMARKS = "benchmarks.json"
COLUMNS = (
    "result",
    "params",
    "version",
    "started_at",
    "duration",
    "stats_ci_99_a",
    "stats_ci_99_b",
    "stats_q_25",
    "stats_q_75",
    "stats_number",
    "stats_repeat",
    "samples",
    "profile",
)
Values = list[Any]


def write_asv_files(results: Path, journals: Sequence[Journal]) -> list[str]:
    """Write the files of every journal; sentences about those that asv cannot have."""
    impls, notes = handed_to_asv(journals)
    for journal in journals:
        if journal.run.commit == "unknown":
            notes.append(f"{journal.path} is not handed to asv, because its commit is unknown; `results adopt` gives it one.")
            continue
        run = journal.run
        _write(results / run.machine / "machine.json", {**machine_fields(run.machine, run.environment), "version": 1})
        _write(asv_path(journal), result_file(journal, impls))
    _write(results / BENCHMARKS, {**benchmark_list(impls), "version": 2}, indent=4)
    return notes


def handed_to_asv(journals: Sequence[Journal]) -> tuple[list[str], list[str]]:
    """(the registered implementations and those of the journals; sentences about those that asv cannot tell from others)."""
    found = {cell.impl for journal in journals for cell in journal.cells}
    return told_apart([*all_names(), *sorted(found - set(all_names()))])


def asv_path(journal: Journal) -> Path:
    return journal.path.with_name(journal.path.name.removesuffix(SUFFIX) + ".json")


def benchmark_list(impls: Iterable[str]) -> dict[str, Any]:
    """The content of benchmarks.json: what asv would find out by importing our benchmark modules."""
    impls = list(impls)
    found: dict[str, Any] = {}
    for workload in workloads().values():
        for impl in class_names(workload, workload.done_by(impls)).values():
            for track in TRACKS[workload.suite]:
                name = benchmark_name(workload, impl, track)
                found[name] = {
                    "name": name,
                    "code": workload.claim,
                    "param_names": [axis.name for axis in workload.axes],
                    "params": _parameters(workload),
                    "type": track.kind,
                    "unit": track.unit,
                    "version": PROTOCOL,
                    "timeout": None,
                }
    return found


def result_file(journal: Journal, impls: Iterable[str]) -> dict[str, Any]:
    """The content of the result file of one journal, as far as it is about `impls`."""
    run = journal.run
    started = round(datetime.fromisoformat(run.started).timestamp() * 1000)
    cells = {cell.id: cell for cell in journal.cells}
    wanted = frozenset(impls)
    rows = {}
    for workload in workloads().values():
        of_workload = (cell.impl for cell in journal.cells if cell.workload == workload.name)
        for impl in dict.fromkeys(impl for impl in of_workload if impl in wanted):
            for track in TRACKS[workload.suite]:
                row = _row(workload, impl, track, cells, run.protocol, started)
                if any(value is None or not math.isnan(value) for value in row[0] or [None]):  # all n/a says nothing
                    rows[benchmark_name(workload, impl, track)] = row
    return {
        "commit_hash": run.commit,
        "env_name": environment_slug(run.environment),
        "date": (commit_seconds(run.commit) or started // 1000) * 1000,
        "params": machine_fields(run.machine, run.environment),
        "python": ".".join(run.environment.python.split(".")[:2]),
        "requirements": {},
        "env_vars": {},
        "result_columns": list(COLUMNS),
        "results": rows,
        "durations": {},
        "version": 2,
    }


def _row(workload: Workload, impl: str, track: Track, cells: Mapping[str, Cell], protocol: str, started: int) -> list[Any]:
    """One line of `results`: the columns, right-trimmed; each a list over the parameter product, null where all are."""
    result: Values = []
    drawn: Values = []
    stats: list[dict[str, Any]] = []
    for point in workload.points():
        cell = cells.get(workload.cell_id(impl, point))
        taken = samples(cell, track) if cell else ()
        repeated = taken if track.kind == "time" else ()
        result.append(_five_digits(statistics.median(taken)) if taken else _no_value(cell))
        drawn.append(list(repeated) or None)
        stats.append(sample_statistics(repeated) if repeated else {})
    columns: dict[str, Any] = {
        "result": result,
        "params": _parameters(workload),
        "version": protocol,
        "started_at": started,
        "samples": drawn,
        **{name: [one.get(name.removeprefix("stats_")) for one in stats] for name in COLUMNS if name.startswith("stats_")},
    }
    row = [None if name != "params" and _empty(columns.get(name)) else columns[name] for name in COLUMNS]
    while row[-1] is None:
        row.pop()
    return row


def sample_statistics(taken: Sequence[float]) -> dict[str, Any]:
    """Quartiles and the 99 % confidence interval of the median, as asv_runner.statistics computes them from 8 samples on.

    Fewer bound nothing at 99 %. asv then assumes a distribution; here the interval stays open, so `compare` is not sure.
    """
    ordered = sorted(taken)
    low, high = _median_interval(ordered)
    quarter, _, three_quarters = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    return {
        "ci_99_a": _five_digits(low),
        "ci_99_b": _five_digits(high),
        "q_25": _five_digits(quarter),
        "q_75": _five_digits(three_quarters),
        "number": 1,
        "repeat": len(ordered),
    }


def _median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Narrowest pair of order statistics that holds the median with a probability of 99 %, open where there is none.

    The number of samples below the median is binomial with p = 1/2; each tail gets 1/2 %.
    """
    low, high = -math.inf, math.inf
    below = 0.0
    for k, value in enumerate(ordered):
        below += math.comb(len(ordered), k) / 2 ** len(ordered)
        if below <= 0.005:
            low = value
        if below >= 0.995:
            high = value
            break
    return low, high


def _no_value(cell: Cell | None) -> float | None:
    """asv's n/a, unless it was tried and failed; an ok cell without a value has an infinite error."""
    return None if cell and (cell.status in FAILURES or cell.status == "ok") else math.nan


def _parameters(workload: Workload) -> list[list[str]]:
    return [[repr(value) for value in axis.values] for axis in workload.axes]


def _empty(column: Any) -> bool:
    return column is None or (isinstance(column, list) and all(value is None for value in column))


def _five_digits(value: float) -> float:
    """asv's own precision; more would change with every run and say nothing."""
    return float(f"{value:.4e}")


def _write(path: Path, data: Mapping[str, Any], indent: int | None = None) -> None:
    """In one step, so that a reader never sees half a file. Raises CommandError where that is not possible."""
    try:
        replace_file(path, (json.dumps(data, indent=indent) + "\n").encode())
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}; the journals it is made from are complete.") from error
