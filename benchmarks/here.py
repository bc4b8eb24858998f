"""What a run on this machine is: where it measures, and the record it begins with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from benchmarks.ceilings import measured_ceilings
from benchmarks.commit import current_commit
from benchmarks.environment import environment, gpu, machine_name, without_device
from benchmarks.records import STARTED, Run
from benchmarks.source import source_hash
from benchmarks.sweep import COMPILING, EMULATING, Place, import_path

VIRTUAL = {COMPILING: "none: compiled, not executed", EMULATING: "none: PTX executed by the emulator"}
"""{place that is no machine: the device that its runs name}"""


def place_here(*, cpu: bool = False) -> Place:
    """The GPU, or the CPU where there is none or `cpu` asks for it. Raises CommandError where a GPU cannot be used."""
    if cpu:
        return Place("cpu", no_gpu="--cpu asked for the CPU.")
    environment()  # raises where a GPU is there and cannot be used
    state = gpu()
    return Place("gpu", arch=state.arch.name) if state.arch is not None else Place("cpu", no_gpu=state.why_not)


def this_run(
    command: str, place: Place, *, timed: bool, commit: str | None = None, outside: Mapping[str, str] | None = None
) -> Run:
    """The run that starts now; where it is `timed`, on a GPU, the ceilings are measured first. What is compiled or emulated
    alone is of a virtual machine: equal sources and compilers give equal cells on any. `outside` as in `Run`.

    Raises CommandError as `place_here` does, and where torch or numpy is missing, or the GPU cannot be timed.
    """
    virtual, cpu = VIRTUAL.get(place), place.how == "cpu"
    with import_path() as path:
        ceilings = measured_ceilings(path) if timed and not cpu else {}
    return Run(
        command=command,
        commit=commit or current_commit(),
        source=source_hash(),
        machine=place.how if virtual else machine_name(cpu=cpu),
        started=datetime.now(UTC).strftime(STARTED),
        environment=without_device(virtual) if virtual else environment(cpu=cpu),
        ceilings=ceilings,
        outside=outside or {},
    )
