"""The options that say which implementations, suites and results a command is about."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.asv_names import told_apart
from benchmarks.operations import all_names, implementation
from benchmarks.records import ON_REQUEST, SUITES
from impls.errors import CommandError
from impls.outside import name_of_file
from impls.registry import misnamed


def add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--impl", metavar="A,B", help="implementations, by name or as path/to/file.py:Class; left out: all")
    parser.add_argument("--suite", metavar="A,B", help=f"of {', '.join(SUITES)}; left out: all but {' and '.join(ON_REQUEST)}")


def add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cpu", action="store_true", help="measure the CPU, even if a GPU is here")
    add_results(parser)


def add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="folder of results")


def chosen_impls(text: str | None) -> dict[str, str]:
    """{name: what the registry finds it by}.

    What is left out of all there are is said on stderr. Raises ValueError that lists the names if one is unknown, and
    CommandError if one cannot be loaded or has the name of another, also in asv's spelling.
    """
    if text is None:
        for sentence in misnamed():
            print(f"left out: {sentence}", file=sys.stderr)
        return {name: name for name in all_names()}
    chosen = {}
    for source in words("--impl", text):
        name = name_of_file(source) if ".py:" in source else implementation(source).name
        if name in chosen:
            raise CommandError(f"--impl names {name!r} twice.")
        # another process, with another working directory, has to find the same file
        chosen[name] = str(Path(source).absolute()) if ".py:" in source else source
    _, clashes = told_apart(dict.fromkeys([*all_names(), *chosen]))
    if clashes:  # said before anything is measured that asv could not be told
        raise CommandError(clashes[0])
    return chosen


def chosen_suites(text: str | None, pattern: str = "*") -> tuple[str, ...]:
    """Of cells that `pattern` names. What is of no machine is asked for: by its suite, or by ids that begin as its
    workloads do.

    Raises CommandError that lists the suites if one is unknown.
    """
    if text is None:
        named = {suite for suite in ON_REQUEST for one in pattern.split(",") if one.strip().startswith(f"{suite}-")}
        return tuple(suite for suite in SUITES if suite not in ON_REQUEST or suite in named)
    chosen = words("--suite", text)
    for word in chosen:
        if word not in SUITES:
            raise CommandError(f"unknown suite {word!r}; there are {', '.join(SUITES)}.")
    return tuple(chosen)


def words(option: str, text: str) -> list[str]:
    """What stands between the commas of `text`. Raises CommandError where nothing does."""
    found = [word.strip() for word in text.split(",")]
    if not all(found):
        raise CommandError(f"{option} takes names with commas between them, not {text!r}.")
    return found
