"""Calls of one function in parallel processes that see no GPU, for what they leave in caches on disk: compiled kernels.

Whoever measures or checks afterwards finds them there. Several contexts would take the GPU's memory, and planning needs none.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from impls.host import usable_cores
from impls.worker import Worker

TIMEOUT = 300.0
"""Seconds that one plan may take: some build with a C++ compiler."""
MAX_PROCESSES = 16
REPORT_SECONDS = 10.0


def plan_ahead(
    function: str,
    requests: Sequence[Mapping[str, Any]],
    report: Callable[[str], None],
    *,
    environment: Mapping[str, str] | None = None,
    deadline: float = math.inf,
) -> None:
    """Call `function`, "package.module:function", which plans, with each of `requests`; what is left at `deadline`, of
    `time.monotonic`, is left.

    What fails here is no news: what needs the plan will tell.
    """
    waiting: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    for request in requests:
        waiting.put(request)
    done: list[Mapping[str, Any]] = []
    blind = {"TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": "", **(environment or {})}

    def work() -> None:
        with Worker(function, env=blind) as worker:
            while True:
                try:
                    request = waiting.get_nowait()
                except queue.Empty:
                    return
                worker.call(request, timeout=TIMEOUT)
                done.append(request)

    started = time.monotonic()
    # daemons: when the command ends early, their processes end with them
    processes = min(len(requests), usable_cores(), MAX_PROCESSES)
    threads = [threading.Thread(target=work, daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        reported = time.monotonic()
        for thread in threads:
            thread.join(max(min(reported + REPORT_SECONDS, deadline) - time.monotonic(), 0.0))
        report(f"{len(done)} of {len(requests)} plans are prepared, after {time.monotonic() - started:.0f} s.")
