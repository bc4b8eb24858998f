"""`nvfp4bench run`: measure a plan of cells into a journal, and hand asv what came of it."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.asv_file import write_asv_files
from benchmarks.cells import CellSpec, specs
from benchmarks.commands.selection import add_place, add_selection, chosen_impls, chosen_suites
from benchmarks.commit import require_sources, resolve_commit
from benchmarks.here import place_here, this_run
from benchmarks.journal import JournalWriter, read_results
from benchmarks.records import FAILURES, ON_REQUEST, STATUSES, TIMED, Run
from benchmarks.source import source_hash
from benchmarks.sweep import COMPILING, EMULATING, Place, how_of, predicted_seconds, sweep, units, virtual_place, within
from impls.errors import CommandError
from impls.outside import hash_of_file


def configure(parser: argparse.ArgumentParser) -> None:
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the few cells that tell most (the default)")
    size.add_argument("--full", action="store_true", help="every cell")
    add_selection(parser)
    add_place(parser)
    parser.add_argument(
        "--cell", default="*", metavar="GLOB,GLOB", help="only cells whose id matches one, e.g. 'decode/*/d128/*'"
    )
    parser.add_argument("--budget", type=_seconds, metavar="S", help="stop after S seconds; --resume goes on")
    parser.add_argument("--resume", action="store_true", help="go on with the journal of this commit and toolchain")
    parser.add_argument("--plan", action="store_true", help="print the cells and their predicted seconds, measure nothing")
    parser.add_argument("--commit", metavar="HASH", help="commit that these are the sources of; left out: the one checked out")


def execute(arguments: argparse.Namespace) -> int:
    """0 if every cell was measured or has its reason not to be, 1 if one failed, crashed, hung or is wrong."""
    impls = chosen_impls(arguments.impl)
    quick = arguments.quick or (not arguments.full and arguments.cell == "*")  # a pattern alone is looked up among all
    planned = specs(impls, chosen_suites(arguments.suite, arguments.cell), arguments.cell, quick=quick)
    executed = [spec for spec in planned if spec.suite not in ON_REQUEST]
    parts = [(place_here(cpu=arguments.cpu), executed)] if executed else []
    for virtual in (COMPILING, EMULATING):
        some = [spec for spec in planned if virtual_place(spec.suite) == virtual]
        parts += [(virtual, some)] if some else []
    commit = resolve_commit(arguments.commit) if arguments.commit else None
    if commit:
        require_sources(commit, source_hash())
    if arguments.results.exists() and not arguments.results.is_dir():
        raise CommandError(f"--results {arguments.results} is not a folder; name another.")
    if arguments.plan:
        for place, some in parts:
            _print_plan(some, place, arguments.budget)
        return 0
    outside = {name: hash_of_file(source) for name, source in impls.items() if ".py:" in source}
    deadline = math.inf if arguments.budget is None else time.monotonic() + arguments.budget
    done: list[Done] = []
    for place, some in parts:
        timed = any(spec.suite in TIMED for spec in some)
        run = this_run(_command(arguments), place, timed=timed, commit=commit, outside=outside)
        measured = _measured(some, place, run, arguments, deadline)
        if measured is None:
            return 130
        done.append(measured)
    journals, problems = read_results(arguments.results)
    for sentence in (*problems, *write_asv_files(arguments.results, journals)):
        _say(sentence)
    for one in done:
        _print_summary(*one)
    return 1 if any(verdicts[word] for verdicts, _, _ in done for word in (*FAILURES, "wrong")) else 0


Done = tuple[Counter[str], list[CellSpec], Path]
"""Verdicts, what is left to measure, and the journal."""


def _measured(
    planned: Sequence[CellSpec], place: Place, run: Run, arguments: argparse.Namespace, deadline: float
) -> Done | None:
    """What came of measuring `planned` into the journal of `run`; None where that was interrupted."""
    budget = None if arguments.budget is None else max(deadline - time.monotonic(), 0.0)
    with JournalWriter(arguments.results, run, resume=arguments.resume) as journal:
        if journal.cut:
            _say(journal.cut)
        for sentence in journal.drifted:
            _say(sentence)
        for name in journal.edited:
            _say(f"the file of {name} or one beside it was edited since its cells were measured; they are measured again.")
        try:
            left = sweep(planned, place, journal, budget=budget, report=_say)
        except KeyboardInterrupt:
            _say(f"interrupted; {journal.path} keeps what was measured, and --resume goes on from there.")
            return None
        recorded = [cell for spec in planned if (cell := journal.recorded.get((spec.id, how_of(spec, place))))]
    return Counter(cell.verdict for cell in recorded), left, journal.path


def _command(arguments: argparse.Namespace) -> str:
    """The command for the record: what decides which cells are measured, and no path of this host."""
    words = ["nvfp4bench", "run", *(f"--{name}" for name in ("quick", "full", "resume", "cpu") if getattr(arguments, name))]
    if arguments.impl:
        words += ["--impl", ",".join(Path(source).name for source in arguments.impl.split(","))]
    if arguments.suite:
        words += ["--suite", arguments.suite]
    if arguments.cell != "*":
        words += ["--cell", arguments.cell]
    if arguments.budget:
        words += ["--budget", f"{arguments.budget:g}"]
    return shlex.join(words)


def _print_plan(planned: Sequence[CellSpec], place: Place, budget: float | None) -> None:
    fitting = planned if budget is None else within(budget, planned, place)
    measured = {spec.id for spec in fitting}
    for spec in (spec for unit in units(planned, place) for spec in unit):
        late = "" if spec.id in measured else "  over the budget"
        print(f"{predicted_seconds(spec, place):7.1f} s  {spec.id}{late}")
    total = sum(predicted_seconds(spec, place) for spec in fitting)
    words = {COMPILING: "compiled by one core", EMULATING: "emulated by one core"}
    where = words.get(place, f"on the {place.how.upper()}")
    print(f"{len(fitting)} of {len(planned)} cells, about {total:.0f} s {where}.")


def _print_summary(verdicts: Counter[str], left: Sequence[CellSpec], path: Path) -> None:
    counts = ", ".join(f"{verdicts[word]} {word}" for word in (*STATUSES, "wrong") if verdicts[word])
    print(f"{verdicts.total()} cells: {counts or 'none measured'}.")
    if left:
        print(f"{len(left)} cells are left, the first is {left[0].id}; the same command with --resume goes on.")
    print(path)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"a positive number of seconds is needed, not {text!r}.")
    return seconds


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
