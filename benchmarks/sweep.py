"""The sweep: measure cells in worker processes, and write each down the moment it ends.

A worker that crashes, hangs or loses its CUDA context costs the cell it was at, and is replaced. GPU latency is measured
shape by shape, all implementations in turns (`benchmarks.together`), when their plans have been prepared; every other suite
and implementation has a worker of its own, so none can spoil the numbers of another.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import impls.worker
from benchmarks.cells import CellSpec
from benchmarks.counting import FUNCTION as COUNT_FUNCTION
from benchmarks.counting import SECONDS as COUNT_SECONDS
from benchmarks.counting import request_of
from benchmarks.inspection import COMPILE_ENVIRONMENT, Inspector, LeftOut, needed_disassembler, record_of, wanted_of
from benchmarks.journal import JournalWriter
from benchmarks.operations import all_names, implementation
from benchmarks.outcome import cell_of, failure_of, without_number
from benchmarks.pool import Pool
from benchmarks.preparing import prepare
from benchmarks.records import COMPILED, COUNTED, ON_REQUEST, TIMED, Cell
from benchmarks.source import ROOT
from benchmarks.together import ADD_CALLS, Together, samples_of
from benchmarks.work import predicted_call, predicted_pack
from impls.arch import find
from impls.errors import CommandError
from impls.host import usable_cores
from impls.worker import Worker

LATENCY_FUNCTION = "benchmarks.latency:serve"
TIMEOUT = 120.0
"""Seconds that one cell may take, starting its process included."""
PREDICTED = {"numerics": 0.5, "host": 0.5, COMPILED: 3.0, COUNTED: 4.0}
"""Seconds of a typical cell; a cell nobody can measure costs nothing."""
PREDICTED_INTERPRETED = 2.0
"""Seconds of a numerics cell where Triton's interpreter executes the kernel."""
PREDICTED_SHARE = 0.5
"""Seconds of a latency cell besides its calls: its share of making the data, and the comparison with the reference."""
SAG = 0.95
"""A series of which a quarter of the samples has clocks below this much of the run's highest was not measured at full speed."""


@dataclass(frozen=True)
class Place:
    """Where cells are measured."""

    how: str
    """"gpu", "cpu", "static" or "emulated"."""
    no_gpu: str | None = None
    """Why there is no GPU; None where there is one."""
    arch: str | None = None
    """Name of the GPU's architecture; None where there is none."""


COMPILING = Place(COMPILED, no_gpu="nothing is executed where kernels are compiled.")
"""Where static cells come from, on any machine."""
EMULATING = Place("emulated", no_gpu="PTX is executed by the emulator.")
"""Where counters come from, on any machine."""


def virtual_place(suite: str) -> Place | None:
    """Of a suite that is of no machine; None of one that is measured."""
    return {COMPILED: COMPILING, COUNTED: EMULATING}.get(suite)


def predicted_seconds(spec: CellSpec, place: Place) -> float:
    """A rough figure for plans and budgets."""
    if spec.suite in TIMED:
        if place.no_gpu:
            return 0.0
        problem = spec.workload.problem(*spec.values)
        if spec.source in all_names() and place.arch and implementation(spec.source).why_not(problem, find(place.arch)):
            return 0.0
        call, pack = predicted_call(problem), predicted_pack(problem)
        other = samples_of("eager", call) + 1  # the first one is a warm-up
        # eager, host, attend and total call; pack and total convert
        return PREDICTED_SHARE + (ADD_CALLS + samples_of("latency", call) + 4 * other) * call + 2 * other * pack
    if spec.suite == "host" and place.how != "cpu":
        return 0.0
    if place.how == "cpu" and spec.impl == "triton":
        return {"numerics": PREDICTED_INTERPRETED}.get(spec.suite, 0.0)
    return PREDICTED[spec.suite]


def within(budget: float, specs: Sequence[CellSpec], place: Place) -> list[CellSpec]:
    """Those of `specs` that a sweep is predicted to measure in `budget` seconds: whole `units`, the first one in any case."""
    spent = 0.0
    fitting: list[CellSpec] = []
    for unit in units(specs, place):
        seconds = _predicted(unit, place)
        if not spent or spent + seconds <= budget:
            spent += seconds
            fitting += unit
    return fitting


def _predicted(unit: Sequence[CellSpec], place: Place) -> float:
    return sum(predicted_seconds(spec, place) for spec in unit)


