"""Plans made ahead in parallel processes, whose kernels stay in the caches on disk: timing begins when compiling is over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from benchmarks.cells import CellSpec
from impls.ahead import plan_ahead

FUNCTION = "benchmarks.latency:prepare"


def prepare(
    specs: Sequence[CellSpec],
    arch: str,
    import_path: str,
    report: Callable[[str], None],
    *,
    deadline: float = math.inf,
) -> None:
    """Plan every cell of `specs` once for `arch`; what is left at `deadline`, of `time.monotonic`, is left."""
    requests = [{"impl": spec.source, "workload": spec.workload.name, "values": spec.values, "arch": arch} for spec in specs]
    plan_ahead(FUNCTION, requests, report, environment={"PYTHONPATH": import_path}, deadline=deadline)
