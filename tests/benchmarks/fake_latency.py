"""Stands for `benchmarks.latency` in a worker: candidates are named for what they do, and times are made up.

Every request is a line of the file $FAKE_LATENCY_LOG, behind the id of the process: "<pid> add plain".
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from impls.contract import Unsupported

SECONDS = 0.05
SAMPLES = 10
"""That many are taken of what lasts so long."""
STATE: dict[str, Any] = {}


def serve(request: dict[str, Any]) -> dict[str, Any]:
    do = request["do"]
    words = [request.get("impl"), request.get("series"), request.get("workload"), *request.get("values", ())]
    with Path(os.environ["FAKE_LATENCY_LOG"]).open("a") as log:
        print(os.getpid(), do, *filter(None, words), file=log)
    if do == "open":
        if STATE.get("spoilt"):
            raise AssertionError("a process that was lost is asked again")
        if request["values"][1] == 32768:
            raise MemoryError
        STATE.update(added=set(), taken=Counter())
        return {"no_clock": "SM clocks are made up."}
    impl = request["impl"]
    if do == "add":
        STATE["added"].add(impl)
        _fail(impl, "add")
        return {"series": ["latency", "host"], "estimate": SECONDS, "facts": {"plan": {"splits": 4}, "compile_seconds": 1.0}}
    assert impl in STATE["added"]
    STATE["taken"][impl] += 1
    if STATE["taken"][impl] == 7:
        _fail(impl, "sample")
    STATE["taken"][impl, request["series"]] += 1
    sags = impl == "sags" and STATE["taken"][impl, request["series"]] <= 4  # of ten
    mhz = (1500 if sags else 1980) if request["series"] == "latency" else None
    if impl == "loses-its-clock" and STATE["taken"][impl] > 7:
        mhz = None
    return {"seconds": SECONDS, "mhz": mhz, "late": impl == "is-late" and request["series"] == "latency"}


def prepare(request: dict[str, Any]) -> None:
    with Path(os.environ["FAKE_LATENCY_LOG"]).open("a") as log:
        print(os.getpid(), "prepare", request["impl"], request["workload"], *request["values"], request["arch"], file=log)
    _fail(request["impl"], "prepare")


def _fail(impl: str, when: str) -> None:
    """What `impl`, "<fault>-in-<step>", does when it comes to that step."""
    fault, _, step = impl.partition("-in-")
    if step != when:
        return
    if fault == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "hangs":
        time.sleep(300)
    if fault == "faults":
        STATE["spoilt"] = True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if fault == "fills" or (fault == "crowds" and len(STATE["added"]) > 1):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    if fault == "refuses":
        raise Unsupported("it does not want to.")
    if fault == "raises":
        raise RuntimeError("its graph replay leaves the output unwritten.")
