"""`nvfp4bench gate`: numeric regressions, every implementation against the float64 reference.

Exit status: 0 all that ran holds, 1 something does not (wrong, worse than its baseline, crashed, hung, or an implementation
that was named cannot run), 2 nothing could be run or the command makes no sense.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from impls.ahead import plan_ahead
from impls.arch import ARCHES, find
from impls.errors import CommandError
from impls.files import one_at_a_time
from impls.numerics import report
from impls.numerics.baselines import Baselines, default_path, read, toolchain
from impls.numerics.cases import CASES
from impls.numerics.gate import Chosen, Verdict, refused_as_a_whole, run
from impls.outside import name_of_file
from impls.registry import STAND_INS, implementation, misnamed, names

TIMEOUT = 300.0
"""Seconds a case may take: ten times what the slowest takes interpreted on a slow core."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--impl", metavar="A,B", help="implementations, by name or as path/to/file.py:Class; all if left out")
    parser.add_argument("--on", metavar="gpu|cpu|emulated:ARCH", help="where to run; gpu if there is one that can be used")
    parser.add_argument("--case", metavar="GLOB", default="*", help="cases to run, e.g. 'paged-*'")
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="baselines to hold the errors against")
    parser.add_argument("--update", action="store_true", help="take the errors over as baselines, unless they break a bound")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything that is known about each case")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write a JUnit report")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=TIMEOUT, help="time for one case (default 300)")


def execute(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.timeout < float("inf"):
        raise CommandError(f"--timeout must be a positive number of seconds, not {arguments.timeout}.")
    cases = [name for name in CASES if fnmatch.fnmatchcase(name, arguments.case)]
    if not cases:
        raise CommandError(f"no case matches {arguments.case!r}; leave --case out to run and list all {len(CASES)}.")
    on, arch = _place(arguments.on)
    chosen = _chosen(arguments.impl)
    path = arguments.baseline or default_path(on, arch)
    if arguments.baseline and not arguments.update and not path.exists():
        raise CommandError(f"there are no baselines {path}; make them with --update.")
    baselines = read(path) if path.exists() else Baselines()
    if arguments.json and arguments.junit and _same(arguments.json, arguments.junit):
        raise CommandError(f"--json and --junit are both {arguments.json}; name two files.")
    for option, file in (("--json", arguments.json), ("--junit", arguments.junit)):
        if file and _same(file, path):
            raise CommandError(f"{option} {file} is the file of the baselines, which it would destroy; name another.")
    for file in filter(None, (arguments.json, arguments.junit)):
        _check_writable(file)
    if arguments.update:
        _check_replaceable(path)

    if on == "gpu":
        requests = [{"impl": one.source, "case": case, "arch": arch} for one in chosen for case in cases]
        plan_ahead("impls.numerics.measure:plan_case", requests, lambda line: print(line, file=sys.stderr, flush=True))
    verdicts = run(chosen, cases, on=on, baselines=baselines, timeout=arguments.timeout, report=_Progress())
    refused = refused_as_a_whole(verdicts)
    named = set(refused) if arguments.impl else set()
    if len(refused) == len(chosen):
        raise CommandError(f"nothing was run: {' '.join(dict.fromkeys(refused.values()))}")
    holds = all(verdict.holds for verdict in verdicts) and not named

    print(report.table(verdicts))
    if arguments.json:
        text = report.as_json(verdicts, on=on, arch=arch, baseline=path.name, holds=holds, named=named)
        _write(arguments.json, text)
    if arguments.junit:
        _write(arguments.junit, report.as_junit(verdicts, named=named))
    if arguments.update:
        _update(baselines, verdicts, path, on)
        holds = not any(verdict.breaks_bound for verdict in verdicts) and not named
    print(report.summary(verdicts, holds=holds, named=named))
    return 0 if holds else 1


def _place(on: str | None) -> tuple[str, str]:
    """(how to run, architecture). Raises CommandError where it has to be said, or cannot be done."""
    if on == "cpu":
        return "cpu", "cpu"
    if on is not None and on.partition(":")[0] == "emulated":
        named = on.partition(":")[2]
        if named not in {*ARCHES, *(name.removesuffix("a") for name in ARCHES)}:
            raise CommandError(f"--on emulated:ARCH wants one of {', '.join(ARCHES)}, not {named!r}.")
        arch = find(named).name
        return f"emulated:{arch}", arch
    if on not in (None, "gpu"):
        raise CommandError(f"--on is gpu, cpu or emulated:ARCH, not {on!r}.")
    from impls.host import gpu_here

    here, reason = gpu_here()
    if here is None:
        raise CommandError(f"no GPU can be used: {reason} Say --on cpu to run on the CPU.")
    return "gpu", here.name


def _chosen(given: str | None) -> list[Chosen]:
    """The implementations to run. Raises CommandError for one that is not there or cannot be loaded."""
    known = names()
    if given is None:
        for sentence in misnamed():
            print(f"left out: {sentence}", file=sys.stderr)
        return [Chosen(name, name) for name in known]
    chosen = []
    for source in dict.fromkeys(filter(None, (word.strip() for word in given.split(",")))):
        if ".py:" not in source and source not in known:
            _check_pair(source, [*known, *STAND_INS])
        chosen.append(Chosen(name_of_file(source) if ".py:" in source else source, source))
    twice = sorted({one.name for one in chosen if sum(other.name == one.name for other in chosen) > 1})
    if twice:
        raise CommandError(f"two implementations are called {twice[0]!r}; rename one.")
    if not chosen:
        raise CommandError("--impl names no implementation.")
    return chosen


def _check_pair(source: str, known: Sequence[str]) -> None:
    """Raises CommandError unless `source` is a stand-in, or outer:inner of what there is."""
    outer, _, inner = source.partition(":")
    if source not in known and not (outer in known and inner in known):
        raise CommandError(
            f"unknown implementation {source!r}; there are {', '.join(known)}, or name one as path/to/file.py:Class."
        )
    try:
        implementation(source)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _check_writable(path: Path) -> None:
    """Before minutes of work, not after."""
    try:
        existed = path.exists()
        with path.open("a"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}.") from error


def _check_replaceable(path: Path) -> None:
    """As `_check_writable`, of a file that another is put in the place of."""
    try:
        with tempfile.TemporaryFile(dir=os.path.realpath(path.parent)):
            pass
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}.") from error


