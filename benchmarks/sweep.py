"""The sweep: measure one cell after the other in worker processes, and write each down the moment it ends.

A worker that crashes, hangs or loses its CUDA context costs the cell it was at, and is replaced. Every implementation and
suite has a worker of its own, so none can spoil the numbers of another.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import impls.worker
from benchmarks.cells import CellSpec
from benchmarks.journal import JournalWriter, encode
from benchmarks.records import Cell, from_json
from benchmarks.source import ROOT
from impls.worker import Worker

TIMEOUT = 120.0
"""Seconds that one cell may take, starting its process included."""
PREDICTED = {"latency": 0.0, "numerics": 0.5, "host": 0.5}
"""Seconds of a typical cell; a cell nobody can measure costs nothing."""
PREDICTED_INTERPRETED = 2.0
"""Seconds of a numerics cell where Triton's interpreter executes the kernel."""
FOLDERS = re.compile(r"(?<![\w.:/-])/(?:[\w.+@-]+/)+")
"""The folders of an absolute path: they name this host and its user, and say nothing elsewhere. File names stay."""
MAX_SENTENCE = 1000
RECORDED = ("series", "numerics", "plan", "prepare_seconds", "compile_seconds")
"""What of a worker's reply goes into the record."""
FAILURES = ("failed", "crashed", "timeout", "oom")


@dataclass(frozen=True)
class Place:
    """Where cells are measured."""

    how: str
    """"gpu" or "cpu"."""
    no_gpu: str | None = None
    """Why there is no GPU; None where there is one."""


def predicted_seconds(spec: CellSpec, place: Place) -> float:
    """A rough figure for plans and budgets."""
    if place.how == "cpu" and spec.impl == "triton":
        return {"numerics": PREDICTED_INTERPRETED}.get(spec.suite, 0.0)
    return PREDICTED[spec.suite]


def within(budget: float, specs: Sequence[CellSpec], place: Place) -> int:
    """How many of `specs`, from the first on, are predicted to end within `budget` seconds."""
    spent = 0.0
    for count, spec in enumerate(specs):
        spent += predicted_seconds(spec, place)
        if spent > budget:
            return count
    return len(specs)


def sweep(
    specs: Sequence[CellSpec],
    place: Place,
    journal: JournalWriter,
    *,
    budget: float | None = None,
    timeout: float = TIMEOUT,
    report: Callable[[str], None] = lambda line: None,
) -> list[CellSpec]:
    """Measure `specs` into `journal`; the specs that were left when `budget` seconds were over.

    Cells that the journal has already are not measured again. Whatever happens to a cell is recorded as its status;
    only a journal that cannot be written ends the sweep early, with JournalError.
    """
    started = time.monotonic()
    left = [spec for spec in specs if (spec.id, how_of(spec, place)) not in journal.recorded]
    if len(left) < len(specs):
        report(f"{len(specs) - len(left)} of {len(specs)} cells are in the journal already.")
    progress = _Progress(len(left), report)
    with Bench(place, timeout) as bench:
        for done, spec in enumerate(left):
            if budget is not None and time.monotonic() - started > budget:
                progress.end()
                return left[done:]
            start = time.monotonic()
            cell = bench.measure(spec)
            journal.append(cell)
            progress.step(cell, time.monotonic() - start)
    progress.end()
    return []


class _Progress:
    """One line a cell; of cells that cannot be measured here, one line a reason and in the end their number."""

    def __init__(self, total: int, report: Callable[[str], None]) -> None:
        self._total = total
        self._report = report
        self._done = 0
        self._reasons: set[str] = set()
        self._silent = 0

    def step(self, cell: Cell, seconds: float) -> None:
        self._done += 1
        if cell.status in ("unsupported", "skipped") and cell.sentence:
            if cell.sentence in self._reasons:
                self._silent += 1
                return
            self._reasons.add(cell.sentence)
        verdict = verdict_of(cell)
        remark = cell.numerics.verdict if cell.numerics and verdict == "wrong" else cell.sentence
        self._report(f"[{self._done}/{self._total}] {cell.id}  {verdict}  {seconds:.1f} s{f': {remark}' if remark else ''}")

    def end(self) -> None:
        if self._silent:
            self._report(f"{self._silent} more cells cannot be measured here, for the reasons above.")


