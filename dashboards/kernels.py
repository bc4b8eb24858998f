"""The page of kernels: static cells, compiled and never executed, made into static.html and its data.

data/static.js              the runs, the looks of implementations, the limits of each architecture
data/<run>-static.js        a row for each kernel of a run, and for each call that has none its reason
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.records import COMPILED, Cell, KernelRecord, Run
from dashboards.rows import BAD, Row, head
from impls.arch import ARCHES, Arch

PAGE = "static.html"


@dataclass(frozen=True)
class CompiledRun:
    """The static cells of one journal."""

    key: str
    """Unique and safe as a file name and an id, whatever the journal is called."""
    run: Run
    cells: tuple[Cell, ...]

    @property
    def failures(self) -> list[Row]:
        return [head(cell) for cell in self.cells if cell.verdict in BAD]

    @property
    def label(self) -> str:
        started = self.run.started.replace("T", " ").replace("Z", "")
        return f"{started} · {self.run.commit[:8]} · {len(self.cells)} calls"

    @property
    def kernels(self) -> int:
        return sum(len(cell.kernels) for cell in self.cells)

    def on(self, arch: Arch) -> dict[str, int]:
        """{what: how many} of the calls and kernels of `arch`."""
        mine = [cell for cell in self.cells if cell.how == f"{COMPILED}:{arch.name}"]
        kernels = [kernel for cell in mine for kernel in cell.kernels]
        return {
            "calls": sum(cell.status == "ok" for cell in mine),
            "refused": sum(cell.status == "unsupported" for cell in mine),
            "kernels": len(kernels),
            "spilling": sum(kernel.spill_bytes > 0 for kernel in kernels),
            "too large": sum(kernel.warps_per_sm == 0 for kernel in kernels),
        }


def kernel_rows(cells: Sequence[Cell]) -> list[Row]:
    """A row for each kernel of a call, with the call's architecture and the limits there; one for a call without."""
    rows: list[Row] = []
    for cell in cells:
        arch = ARCHES.get(cell.how.partition(":")[2])
        name, dim = (*cell.parameters, "", "")[:2]
        call = head(cell) | {"work": cell.workload.partition("-")[2], "arch": name, "head_dim": dim.removeprefix("d")}
        rows += [call | _facts(kernel, arch) for kernel in cell.kernels] or [call]
    return rows


def _facts(kernel: KernelRecord, arch: Arch | None) -> Row:
    return {
        "kernel": kernel.entry,
        "registers": kernel.registers,
        "shared_bytes": kernel.shared_bytes,
        "shared_limit": arch.shared_per_block if arch else None,
        "warps_per_sm": kernel.warps_per_sm,
        "warps_limit": arch.warps_per_sm if arch else None,
        "spill_bytes": kernel.spill_bytes,
        "local_bytes": kernel.local_bytes,
        "threads": kernel.threads,
        "instructions": kernel.instructions,
    }


def limits() -> list[Row]:
    """What each architecture allows, in the order of compute capability."""
    return [
        {
            "arch": arch.name,
            "chips": arch.chips,
            "shared_bytes": arch.shared_per_block,
            "shared_per_sm": arch.shared_per_sm,
            "registers": arch.registers_per_thread,
            "warps_per_sm": arch.warps_per_sm,
        }
        for arch in ARCHES.values()
    ]
