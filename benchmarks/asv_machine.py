"""How asv is told which machine results come from."""

from __future__ import annotations

from benchmarks.records import Environment


def machine_fields(machine: str, environment: Environment) -> dict[str, str]:
    """The fields of asv's machine.json: what tells machines apart and nothing that an update changes.

    asv starts a new history when one of them changes, and its `publish` takes flat strings only. Versions of the driver
    and the toolchain are in the journal. Fields of asv that vary between hosts of one GPU model are there and empty.
    """
    system, _, architecture = environment.platform.partition("-")
    on_gpu = environment.arch != "cpu"
    return {
        "machine": machine,
        "os": system,
        "arch": architecture,
        "cpu": "",
        "num_cpu": "",
        "ram": "",
        "gpu": environment.device if on_gpu else "",
        "gpu_arch": environment.arch if on_gpu else "",
    }