def verdict_of(cell: Cell) -> str:
    """The cell's status, or "wrong" where it was measured and its numbers break a bound."""
    if cell.numerics is not None and cell.numerics.verdict != "pass":
        return "wrong"
    return cell.status


def how_of(spec: CellSpec, place: Place) -> str:
    """Latency is a GPU's, also where it cannot be had."""
    return "gpu" if spec.suite == "latency" else place.how


class Bench:
    """Measures cells, and holds the worker processes that do it."""

    def __init__(self, place: Place, timeout: float = TIMEOUT) -> None:
        self._place = place
        self._timeout = timeout
        self._workers: dict[tuple[str, str], Worker] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Bench:
        self._path = self._stack.enter_context(_import_path())
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def measure(self, spec: CellSpec) -> Cell:
        """One cell. A fault of the implementation becomes its status and sentence."""
        if spec.suite == "latency":
            return self._latency(spec)
        if spec.suite == "host":
            if self._place.how != "cpu":
                return _without_number(spec, self._place, "skipped", "host costs beside a GPU are not part of this version.")
            return self._call(spec, "benchmarks.measure_host:measure", spec.parameters)
        return self._call(spec, "impls.numerics.measure:examine", {**spec.parameters, "on": self._place.how})

    def _latency(self, spec: CellSpec) -> Cell:
        if self._place.no_gpu:
            return _without_number(spec, self._place, "unsupported", f"latency is measured on a GPU, and {self._place.no_gpu}")
        return _without_number(spec, self._place, "skipped", "GPU timing is not part of this version.")

    def _call(self, spec: CellSpec, function: str, request: Mapping[str, Any]) -> Cell:
        reply = self._worker(spec, function).call({"impl": spec.source, **request}, timeout=self._timeout)
        if reply.status != "ok":
            return _without_number(spec, self._place, reply.status, reply.sentence or "no reason was given.")
        try:
            return _cell(spec, self._place, reply.value)
        except ValueError as error:
            return _without_number(spec, self._place, "failed", f"what it measured is no record: {error}")

    def _worker(self, spec: CellSpec, function: str) -> Worker:
        key = (function, spec.source)
        if key not in self._workers:
            # A process either interprets Triton or compiles for a GPU; interpreted host costs would be nobody's.
            interpret = "1" if spec.suite == "numerics" and self._place.how == "cpu" else "0"
            environment = {"TRITON_INTERPRET": interpret, "PYTHONPATH": self._path}
            self._workers[key] = self._stack.enter_context(Worker(function, env=environment))
        return self._workers[key]


def _cell(spec: CellSpec, place: Place, measured: Mapping[str, Any]) -> Cell:
    """The record of what a worker measured. Raises ValueError where no journal could hold it."""
    fields = {name: measured[name] for name in RECORDED if name in measured}
    cell = from_json({"kind": "cell", "id": spec.id, "suite": spec.suite, "how": place.how, "status": "ok", **fields})
    assert isinstance(cell, Cell)
    encode(cell)
    return cell


def _without_number(spec: CellSpec, place: Place, status: Any, sentence: str) -> Cell:
    told = FOLDERS.sub("", sentence)[:MAX_SENTENCE]
    return Cell(id=spec.id, suite=spec.suite, how=how_of(spec, place), status=status, sentence=told)


@contextlib.contextmanager
def _import_path() -> Iterator[str]:
    """PYTHONPATH with which a worker imports this very `benchmarks` and this very `impls`.

    They lie side by side, except under asv: it takes `benchmarks` from the checkout and `impls` from the commit that it
    has installed, so that all commits are measured by the same code. A link then makes the two neighbours.
    """
    implementations = impls.worker.ROOT
    given = list(filter(None, [os.environ.get("PYTHONPATH")]))
    if implementations == ROOT:
        yield os.pathsep.join([str(ROOT), *given])
        return
    with tempfile.TemporaryDirectory(prefix="nvfp4bench-") as folder:
        (Path(folder) / "benchmarks").symlink_to(ROOT / "benchmarks")
        yield os.pathsep.join([folder, str(implementations), *given])