def _same(file: Path, other: Path) -> bool:
    """Whether what is written to one is written to the other, by links too."""
    paths = [Path(os.path.realpath(one)) for one in (file, other)]
    return paths[0] == paths[1] or (all(path.exists() for path in paths) and paths[0].samefile(paths[1]))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}; what it says there is not whole.") from error


def _update(baselines: Baselines, verdicts: Sequence[Verdict], path: Path, on: str) -> None:
    """Take over what holds its bound; print old -> new. What another call has updated meanwhile is kept."""
    tools = toolchain(on)
    with one_at_a_time(path):
        if path.exists():
            baselines = read(path)
        for verdict in verdicts:
            label = f"{verdict.implementation}/{verdict.case}"
            if verdict.breaks_bound:
                print(f"baseline of {label} kept: {verdict.sentence}")
            elif verdict.measured is not None:
                change = baselines.record(verdict.implementation, verdict.case, verdict.measured["numerics"])
                if change:
                    print(f"baseline of {label}: {change}")
        baselines.toolchain = tools
        baselines.write(path)
    print(f"wrote {path}")


class _Progress:
    """A line on stderr for each verdict; for what an implementation refuses, one for each reason."""

    def __init__(self) -> None:
        self._refusals: set[tuple[str, str | None]] = set()

    def __call__(self, verdict: Verdict, number: int, count: int) -> None:
        if verdict.status == "unsupported":
            refusal = (verdict.implementation, verdict.sentence)
            if refusal in self._refusals:
                return
            self._refusals.add(refusal)
        told = f": {verdict.sentence}" if verdict.status != "pass" else ""
        line = f"[{number}/{count}] {verdict.implementation}/{verdict.case} {verdict.status} ({verdict.seconds:.1f} s){told}"
        print(line, file=sys.stderr, flush=True)
