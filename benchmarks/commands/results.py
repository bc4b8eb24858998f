"""`nvfp4bench results`: is what is published sound, does it belong to this commit, can it be smaller."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.asv_file import write_asv_files
from benchmarks.commands.selection import add_results
from benchmarks.commit import committed_source, current_commit
from benchmarks.journal import read_results
from benchmarks.published import adopt, faults, thin
from benchmarks.source import source_hash
from impls.errors import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, summary in (
        ("check", "whether every file is sound, measured from these sources, and fit to be published"),
        ("adopt", "give the commit checked out the journals that were measured from its sources at a lost commit"),
        ("thin", "leave five numbers of each series in all but the newest runs of a machine"),
    ):
        add_results(actions.add_parser(name, help=summary, description=summary))


def execute(arguments: argparse.Namespace) -> int:
    """0 if what was asked for holds or is done, 1 if there is something to repair."""
    actions: dict[str, Callable[[Path], int]] = {"check": _check, "adopt": _adopt, "thin": _thin}
    return actions[arguments.action](arguments.results)


def _check(results: Path) -> int:
    found = faults(results, source_hash())
    for sentence in found:
        print(sentence)
    if not found:
        print(f"{results} is sound.")
    return 1 if found else 0


def _adopt(results: Path) -> int:
    commit = current_commit()
    if commit == "unknown":
        raise CommandError("this tree is not a git checkout, so there is no commit to adopt results for.")
    return _changed(results, *adopt(results, commit, committed_source(commit) or source_hash()))


def _thin(results: Path) -> int:
    return _changed(results, *thin(results))


def _changed(results: Path, done: list[str], refused: list[str]) -> int:
    """Make asv's files anew where something was done; print all sentences."""
    if done:
        done += write_asv_files(results, read_results(results)[0])
    for sentence in (*done, *refused):
        print(sentence)
    if not done and not refused:
        print("there is nothing to do.")
    return 1 if refused else 0
