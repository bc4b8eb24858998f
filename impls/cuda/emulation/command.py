"""`nvfp4bench emulate`: anybody's PTX, executed, checked and counted without its GPU.

Exit status: 0 the kernel ran and nothing was found, 1 it has a fault (a race, an access out of bounds, a deadlock, a result
that depends on the order...), 2 it could not be run: a file cannot be read, the launch does not fit the kernel, the emulator
does not know an instruction, or the limit of instructions was reached.
"""

from __future__ import annotations

import argparse
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from impls.arch import Arch, find
from impls.cuda.emulation import memory, report
from impls.cuda.emulation.specification import Buffer, Specification, read, text_of
from impls.cuda.emulator.checks.reports import TooMuch
from impls.cuda.emulator.emulate import LIMIT, SEED, Report, emulate, parsed
from impls.cuda.emulator.errors import EmulationError, NotExecuted, TooLong
from impls.cuda.emulator.machine.schedules import SCHEDULES
from impls.cuda.emulator.ptx.syntax import Module
from impls.errors import CommandError
from impls.files import replace_file, require_replaceable


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ptx", metavar="FILE.ptx", type=Path, help="a PTX module, e.g. of `nvcc -ptx` or Triton's cache")
    parser.add_argument(
        "--launch",
        metavar="SPEC.json",
        type=Path,
        required=True,
        help="entry, grid, block, arguments and buffers; examples/emulate has some, impls/cuda/emulation/specification.py all",
    )
    parser.add_argument(
        "--schedules",
        metavar="A,B",
        default=",".join(SCHEDULES),
        help=f"orders in which warps run, which must leave the same bytes; {', '.join(SCHEDULES)} if left out",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=SEED, help=f"of the schedule seeded (default {SEED})")
    parser.add_argument("--no-checks", action="store_true", help="do not look for races: faster")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=LIMIT, help=f"warp instructions of a launch at most (default {LIMIT:,})"
    )
    parser.add_argument(
        "--shared-limit", metavar="BYTES", type=int, help="shared memory of a block; what the target has if left out"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything that was counted")
    parser.add_argument("--save", metavar="DIR", type=Path, help="write the buffers as NAME.npy there afterwards")


def execute(arguments: argparse.Namespace) -> int:
    schedules = _schedules(arguments.schedules)
    for name, least in (("limit", 1), ("shared_limit", 0)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise CommandError(f"--{name.replace('_', '-')} must be at least {least}, not {value}.")
    module, ptx = _module(arguments.ptx)
    checks = not arguments.no_checks
    room = memory.available()
    try:
        given = read(arguments.launch, ptx, None if room is None else room // memory.COPIES)
        _check_outputs(arguments, given)
        arch = _arch(module)
        limit = arguments.shared_limit if arguments.shared_limit is not None or arch is None else arch.shared_per_block
        _require_room(given, room, checks, limit)
        outcome = _emulated(
            given, schedules=schedules, seed=arguments.seed, checks=checks, shared_limit=limit, limit=arguments.limit
        )
    except MemoryError as error:
        raise CommandError("this machine's memory is too small for it.") from error
    except TooLong as error:
        raise CommandError(f"{error.sentence} Raise --limit if it is no endless loop.") from error
    except TooMuch as error:
        raise CommandError(f"{error.sentence} --no-checks takes less.") from error
    except NotExecuted as error:
        raise CommandError(error.sentence) from error

    options = {"schedules": schedules, "seed": arguments.seed, "checks": checks, "shared_limit": limit}
    if arguments.json:
        text = report.as_json(given.kernels, outcome, given.buffers, arch=arch, options=options)
        _write(arguments.json, text.encode())
    if isinstance(outcome, EmulationError):
        print(f"fault: {outcome.sentence}")
        return 1
    print(report.text(given.kernels, outcome, arch))
    print(f"\nholds: {_what_was_tried(schedules, checks, given.same_bits)}")
    if arguments.save:
        _save(arguments.save, given.buffers)
    return 0


def _schedules(given: str) -> list[str]:
    names = list(dict.fromkeys(filter(None, (word.strip() for word in given.split(",")))))
    if not names:
        raise CommandError("--schedules names no schedule.")
    for name in names:
        if name not in SCHEDULES:
            raise CommandError(f"there is no schedule {name!r}; there are {', '.join(SCHEDULES)}.")
    return names


def _module(path: Path) -> tuple[Module, str]:
    ptx = text_of(path).rstrip("\0")  # NVRTC's text ends with one
    try:
        return parsed(ptx), ptx
    except EmulationError as error:
        raise CommandError(f"{path} is no PTX that the emulator can read: {error.sentence}") from error


def _arch(module: Module) -> Arch | None:
    try:
        return find(module.target)
    except ValueError:
        print(f"nothing is known of the target {module.target}: no limit of shared memory but --shared-limit, and no bounds.\n")
        return None


def _require_room(given: Specification, room: int | None, checks: bool, shared_limit: int | None) -> None:
    sizes = sum(each.values.nbytes for each in given.buffers.values())
    needed = memory.needed(given.kernels, sizes, checks=checks, shared_limit=shared_limit)
    if room is not None and needed > room:
        remedy = "; --no-checks takes less" if checks else ""
        raise CommandError(f"it would take {needed:,} B of memory, and {room:,} B are free{remedy}.")


def _emulated(given: Specification, **options: Any) -> Report | EmulationError:
    """What happened, or the kernel's fault."""
    try:
        return emulate(given.kernels, same_bits=given.same_bits, **options)
    except NotExecuted:
        raise
    except EmulationError as error:
        return error


def _check_outputs(arguments: argparse.Namespace, given: Specification) -> None:
    """Before minutes of work, not after."""
    inputs = [arguments.ptx, arguments.launch, *(each.file for each in given.buffers.values() if each.file)]
    outputs = [arguments.json] if arguments.json else []
    if arguments.save:
        arguments.save.mkdir(parents=True, exist_ok=True)
        outputs += [arguments.save / f"{name}.npy" for name in given.buffers]
    places: set[str] = set()
    for output in outputs:
        place = os.path.realpath(output)
        if place in places:
            raise CommandError(f"two outputs would be written to {place}; name two places.")
        places.add(place)
    for output in outputs:
        for file in inputs:
            if output.exists() and output.samefile(file):
                raise CommandError(f"{output} would replace {file}, which is read; name another place.")
        if output.is_dir():
            raise CommandError(f"cannot write {output}: it is a folder.")
        try:
            require_replaceable(output)
        except OSError as error:
            raise CommandError(f"cannot write {output}: {error.strerror}.") from error


def _save(folder: Path, buffers: dict[str, Buffer]) -> None:
    for name, each in buffers.items():
        content = io.BytesIO()  # np.save does not notice when a disk takes only a part
        np.save(content, each.values)
        _write(folder / f"{name}.npy", content.getbuffer())


def _write(path: Path, content: bytes | memoryview) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}.") from error


def _what_was_tried(schedules: list[str], checks: bool, same_bits: bool) -> str:
    agree = ", with the same bytes" if same_bits and len(schedules) > 1 else ""
    return f"it ran {' and '.join(schedules)}{agree}; {'no race was found' if checks else 'races were not looked for'}."
