"""`nvfp4bench cell`: one cell, alone."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence

from benchmarks.cells import CellSpec, find
from benchmarks.commands.selection import chosen_impls
from benchmarks.here import place_here
from benchmarks.once import launch_once
from benchmarks.records import FAILURES, ON_REQUEST, TIMED, to_json
from benchmarks.sweep import Bench, Place, virtual_place
from impls.contract import Unsupported
from impls.errors import CommandError
from impls.worker import Worker

CHECK_SECONDS = 600.0
"""Float64 attention over the longest context takes minutes on a slow machine."""


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
    spec = find(arguments.id, chosen_impls(arguments.impl or _implementation_of(arguments.id)))
    if spec.suite in ON_REQUEST and (arguments.once or arguments.check):
        raise CommandError(f"{spec.id} is compiled and not executed here; leave --once and --check out.")
    place = virtual_place(spec.suite) or place_here(cpu=arguments.cpu)
    if arguments.once:
        return _once(spec, place)
    if arguments.check and spec.suite != "numerics":  # measuring numerics is checking
        return _check(spec, place)
    with Bench(place, report=lambda line: print(line, file=sys.stderr, flush=True)) as bench:
        bench.prepare([spec])
        (cell,) = bench.measure([spec])
    print(json.dumps(to_json(cell), indent=1))
    if cell.status in ("unsupported", "skipped"):
        return 2
    return 1 if cell.verdict in (*FAILURES, "wrong") else 0


def _once(spec: CellSpec, place: Place) -> int:
    """In this process, which is the one that a profiler or sanitizer looks at."""
    device = _device(spec, place)
    try:
        kernels = launch_once(spec, device)
    except Unsupported as reason:
        raise CommandError(f"{spec.id}: {reason}") from reason
    except ModuleNotFoundError:  # nvfp4bench.main says what to install
        raise
    except (Exception, SystemExit) as error:  # whatever an implementation does
        print(f"{spec.id} failed: {traceback.format_exception_only(error)[-1].strip()}", file=sys.stderr)
        return 1
    print(_called(spec, kernels))
    return 0


def _check(spec: CellSpec, place: Place) -> int:
    """In a child: an implementation that ends its process must not end with our status."""
    request = {"id": spec.id, "impl": spec.impl, "source": spec.source, "device": _device(spec, place)}
    interpret = "1" if request["device"] == "cpu" else "0"  # on a CPU, Triton kernels can be right but not be timed
    with Worker("benchmarks.once:answer_check", env={"TRITON_INTERPRET": interpret}) as worker:
        reply = worker.call(request, timeout=CHECK_SECONDS)
    if reply.status == "unsupported":
        raise CommandError(f"{spec.id}: {reply.sentence}")
    if reply.status != "ok":
        print(f"{spec.id} {reply.status}: {reply.sentence}", file=sys.stderr)
        return 1
    found = reply.value["numerics"]
    print(_called(spec, reply.value["kernels"]))
    print(json.dumps(found, indent=1))
    if reply.value["why_wrong"]:
        print(f"{spec.id} is wrong: {reply.value['why_wrong']}")
        return 1
    print(f"{spec.id} is right: its largest error is {found['error_over_bound']:.3g} of its bound.")
    return 0


def _implementation_of(cell_id: str) -> str | None:
    """The name in an id: pairs and layers that are not listed have cells, too. None where it is no id."""
    parts = cell_id.split("/")
    return parts[1] or None if len(parts) > 2 else None


def _device(spec: CellSpec, place: Place) -> str:
    if spec.suite in TIMED and place.no_gpu:
        raise CommandError(f"{spec.id} needs a GPU, and {place.no_gpu}")
    return "cuda" if place.how == "gpu" else "cpu"


def _called(spec: CellSpec, kernels: Sequence[str]) -> str:
    return f"{spec.id}: called once, {', '.join(kernels) or 'by way of torch'}."
