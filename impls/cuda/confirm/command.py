"""`nvfp4bench confirm`: whether the GPU that is here agrees with the emulator, rule by rule.

Exit status: 0 everything that could be tested agrees, 1 something contradicts the emulator, 2 nothing can be tested: there
is no GPU, no probe for it, or no place for the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from impls.arch import Arch, find
from impls.cuda.confirm.compare import Finding, by_rule, findings
from impls.cuda.confirm.execute import in_emulator, on_gpu
from impls.cuda.confirm.probe import Program, Words
from impls.cuda.confirm.probes import PROBES
from impls.cuda.confirm.vectors import file_name, write, write_confirmed
from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.machine.observe import RULES
from impls.errors import CommandError
from impls.files import replace_file, require_replaceable
from impls.numerics.baselines import toolchain

if TYPE_CHECKING:  # it imports torch
    from impls.cuda.confirm.tiles import Tile

EMULATED = "emulated:"
MOST_SHOWN = 3
NOT_HERE = "not on this arch"
VECTORS, CONFIRMED = "vectors", "silicon.json"
"""What --record leaves."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the verdict on each rule and each instruction")
    parser.add_argument(
        "--record", metavar="DIR", type=Path, help="write vectors for the tests, and the emulator's silicon.json"
    )
    parser.add_argument(
        "--on", metavar="gpu|emulated:ARCH", default="gpu", help="emulated: test the emulator against itself, without a GPU"
    )


def execute(arguments: argparse.Namespace) -> int:
    arch, gpu = _place(arguments.on)
    if gpu is None and arguments.record:
        raise CommandError("--record writes what a GPU gave, and --on emulated has none.")
    programs = [program for program in (probe.on(arch) for probe in PROBES) if program is not None]
    if not programs:
        raise CommandError(f"no instruction is probed on {arch.name}, so nothing can be confirmed; name another architecture.")
    places = _places(arguments, gpu)
    found: list[Finding] = []
    results: dict[Program, tuple[Words, Words]] = {}
    for program in programs:
        started = time.monotonic()
        inputs = program.probe.given
        try:
            emulated = in_emulator(program, inputs)
            observed, expected = (emulated, program.predict(inputs)) if gpu is None else (on_gpu(program, inputs), emulated)
        except (EmulationError, RuntimeError) as error:  # CompileError and the driver's among them
            raise CommandError(f"the probe {program.probe.name!r} cannot be run: {_sentence(error)}") from error
        of_program = findings(program, inputs, observed, expected)
        found += of_program
        results[program] = inputs, observed
        print(_line(program, of_program, time.monotonic() - started), flush=True)
    rules = dict.fromkeys(RULES, NOT_HERE) | by_rule(found)
    from impls.cuda.confirm.tiles import tiles

    try:
        of_tiles = tiles(arch, on_gpu=gpu is not None)
    except RuntimeError as error:
        raise CommandError(f"the tiles of a4q cannot be run: {_sentence(error)}") from error
    for tile in of_tiles:
        print(_tile_line(tile))
    contradicted = [f"{rule}: {verdict}" for rule, verdict in rules.items() if verdict.startswith("contradicted")]
    print("\n".join(contradicted), end="\n" if contradicted else "")
    tested = sum(verdict != NOT_HERE for verdict in rules.values())
    print(
        f"{gpu or arguments.on}: {tested - len(contradicted)} of {tested} rules confirmed, {len(found)} instructions, "
        f"{sum(not tile.why_not for tile in of_tiles)} of {len(of_tiles)} tiles run"
    )
    try:
        if arguments.json:
            text = _json(gpu or arguments.on, arch, rules, found, [asdict(tile) for tile in of_tiles])
            replace_file(arguments.json, text.encode())
        if gpu is not None and arguments.record:
            write(places[VECTORS], gpu, arch, results)
            write_confirmed(places[CONFIRMED], gpu, rules)
    except OSError as error:
        raise CommandError(f"cannot write {error.filename}: {error.strerror}.") from error
    return 1 if contradicted or not all(tile.agrees for tile in of_tiles) else 0


def _place(on: str) -> tuple[Arch, str | None]:
    """(architecture, the GPU's name or None in the emulator). Raises CommandError."""
    if on.startswith(EMULATED):
        return find(on.removeprefix(EMULATED)), None
    if on != "gpu":
        raise CommandError(f"--on is gpu or emulated:ARCH, not {on!r}.")
    from impls.host import gpu_here

    arch, why_not = gpu_here()
    if arch is None:
        raise CommandError(f"no GPU can be used: {why_not} Say --on emulated:sm_90a to test the emulator against itself.")
    import torch

    return arch, f"{torch.cuda.get_device_name(0)} ({arch.name})"


def _places(arguments: argparse.Namespace, gpu: str | None) -> dict[str, Path]:
    """Where each result goes, its folder made. Raises CommandError if one cannot be written: not after minutes of work."""
    places: dict[str, Path] = {}
    if arguments.json:
        places["--json"] = arguments.json
    if arguments.record and gpu is not None:
        places[VECTORS], places[CONFIRMED] = arguments.record / file_name(gpu), arguments.record / "silicon.json"
    for file in places.values():
        try:
            if not file.parent.exists():
                file.parent.mkdir(parents=True)
            require_replaceable(file)
        except OSError as error:
            raise CommandError(f"cannot write {file}: {error.strerror}.") from error
    if len({os.path.realpath(file) for file in places.values()}) < len(places):
        raise CommandError(f"--json and --record both write {arguments.json}; name another file.")
    return places


def _sentence(error: EmulationError | RuntimeError) -> str:
    return error.sentence if isinstance(error, EmulationError) else str(error).splitlines()[0]


def _tile_line(tile: Tile) -> str:
    if tile.why_not:
        return f"not run  a4q {tile.name}: {tile.why_not}"
    said = tile.fault or f"differs by {tile.difference:.1e}"
    return f"{'ok  ' if tile.agrees else 'FAIL'}  a4q {tile.name}: {said}"


def _line(program: Program, found: list[Finding], seconds: float) -> str:
    wrong = [finding for finding in found if finding.differing]
    threads = found[0].threads
    said = f"{len(found)} instructions on {threads} threads, {seconds:.1f} s"
    for finding in wrong[:MOST_SHOWN]:
        said += f"\n      {finding.instruction}: {finding.differing} differ, {finding.counterexample}"
    return f"{'FAIL' if wrong else 'ok  '}  {program.probe.name}: {said}"


def _json(gpu: str, arch: Arch, rules: dict[str, str], found: list[Finding], of_tiles: list[dict[str, object]]) -> str:
    versions = toolchain("gpu")
    document = {
        "gpu": gpu,
        "arch": arch.name,
        "driver": versions.pop("driver", None),
        "toolchain": versions | {"python": ".".join(map(str, sys.version_info[:3]))},
        "rules": rules,
        "largest_errors": {
            each.instruction: {"error": each.largest_error, "bound": each.bound}
            for each in found
            if each.largest_error is not None
        },
        "contradicted": {each.instruction: f"{each.differing}: {each.counterexample}" for each in found if each.differing},
        "tiles": of_tiles,
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
