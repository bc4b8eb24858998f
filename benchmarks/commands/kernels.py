"""`nvfp4bench kernels`: the static report, on a machine with a GPU or without."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.cells import HEAD_DIMS
from benchmarks.commands.selection import chosen_impls, words
from benchmarks.environment import compilers
from benchmarks.inspection import KINDS, LeftOut, Row, Wanted, inspect, needed_disassembler, problem_of
from benchmarks.operations import operation_of
from impls.arch import ARCHES, find
from impls.cuda.cache import default_folder, why_not_kept
from impls.errors import CommandError
from impls.host import usable_cores
from impls.isa.probe import Progress
from impls.registry import implementations

WORDS = ("impl", "arch", "dim", "workload", "kernel")
NUMBERS = ("registers", "spill B", "local B", "shared B", "warps/SM", "instructions")
HEAD = (*WORDS, *NUMBERS)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--impl",
        metavar="A,B",
        help="implementations, by name or as path/to/file.py:Class; left out: all with kernels to list",
    )
    parser.add_argument("--arch", metavar="A,B", help="architectures, e.g. sm_120a; left out: all")
    parser.add_argument("--head-dim", metavar="N,M", help=f"head dims; left out: {', '.join(map(str, HEAD_DIMS))}")
    parser.add_argument("--json", action="store_true", help="everything, opcodes and hashes too, as JSON on stdout")


def execute(arguments: argparse.Namespace) -> int:
    """0 if every kernel that was asked for is reported or refused by its implementation, 1 if one could not be compiled."""
    wanted = _wanted(arguments)
    disassembler = needed_disassembler()  # said before minutes go into compiling
    if trouble := why_not_kept(default_folder()):
        print(trouble, file=sys.stderr)
    jobs = min(usable_cores(), len(wanted))
    rows, left_out = inspect(wanted, jobs, Progress("kernels"))
    if not rows:
        raise CommandError(left_out[0].sentence)
    if arguments.json:
        toolchain = {**compilers(), "nvdisasm": disassembler.release}
        json.dump(_as_json(toolchain, rows, left_out), sys.stdout)
        print()
    else:
        print("\n".join((*_table(rows), *_reasons(left_out))))
    return 1 if any(one.status != "unsupported" for one in left_out) else 0


def _wanted(arguments: argparse.Namespace) -> list[Wanted]:
    """Every call that was asked for. Raises ValueError or CommandError that says what is not known."""
    impls = chosen_impls(arguments.impl)
    if arguments.impl is None:
        impls = {name: name for name, one in implementations().items() if one.lists_launches}
    for name in impls:
        if (operation := operation_of(name)) != "attention":
            raise CommandError(f"only kernels of attention are reported, and {name} is a {operation}; leave it out of --impl.")
    arches = list(ARCHES) if arguments.arch is None else [find(name).name for name in words("--arch", arguments.arch)]
    if "cpu" in arches:
        raise CommandError("kernels are compiled for GPUs, and cpu is none; leave it out of --arch.")
    given = arguments.head_dim
    dims = HEAD_DIMS if given is None else [_head_dim(word) for word in words("--head-dim", given)]
    wanted = [
        Wanted(name, source, arch, dim, kind)
        for name, source in impls.items()
        for arch in dict.fromkeys(arches)
        for dim in dict.fromkeys(dims)
        for kind in KINDS
    ]
    for one in wanted:
        problem_of(one)  # a head dim that makes no problem is refused here
    return wanted


def _head_dim(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise CommandError(f"--head-dim takes numbers such as 128 with commas between them, not {word!r}.")
    return int(word)


def _as_json(toolchain: dict[str, str | None], rows: Sequence[Row], left_out: Sequence[LeftOut]) -> dict[str, Any]:
    return {"toolchain": toolchain, "rows": [asdict(row) for row in rows], "left_out": [asdict(one) for one in left_out]}


def _table(rows: Sequence[Row]) -> list[str]:
    """One line a kernel."""
    cells = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(_aligned(line, widths)).rstrip() for line in cells]


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Words to the left, numbers to the right."""
    pairs = list(zip(line, widths, strict=True))
    words_of, numbers = pairs[: len(WORDS)], pairs[len(WORDS) :]
    return [*(cell.ljust(width) for cell, width in words_of), *(cell.rjust(width) for cell, width in numbers)]


def _cells(row: Row) -> tuple[str, ...]:
    numbers = row.registers, row.spill_bytes, row.local_bytes, row.shared_bytes, row.warps_per_sm, sum(row.opcodes.values())
    limit = find(row.arch).shared_per_block
    shown = [str(number) for number in numbers]
    shown[3] = f"{row.shared_bytes} of {limit}"
    return (row.impl, row.arch, str(row.head_dim), row.workload, row.name, *shown)


def _reasons(left_out: Sequence[LeftOut]) -> list[str]:
    """What is not in the table and why, each reason once."""
    counts = Counter((one.impl, one.status, one.sentence) for one in left_out)
    lines = [f"{impl}, {count} left out, {status}: {why}" for (impl, status, why), count in counts.items()]
    return ["", *lines] if lines else []
