"""Every program on every target of one release, in parallel; what an earlier call found is taken from the cache."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import Any

from impls.isa.assemble import assemble
from impls.isa.cache import Cache, key
from impls.isa.limits import LIMITS, find_limits
from impls.isa.processes import Processes
from impls.isa.program import Program, digest
from impls.isa.result import HOLES, Cell, Probe
from impls.isa.toolchain import Assembler, Disassembler

MODULE_SIZE = 512
"""Programs of one module at most. Starting the disassembler costs as much as 150 programs; a module takes about 2 s."""


@dataclass(frozen=True)
class _Job:
    """One target's limits, or one module of programs on it."""

    target: str
    programs: tuple[Program, ...] = ()


class Prober:
    """Probes one release. What is found is stored as soon as it is there, so an interrupted probe goes on where it was."""

    def __init__(
        self, assembler: Assembler, disassembler: Disassembler | None, *, store: Cache, processes: Processes, jobs: int
    ) -> None:
        self.assembler = assembler
        self.disassembler = disassembler
        self.store = store
        self.processes = processes
        self.jobs = jobs

    def probe(
        self,
        groups: Mapping[str, Sequence[Program]],
        targets: Sequence[str],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Probe:
        """The programs of `groups` and the limits, on `targets`; `progress` is told jobs done and jobs in all."""
        work = [_Job(target, part) for part in _modules(groups) for target in targets]
        work += [_Job(target) for target in targets]
        cells: dict[str, dict[str, Cell]] = {program.id: {} for programs in groups.values() for program in programs}
        limits: dict[str, dict[str, int | None]] = {}
        for job, found in self._in_parallel(work, progress).items():
            if not job.programs:
                limits[job.target] = found
            for program in job.programs:
                cells[program.id][job.target] = Cell.from_json(found[program.id])
        release = self.disassembler.release if self.disassembler else None
        return Probe(
            self.assembler.release,
            self.assembler.ptx_version,
            release,
            digest(program for programs in groups.values() for program in programs),
            tuple(targets),
            cells,
            limits,
        )

    def _in_parallel(self, work: Sequence[_Job], progress: Callable[[int, int], None]) -> dict[_Job, dict[str, Any]]:
        found: dict[_Job, dict[str, Any]] = {}
        with ThreadPoolExecutor(max_workers=self.jobs) as pool:
            futures: dict[Future[dict[str, Any]], _Job] = {pool.submit(self._run, job): job for job in work}
            running = set(futures)
            try:
                while running:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        found[futures[future]] = future.result()
                    progress(len(found), len(work))
            except BaseException:  # KeyboardInterrupt too: end the processes, or leaving the pool would wait for them
                self.processes.abandon()
                pool.shutdown(cancel_futures=True)
                raise
        return {job: found[job] for job in work}

    def _run(self, job: _Job) -> dict[str, Any]:
        """Cells as JSON by program, or limits by name: from the cache, else from the assembler.

        What a crash or the time limit had a part in is not stored, since the machine may be the cause: the next call tries
        it again.
        """
        name = key(f"{job.target} {_digest(job.programs)}", self.assembler, self.disassembler)
        found: dict[str, Any] | None = self.store.load(name)
        if found is not None:
            return found
        if job.programs:
            cells = assemble(job.programs, job.target, self.assembler, self.disassembler, self.processes)
            found = {program: cell.as_json() for program, cell in cells.items()}
            complete = not any(cell.error and cell.error.kind in HOLES for cell in cells.values())
        else:
            found = dict(find_limits(job.target, self.assembler, self.processes))
            complete = len(found) == len(LIMITS)
        if complete:
            self.store.store(name, found)
        return found


_digest = cache(digest)
"""Each module's is asked for once a target, and costs as much as writing the module."""


def _modules(groups: Mapping[str, Sequence[Program]]) -> Iterator[tuple[Program, ...]]:
    """Modules hold one group's programs, so that a change to a family probes no other group anew."""
    for programs in groups.values():
        for start in range(0, len(programs), MODULE_SIZE):
            yield tuple(programs[start : start + MODULE_SIZE])


class Progress:
    """Counts jobs on stderr: one line rewritten on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.started = self.shown = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        rewrites = sys.stderr.isatty()
        finished = done == total
        if now - self.shown < (0.2 if rewrites else 10.0) and not (finished and (rewrites or now - self.started > 10.0)):
            return
        self.shown = now
        end = "\r" if rewrites and not finished else "\n"
        print(f"{self.label}: {done} of {total} jobs, {now - self.started:.0f} s", end=end, file=sys.stderr, flush=True)
