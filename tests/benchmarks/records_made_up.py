"""Records for tests; nothing in them was measured."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmarks.records import Cell, Environment, LaunchRecord, Numerics, Run

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER_COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
IMPL = "torch-reference-bf16"


def environment(**changes: Any) -> Environment:
    values = {
        "device": "A CPU",
        "arch": "cpu",
        "platform": "linux-x86_64",
        "python": "3.11.7",
        "numpy": "2.4.6",
        "torch": "2.13.0",
    }
    return Environment(**{**values, **changes})


def run(**changes: Any) -> Run:
    values = {
        "command": "nvfp4bench run",
        "commit": COMMIT,
        "source": "0" * 64,
        "machine": "cpu-x86_64",
        "started": "2026-01-01T00:00:00Z",
        "environment": environment(),
    }
    return Run(**{**values, **changes})


def host_cell(kv_len: int = 1024, impl: str = IMPL, **changes: Any) -> Cell:
    taken = tuple(round(1e-3 + i * 1e-5, 6) for i in range(20))
    values = {"series": dict.fromkeys(("plan", "pack", "bind", "call"), taken)}
    return Cell(id=f"host/{impl}/d128/kv{kv_len}", suite="host", how="cpu", status="ok", **{**values, **changes})


def latency_cell(cell_id: str = f"decode/{IMPL}/d128/kv1024", **changes: Any) -> Cell:
    launch = LaunchRecord(
        entry="attend", cubin="0" * 64, grid=(8, 4, 1), block=(128, 1, 1), shared_bytes=49152, scalars=(0.127, 32.0)
    )
    taken = tuple(round(1e-4 + i * 1e-6, 7) for i in range(20))
    values: dict[str, Any] = {
        "series": {"latency": taken, "host": taken},
        "clocks": {"latency": (1980,) * 20},
        "numerics": numerics(exact_relative_l2=0.0015),
        "launches": (launch,),
        "cache_layout": "nvfp4",
        "work": {"flops": 16777216, "nvfp4_bytes": 1179648},
    }
    return Cell(id=cell_id, suite="latency", how="gpu", status="ok", **{**values, **changes})


def failed_cell(cell_id: str = f"host/{IMPL}/d64/kv1024", status: Any = "failed", sentence: str = "it broke.") -> Cell:
    return Cell(id=cell_id, suite="host", how="cpu", status=status, sentence=sentence)


def numerics(**changes: Any) -> Numerics:
    values = {
        "error_over_bound": 0.25,
        "relative_l2": 0.001234567,
        "largest_row_error": 0.002,
        "magnitude_ratio": 1.0,
        "lse_error": 1e-6,
        "cosine": 1.0,
    }
    return Numerics(**{**values, **changes})


def numerics_cell(case: str, impl: str = IMPL, **changes: Any) -> Cell:
    return Cell(id=f"numerics/{impl}/{case}", suite="numerics", how="cpu", status="ok", numerics=numerics(**changes))


def with_samples(cell: Cell, *taken: float) -> Cell:
    return dataclasses.replace(cell, series=dict.fromkeys(cell.series, taken))
