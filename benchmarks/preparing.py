"""Plans made ahead in parallel processes, whose kernels stay in the caches on disk: timing begins when compiling is over.

The processes see no GPU: several contexts would take its memory, and planning needs none.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence

from benchmarks.cells import CellSpec
from impls.worker import Worker

FUNCTION = "benchmarks.latency:prepare"
TIMEOUT = 300.0
"""Seconds that one plan may take: some build with a C++ compiler."""
MAX_PROCESSES = 16
REPORT_SECONDS = 10.0


def prepare(
    specs: Sequence[CellSpec],
    arch: str,
    import_path: str,
    report: Callable[[str], None],
    *,
    deadline: float = math.inf,
) -> None:
    """Plan every cell of `specs` once for `arch`; what is left at `deadline`, of `time.monotonic`, is left.

    What fails here is no news: measuring the cell will tell.
    """
    waiting: queue.SimpleQueue[CellSpec] = queue.SimpleQueue()
    for spec in specs:
        waiting.put(spec)
    done: list[CellSpec] = []
    environment = {"PYTHONPATH": import_path, "TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""}

    def work() -> None:
        with Worker(FUNCTION, env=environment) as worker:
            while True:
                try:
                    spec = waiting.get_nowait()
                except queue.Empty:
                    return
                request = {"impl": spec.source, "workload": spec.workload.name, "values": spec.values, "arch": arch}
                worker.call(request, timeout=TIMEOUT)
                done.append(spec)

    started = time.monotonic()
    # daemons: when the command ends early, their processes end with them
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(len(specs), os.cpu_count() or 1, MAX_PROCESSES))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        reported = time.monotonic()
        for thread in threads:
            thread.join(max(min(reported + REPORT_SECONDS, deadline) - time.monotonic(), 0.0))
        report(f"{len(done)} of {len(specs)} plans are prepared, after {time.monotonic() - started:.0f} s.")
