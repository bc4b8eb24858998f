"""What asv calls our series, and what their values are: the same in asv's own runs and in the files made from journals.

    decode-b8/triton/d128/kv8192, series latency   ->   decode.TritonB8.track_latency(128, 8192)

The module is the workload's family, the class the implementation and the rest of the workload's name. Only series of which
less is better are handed to asv, because it has no notion of direction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.cells import Workload, workloads
from benchmarks.records import COMPILED, COUNTED, TIMED, Cell


@dataclass(frozen=True)
class Track:
    """One series of a suite: a method `track_<name>`."""

    name: str
    unit: str
    kind: str
    """asv's type: "time" for samples in seconds, "track" for a number that is the same every time."""


TRACKS = {
    **{suite: (Track("latency", "seconds", "time"),) for suite in TIMED},
    "host": tuple(Track(name, "seconds", "time") for name in ("plan", "pack", "bind", "call")),
    "numerics": tuple(
        Track(name, unit, "track")
        for name, unit in (
            ("error_over_bound", "fraction of the bound"),
            ("relative_l2", "relative error"),
            ("largest_row_error", "relative error"),
            ("lse_error", "absolute error"),
        )
    ),
    COMPILED: tuple(
        Track(name, unit, "track")
        for name, unit in (
            ("registers", "registers of a thread"),
            ("spill_bytes", "bytes"),
            ("local_bytes", "bytes"),
            ("shared_bytes", "bytes"),
            ("instructions", "instructions"),
        )
    ),
    COUNTED: tuple(
        Track(name, unit, "track")
        for name, unit in (
            ("executed", "PTX instructions of warps"),
            ("sectors", "sectors of global memory"),
            ("wavefronts", "wavefronts of shared memory"),
            ("dram_bytes", "bytes"),
            ("barriers", "barriers of warps"),
            ("divergent_branches", "warps that diverge"),
        )
    ),
}
OF_ALL_KERNELS = {"spill_bytes": sum, "instructions": sum}
"""What a call's kernels have together; of anything else it is the largest that counts."""


def module_name(workload: Workload) -> str:
    return workload.name.partition("-")[0]


def class_name(workload: Workload, impl: str) -> str:
    """A Python name, because asv splits benchmark names at hyphens: ("decode-b8", "dual_chunk") is DualChunkB8."""
    words = re.split(r"[^A-Za-z0-9]+", f"{impl} {workload.name.partition('-')[2]}")
    name = "".join(word[0].upper() + word[1:] for word in words if word)
    return name if name[:1].isalpha() else f"Impl{name}"


def benchmark_name(workload: Workload, impl: str, track: Track) -> str:
    return f"{module_name(workload)}.{class_name(workload, impl)}.track_{track.name}"


def class_names(workload: Workload, impls: Iterable[str]) -> dict[str, str]:
    """{class name: implementation}. Raises ValueError where two implementations would share one."""
    named: dict[str, str] = {}
    for impl in impls:
        name = class_name(workload, impl)
        if name in named:
            raise ValueError(f"asv would call {named[name]!r} and {impl!r} both {name}; rename one of the implementations.")
        named[name] = impl
    return named


def told_apart(impls: Iterable[str]) -> tuple[list[str], list[str]]:
    """(the implementations whose series have names of their own; a sentence about each that would take an earlier one's).

    Also across workloads: the decode cells of `a-b8` and the decode-b8 cells of `a` have one name.
    """
    apart: list[str] = []
    clashes: list[str] = []
    owners: dict[str, str] = {}
    for impl in impls:
        classes = [f"{module_name(workload)}.{class_name(workload, impl)}" for workload in workloads_of(impl)]
        taken = next((name for name in classes if name in owners), None)
        if taken is None:
            apart.append(impl)
            owners |= dict.fromkeys(classes, impl)
        else:
            clashes.append(f"asv would call {owners[taken]!r} and {impl!r} both {taken}; rename one of the implementations.")
    return apart, clashes


def workloads_of(impl: str) -> list[Workload]:
    """Those that `impl` has cells of."""
    return [workload for workload in workloads().values() if workload.done_by([impl])]


def samples(cell: Cell, track: Track) -> tuple[float, ...]:
    """The samples of a series, seconds; of an error its one value to 5 digits, and none where that is infinite; of a fact of
    kernels, or of what they did, that of the whole call.

    Empty also where the cell is not ok: asv's `publish` never returns from an Inf, and a failure is no number.
    """
    if track.kind == "time":
        return cell.series.get(track.name, ())
    if cell.kernels:
        return (float(OF_ALL_KERNELS.get(track.name, max)(getattr(kernel, track.name) for kernel in cell.kernels)),)
    if cell.counters:
        return (float(sum(getattr(counters, track.name) for counters in cell.counters)),)
    value = getattr(cell.numerics, track.name, None)
    return () if value is None or not math.isfinite(value) else (float(f"{value:.4e}"),)
