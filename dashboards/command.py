"""`nvfp4bench dashboard`: the journals below a results folder made into pages that need no server and no network."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

from benchmarks.journal import read_results
from impls.errors import CommandError
from impls.isa.result import committed, load_committed


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="the journals (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("dashboard"), metavar="DIR", help="the pages (%(default)s)")
    parser.add_argument("--open", action="store_true", help="show the overview in a browser")


def execute(arguments: argparse.Namespace) -> int:
    """0, or 1 if a journal or a part of one could not be used; the pages of the rest are written all the same, and say so."""
    journals, problems = read_results(arguments.results)
    if not journals and not problems:
        raise CommandError(f"no results in {arguments.results}; run `make bench` first, or name their folder by --results.")
    try:
        from plotly.offline import get_plotlyjs

        from dashboards.publish import publish
        from dashboards.site import build, compiled_runs, split_by_arch
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise CommandError(
            f"the pages need {package}, which is not installed for {sys.executable}; install it there."
        ) from None

    runs, unknown = split_by_arch(journals, arguments.results)
    unusable = [_below(arguments.results, sentence) for sentence in [*problems, *unknown]]
    broken_off = [_below(arguments.results, sentence) for journal in journals for sentence in journal.problems]
    probes = [load_committed(release) for release in committed()]
    compiled = compiled_runs(journals, arguments.results)
    publish(build(runs, [*unusable, *broken_off], get_plotlyjs(), probes, compiled), arguments.out)
    for sentence in [*unusable, *broken_off]:
        print(f"left out: {sentence}", file=sys.stderr)
    page = (arguments.out / "index.html").resolve()
    print(f"{len(journals)} {'journal' if len(journals) == 1 else 'journals'} drawn: {page}")
    if arguments.open and not webbrowser.open(page.as_uri()):
        raise CommandError(f"no browser could be started; open {page} yourself.")
    return 1 if unusable else 0


def _below(results: Path, sentence: str) -> str:
    """A sentence about a journal with its path as it is below the results: pages name no folder of the host."""
    return sentence.replace(f"{results}/", "")