def sweep(
    specs: Sequence[CellSpec],
    place: Place,
    journal: JournalWriter,
    *,
    budget: float | None = None,
    timeout: float = TIMEOUT,
    report: Callable[[str], None] = lambda line: None,
) -> list[CellSpec]:
    """Measure `specs` into `journal`; the specs that did not fit into `budget` seconds.

    Cells that the journal has already are not measured again. What is predicted to take longer than what is left of the
    budget is left for another call, except the first that takes any time: so every call gets on. Whatever happens to a cell
    is recorded as its status; only a journal that cannot be written ends the sweep early, with JournalError.
    """
    started = time.monotonic()
    deadline = math.inf if budget is None else started + budget
    left = [spec for spec in specs if (spec.id, how_of(spec, place)) not in journal.recorded]
    if len(left) < len(specs):
        report(f"{len(specs) - len(left)} of {len(specs)} cells are in the journal already.")
    progress = _Progress(len(left), report)
    spent = 0.0

    def fits(seconds: float) -> bool:
        now = time.monotonic()
        return now <= deadline and (not spent or now + seconds <= deadline)

    with Bench(place, timeout, report) as bench:
        bench.prepare(left if budget is None else within(budget, left, place), deadline=deadline)
        for unit in units(left, place):
            seconds = _predicted(unit, place)
            if fits(seconds):  # also what `within` left out, where others took less than predicted
                bench.prepare(unit, deadline=deadline)
            if not fits(seconds):
                continue
            spent += seconds
            start = time.monotonic()
            for cell in bench.measure(unit):
                journal.append(cell)
                progress.step(cell, time.monotonic() - start)
    progress.end()
    return [spec for spec in left if (spec.id, how_of(spec, place)) not in journal.recorded]


def units(specs: Sequence[CellSpec], place: Place) -> list[list[CellSpec]]:
    """`specs` in their order, but those together that are timed together: one shape's, where its first one stands.

    What is compiled or emulated goes by workload and implementation: several processes share such a unit. Where shapes are
    timed, all quick ones come before the other quick cells, and the same among the rest: nobody else keeps a GPU process while
    one is timed, so going to and fro would start processes again and again.
    """
    found: dict[object, list[CellSpec]] = {}
    for spec in specs:
        together = spec.suite in TIMED and not place.no_gpu
        alone = (spec.workload.name, spec.impl, spec.quick) if spec.suite in ON_REQUEST else spec.id
        found.setdefault((spec.workload.name, spec.values) if together else alone, []).append(spec)
    if place.no_gpu:
        return list(found.values())
    return sorted(found.values(), key=lambda unit: (not unit[0].quick, unit[0].suite not in TIMED))


class _Progress:
    """One line a cell, with the seconds since its unit was begun.

    Of cells that cannot be measured here, one line a reason, and in the end their number.
    """

    def __init__(self, total: int, report: Callable[[str], None]) -> None:
        self._total = total
        self._report = report
        self._done = 0
        self._reasons: set[str] = set()
        self._silent = 0
        self._highest_clock = 0

    def step(self, cell: Cell, seconds: float) -> None:
        self._done += 1
        if cell.status in ("unsupported", "skipped") and cell.sentence:
            if cell.sentence in self._reasons:
                self._silent += 1
                return
            self._reasons.add(cell.sentence)
        remarks = (cell.broken_bound or cell.sentence, self._sag(cell), _lateness(cell), _apartness(cell))
        remark = "; ".join(filter(None, remarks))
        self._report(
            f"[{self._done}/{self._total}] {cell.id}  {cell.verdict}  {seconds:.1f} s{f': {remark}' if remark else ''}"
        )

    def _sag(self, cell: Cell) -> str | None:
        """A remark, where a series of the cell was measured at a lower clock than the run has seen."""
        self._highest_clock = max([self._highest_clock, *(clock for clocks in cell.clocks.values() for clock in clocks)])
        sagging = {name: clock for name, clock in cell.slow_clocks.items() if clock < SAG * self._highest_clock}
        if not sagging:
            return None
        name = min(sagging, key=lambda name: sagging[name])
        return (
            f"the SM clock sagged to {sagging[name]:.0f} MHz or less in a quarter of {name}, "
            f"and was {self._highest_clock} MHz at its highest"
        )

    def end(self) -> None:
        if self._silent:
            self._report(f"{self._silent} more cells cannot be measured here, for the reasons above.")


def _lateness(cell: Cell) -> str | None:
    """A remark, where the GPU waited for the host on the time of samples."""
    return f"late on the stream: {', '.join(f'{count} of {name}' for name, count in cell.late.items())}" if cell.late else None


def _apartness(cell: Cell) -> str | None:
    return "timed after the others of its shape, beside which it found no memory" if cell.apart else None


def how_of(spec: CellSpec, place: Place) -> str:
    """Latency is a GPU's, also where it cannot be had; what is compiled or emulated is of an architecture."""
    if virtual := virtual_place(spec.suite):
        return f"{virtual.how}:{spec.parameters['arch']}"
    return "gpu" if spec.suite in TIMED else place.how


