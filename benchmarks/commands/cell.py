"""`nvfp4bench cell`: one cell, alone."""

from __future__ import annotations

import argparse
import dataclasses
import json

from benchmarks.cells import CellSpec, find
from benchmarks.commands.selection import chosen_impls
from benchmarks.here import place_here
from benchmarks.once import check, launch_once
from benchmarks.records import to_json
from benchmarks.sweep import FAILURES, Bench, Place, verdict_of
from impls.contract import Unsupported
from impls.errors import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="e.g. host/torch-reference-bf16/d128/kv1024")
    parser.add_argument("--impl", metavar="FILE:CLASS", help="where the implementation is, if it is not a registered one")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--once", action="store_true", help="call its kernels once in this process, for a profiler or sanitizer"
    )
    instead.add_argument(
        "--check", action="store_true", help="call them once and compare the output with the float64 reference"
    )
    parser.add_argument("--cpu", action="store_true", help="on the CPU, even if a GPU is here")


def execute(arguments: argparse.Namespace) -> int:
    """0 if the cell was measured (with --check: is right), 1 if it failed or is wrong, 2 if it cannot be measured here."""
    spec = find(arguments.id, chosen_impls(arguments.impl))
    place = place_here(cpu=arguments.cpu)
    if arguments.once or (arguments.check and spec.suite != "numerics"):  # measuring numerics is checking
        return _once(spec, place, checked=arguments.check)
    with Bench(place) as bench:
        cell = bench.measure(spec)
    print(json.dumps(to_json(cell), indent=1))
    if cell.status in ("unsupported", "skipped"):
        return 2
    return 1 if verdict_of(cell) in (*FAILURES, "wrong") else 0


def _once(spec: CellSpec, place: Place, *, checked: bool) -> int:
    if spec.suite == "latency" and place.no_gpu:
        raise CommandError(f"{spec.id} needs a GPU, and {place.no_gpu}")
    try:
        launched = launch_once(spec, "cuda" if place.how == "gpu" else "cpu")
    except Unsupported as reason:
        raise CommandError(f"{spec.id}: {reason}") from reason
    print(f"{spec.id}: called once, {', '.join(launched.kernels) or 'by way of torch'}.")
    if not checked:
        return 0
    found = check(launched)
    print(json.dumps(dataclasses.asdict(found), indent=1))
    right = max(found.out_over_bound, found.lse_over_bound) <= 1 and found.nan_count == 0
    print(f"{spec.id} is {'right' if right else 'wrong'}: its largest error is {found.out_over_bound:.3g} of its bound.")
    return 0 if right else 1
