"""Bounds of emulated launches against their measured times, as Markdown: python scripts/bound_against_measured.py [--cell GLOB]

Each latency cell of the published run whose id matches is bound again, here, for the architecture of the run. Where cubins,
grids and blocks are those that were measured, its PTX is executed at full size, and the least time of its launches is set
against the published median: SMs of the product, the highest SM clock of the run, the faster of the measured copy and read.
Exit status: 0 if no measurement is shorter than its bound, 1 if one is, 2 if nothing can be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cells import workloads
from benchmarks.counting import exact_inputs
from benchmarks.inspection import launches
from benchmarks.journal import Journal, JournalError, read_results
from benchmarks.records import Cell
from impls.arch import find, products
from impls.contract import Launch, Problem, Unsupported
from impls.cuda.emulation.launches import run_emulated
from impls.cuda.emulator.counting.bounds import Bound, bound
from impls.cuda.emulator.errors import EmulationError

CELLS = "decode/a4q/*/kv8192,decode/a4q-q16/*/kv8192,decode/smem-unpack/*/kv8192,decode/triton/*/kv8192"
HEAD = "| cell | kernel | issue | tensor | xu | shared | DRAM | limit | bound | measured | measured / bound |"


@dataclass(frozen=True)
class Compared:
    """A cell with its bound."""

    cell: Cell
    launches: tuple[tuple[str, Bound], ...]
    """(entry, bound) of each."""
    seconds: float
    """The least that the call can take."""
    measured: float

    @property
    def is_beaten(self) -> bool:
        return self.measured < self.seconds


def compared(journal: Journal, pattern: str) -> Iterator[Compared | str]:
    """Each cell that one of the globs of `pattern` names, or the sentence why nothing can be said of it.

    Raises ValueError where the run lacks what every bound needs.
    """
    arch, ceilings = find(journal.run.environment.arch), journal.run.ceilings
    product = next((one for one in products(arch) if one.sms), None)
    clocks_mhz = [clock for cell in journal.cells for clocks in cell.clocks.values() for clock in clocks]
    if product is None or not clocks_mhz or not {"copy_bytes_per_s", "read_bytes_per_s"} <= ceilings.keys():
        raise ValueError(f"{journal.path} has no SM clocks or ceilings of a known GPU, so there is nothing to bound by.")
    clock_hz, dram = 1e6 * max(clocks_mhz), max(ceilings["copy_bytes_per_s"], ceilings["read_bytes_per_s"])
    for cell in journal.cells:
        if cell.status != "ok" or not any(fnmatchcase(cell.id, glob) for glob in pattern.split(",")):
            continue
        if cell.suite != "latency":
            yield f"{cell.id}: only attention is bound."
            continue
        problem = workloads()[cell.workload].problem(*(int(one.lstrip("dkv")) for one in cell.parameters))
        assert isinstance(problem, Problem)
        try:
            called = launches(cell.impl, problem, arch, exact_inputs)
            if not _same(called, cell):
                yield f"{cell.id}: its machine code is not that of the compilers here, so nothing is said of it."
                continue
            counters = run_emulated(called, arch, schedules=("forward",), checks=False).counters
        except EmulationError as error:
            yield f"{cell.id}: {error.sentence}"
            continue
        except (Unsupported, ValueError) as error:  # no launches are stated, or none without a GPU
            yield f"{cell.id}: {error}"
            continue
        assert product.sms is not None
        bounds = [
            bound(one, arch.per_clock, sms=product.sms, clock_hz=clock_hz, dram_bytes_per_second=dram) for one in counters
        ]
        least = _least(called, bounds)
        yield Compared(cell, _named(called, bounds), least, statistics.median(cell.series["latency"]))


def _same(launches: Sequence[Launch], cell: Cell) -> bool:
    """Whether these are the launches that were measured."""
    here = [(hashlib.sha256(one.cubin).hexdigest(), one.entry, one.grid, one.block) for one in launches]
    return here == [(one.cubin, one.entry, one.grid, one.block) for one in cell.launches]


def _named(launches: Sequence[Launch], bounds: Sequence[Bound]) -> tuple[tuple[str, Bound], ...]:
    return tuple((launch.entry, one) for launch, one in zip(launches, bounds, strict=True))


def _least(launches: Sequence[Launch], bounds: Sequence[Bound]) -> float:
    """Launches add up, but for those that may start before the one before has ended: of such a row the longest counts."""
    ended = row = 0.0
    for launch, one in zip(launches, bounds, strict=True):
        seconds = max(one.seconds.values(), default=0.0)
        if launch.overlaps:
            row = max(row, seconds)
        else:
            ended, row = ended + row, seconds
    return ended + row


def lines(found: Compared) -> Iterator[str]:
    """Rows of the table: a launch each, the call's bound and time in the first."""
    for number, (entry, one) in enumerate(found.launches):
        tensor = max((seconds for pipe, seconds in one.seconds.items() if pipe.startswith("tensor")), default=None)
        pipes = [one.seconds.get(pipe) for pipe in ("issue",)] + [tensor]
        pipes += [one.seconds.get(pipe) for pipe in ("xu", "shared", "dram")]
        call = ["", "", ""]
        if number == 0:
            call = [_micro(found.seconds), _micro(found.measured), f"{found.measured / found.seconds:.2f}"]
        cells = [found.cell.id if number == 0 else "", f"`{entry}`", *map(_micro, pipes), one.limit or "", *call]
        yield f"| {' | '.join(cells)} |"


def _micro(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e6 * seconds:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--machine", default="nvidia-h200", help="folder of the published run")
    parser.add_argument("--cell", default=CELLS, metavar="GLOB,GLOB")
    arguments = parser.parse_args()
    try:
        journals, problems = read_results(arguments.results)
    except JournalError as error:
        journals, problems = [], [str(error)]
    for problem in problems:
        print(problem, file=sys.stderr)
    mine = [journal for journal in journals if journal.run.machine == arguments.machine]
    if not mine:
        print(f"there is no run of {arguments.machine} in {arguments.results}.", file=sys.stderr)
        return 2
    shown, beaten, told = 0, [], 0
    print(HEAD, "|---" * HEAD.count(" | ") + "|---|", sep="\n")
    try:
        for found in compared(mine[-1], arguments.cell):
            if isinstance(found, str):
                print(found, file=sys.stderr)
                told += 1
                continue
            print(*lines(found), sep="\n", flush=True)
            shown += 1
            beaten += [found.cell.id] if found.is_beaten else []
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if not shown and not told:
        print(f"no measured cell of {mine[-1].path} is called {arguments.cell!r}.", file=sys.stderr)
    if not shown:
        return 2
    empty = [_micro(mine[-1].run.ceilings.get(f"empty_graph_{launches}_seconds")) for launches in (1, 2)]
    print(
        f"\nMicroseconds. Empty graphs of 1 and 2 launches took {' and '.join(empty)} in the last call of the run: "
        "they are in what was measured, and in no bound."
    )
    for cell in beaten:
        print(f"{cell} was measured faster than its bound.", file=sys.stderr)
    return 1 if beaten else 0


if __name__ == "__main__":
    sys.exit(main())