class Bench:
    """Measures cells, and holds the worker processes that do it."""

    def __init__(self, place: Place, timeout: float = TIMEOUT, report: Callable[[str], None] = lambda line: None) -> None:
        self._place = place
        self._timeout = timeout
        self._report = report
        self._workers: dict[tuple[str, str], Worker] = {}
        self._prepared: set[str] = set()
        self._stack = contextlib.ExitStack()
        self._together: Together | None = None
        self._inspector: Inspector | None = None
        self._counting: Pool | None = None

    def __enter__(self) -> Bench:
        self._path = self._stack.enter_context(import_path())
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def prepare(self, specs: Sequence[CellSpec], *, deadline: float = math.inf) -> None:
        """Plan ahead what will be timed of `specs`, and was not planned before."""
        timed = [spec for spec in specs if spec.suite in TIMED and spec.id not in self._prepared]
        if timed and self._place.arch:
            prepare(timed, self._place.arch, self._path, self._report, deadline=deadline)
            self._prepared.update(spec.id for spec in timed)

    def measure(self, specs: Sequence[CellSpec]) -> Iterator[Cell]:
        """The cells of one of `units`, as they end. A fault of an implementation becomes its cell's status and sentence."""
        (spec, *_) = specs
        if spec.suite == COMPILED:
            yield from self._inspect(specs)
        elif spec.suite == COUNTED:
            yield from self._count(specs)
        elif spec.suite in TIMED and not self._place.no_gpu:
            yield from self._time(specs)
        else:
            yield from map(self._measure_alone, specs)

    def _measure_alone(self, spec: CellSpec) -> Cell:
        how = how_of(spec, self._place)
        if spec.suite in TIMED:
            return without_number(spec, how, "unsupported", f"{spec.suite} is measured on a GPU, and {self._place.no_gpu}")
        if spec.suite == "host":
            if self._place.how != "cpu":
                told = "beside a GPU, host time is the series `host` of the latency cells."
                return without_number(spec, how, "skipped", told)
            return self._call(spec, "benchmarks.measure_host:measure", spec.parameters)
        return self._call(spec, "impls.numerics.measure:examine", {**spec.parameters, "on": self._place.how})

    def _inspect(self, specs: Sequence[CellSpec]) -> Iterator[Cell]:
        """By as many processes as there are cores. Nothing is, without a disassembler: no machine code could be read."""
        try:
            needed_disassembler()
        except CommandError as error:
            yield from (without_number(spec, how_of(spec, self._place), "skipped", str(error)) for spec in specs)
            return
        if self._inspector is None:
            self._inspector = self._stack.enter_context(Inspector(usable_cores(), PYTHONPATH=self._path))
        for spec, found in zip(specs, self._inspector.found([wanted_of(spec) for spec in specs]), strict=True):
            how = how_of(spec, self._place)
            if isinstance(found, LeftOut):
                yield without_number(spec, how, found.status, found.sentence)
            else:
                yield cell_of(spec, how, {"kernels": [record_of(row) for row in found]})

    def _count(self, specs: Sequence[CellSpec]) -> Iterator[Cell]:
        """By as many processes as there are cores."""
        if self._counting is None:
            environment = {**COMPILE_ENVIRONMENT, "PYTHONPATH": self._path}
            self._counting = self._stack.enter_context(Pool(COUNT_FUNCTION, usable_cores(), COUNT_SECONDS, environment))
        for spec, reply in zip(specs, self._counting.replies([request_of(spec) for spec in specs]), strict=True):
            how = how_of(spec, self._place)
            yield cell_of(spec, how, reply.value) if reply.status == "ok" else failure_of(spec, how, reply)

    def _time(self, specs: Sequence[CellSpec]) -> Iterator[Cell]:
        for other in self._workers.values():
            other.close()  # they would keep memory, and a context, of the GPU that is timed
        if self._together is None:
            environment = {"TRITON_INTERPRET": "0", "PYTHONPATH": self._path}
            worker = self._stack.enter_context(Worker(LATENCY_FUNCTION, env=environment))
            self._together = Together(worker, self._timeout, self._report)
        yield from self._together.measure(specs)

    def _call(self, spec: CellSpec, function: str, request: Mapping[str, Any]) -> Cell:
        reply = self._worker(spec, function).call({"impl": spec.source, **request}, timeout=self._timeout)
        return cell_of(spec, self._place.how, reply.value) if reply.status == "ok" else failure_of(spec, self._place.how, reply)

    def _worker(self, spec: CellSpec, function: str) -> Worker:
        key = (function, spec.source)
        if key not in self._workers:
            # A process either interprets Triton or compiles for a GPU; interpreted host costs would be nobody's.
            interpret = "1" if spec.suite == "numerics" and self._place.how == "cpu" else "0"
            environment = {"TRITON_INTERPRET": interpret, "PYTHONPATH": self._path}
            self._workers[key] = self._stack.enter_context(Worker(function, env=environment))
        return self._workers[key]


@contextlib.contextmanager
def import_path() -> Iterator[str]:
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
