"""The benchmark classes that asv finds: one per workload and implementation, made from names alone.

asv runs a family's `setup_cache` once per commit, in a process of its own, and then one process per class, series and
parameter. So the sweep happens in `setup_cache`, and the `track_` methods only read what it found. It stands in every
benchmark module again, because asv tells caches apart by the module and the line of that function.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.asv_names import TRACKS, Track, class_names, module_name, samples
from benchmarks.cells import Workload, specs, workloads
from benchmarks.here import place_here, this_run
from benchmarks.journal import JournalWriter, read_journal
from benchmarks.operations import all_names
from benchmarks.records import FAILURES, PROTOCOL, TIMED, Cell, from_json, to_json
from benchmarks.sweep import sweep, virtual_place

SWEEP_TIMEOUT = 3600
"""Seconds asv gives a family's sweep; each cell has a limit of its own."""
Found = dict[str, Any]
"""{cell id: its record as JSON data}"""


def benchmark_classes(module: str) -> dict[str, type]:
    """{class name: class} of a benchmark module, for all workloads of its family and all registered implementations."""
    family = module.rpartition(".")[2]
    return {
        name: _benchmark_class(name, module, workload, impl)
        for workload in workloads().values()
        if module_name(workload) == family
        for name, impl in class_names(workload, workload.done_by(all_names())).items()
    }


def swept(module: str) -> Found:
    """Measure every cell of a family, exactly as `nvfp4bench run` does, into a journal that is then forgotten."""
    family = module.rpartition(".")[2]
    wanted = [spec for spec in specs({name: name for name in all_names()}) if module_name(spec.workload) == family]
    places = {virtual_place(spec.suite) for spec in wanted}
    place = (places.pop() if len(places) == 1 else None) or place_here()
    timed = any(spec.suite in TIMED for spec in wanted)
    with tempfile.TemporaryDirectory(prefix="nvfp4bench-") as folder:
        with JournalWriter(Path(folder), this_run("asv", place, timed=timed), resume=False) as journal:
            sweep(wanted, place, journal)
        return {cell.id: to_json(cell) for cell in read_journal(journal.path).cells}


def _benchmark_class(name: str, module: str, workload: Workload, impl: str) -> type:
    def setup(self: object, found: Found, *point: int | str) -> None:
        """asv shows n/a where this raises NotImplementedError."""
        cell = _cell(found, workload, impl, point)
        if cell.status not in ("ok", *FAILURES):
            raise NotImplementedError(cell.sentence)

    members: dict[str, Any] = {f"track_{track.name}": _method(workload, impl, track) for track in TRACKS[workload.suite]}
    members |= {
        "__doc__": f"{impl}. {workload.claim}",
        "__module__": module,
        "params": [list(axis.values) for axis in workload.axes],
        "param_names": [axis.name for axis in workload.axes],
        "setup": setup,
    }
    return type(name, (), members)


def _method(workload: Workload, impl: str, track: Track) -> Callable[..., Any]:
    def read(self: object, found: Found, *point: int | str) -> Any:
        cell = _cell(found, workload, impl, point)
        taken = samples(cell, track)
        if not taken:
            raise RuntimeError(cell.sentence or f"{track.name} of {cell.id} is infinite")
        return {"samples": list(taken), "number": 1} if track.kind == "time" else taken[0]

    # asv reads what is set on the function, and takes the version for its own if nobody else gives one
    vars(read).update(unit=track.unit, type=track.kind, version=PROTOCOL)
    return read


def _cell(found: Found, workload: Workload, impl: str, point: tuple[int | str, ...]) -> Cell:
    cell = from_json(found[workload.cell_id(impl, point)])
    assert isinstance(cell, Cell)
    return cell
