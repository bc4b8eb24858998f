"""The process that times: it holds one shape at a time, and takes samples of its candidates one request after the other.

    {"do": "open", "workload": "decode", "values": [128, 131072]}   make the data; what was open before is given up
    {"do": "add", "impl": "triton"}                                 -> {"series", "estimate", "facts"}
    {"do": "sample", "impl": "triton", "series": "latency"}         -> {"seconds", "mhz"}

`impl` is what `benchmarks.operations.implementation` takes. Who asks decides on order and number, and replaces the process when
a candidate has broken it. `prepare` is for other processes: it compiles ahead, so that `add` finds the kernels on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from benchmarks.candidate import Candidate
from benchmarks.cells import workloads
from benchmarks.clock import Clock
from benchmarks.operations import implementation
from benchmarks.subject import Subject
from benchmarks.subjects import subject
from impls.arch import find
from impls.contract import Unsupported


class Session:
    """What the requests are put to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._subject: Subject | None = None
        self._candidates: dict[str, Candidate] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """JSON data for one request. Raises ValueError on one that means nothing."""
        arguments = dict(request)
        known: dict[Any, Callable[..., dict[str, Any]]] = {"open": self.open, "add": self.add, "sample": self.sample}
        do = arguments.pop("do", None)
        if do not in known:
            raise ValueError(f"a request is one of {', '.join(known)}, not {do!r}.")
        return known[do](**arguments)

    def open(self, workload: str, values: Sequence[Any]) -> dict[str, Any]:
        """{"no_clock": one sentence where there is no SM clock, else None}"""
        self._candidates.clear()
        self._subject = None
        self._clock.release()
        self._subject = subject(workloads()[workload].problem(*values), self._clock.device)
        return {"no_clock": self._clock.why_no_mhz}

    def add(self, impl: str) -> dict[str, Any]:
        """{"series": what can be sampled, "estimate": seconds of a call, "facts": fields of the cell}

        Raises Unsupported, RuntimeError where the candidate fails a check, and whatever it raises itself. The candidates
        that are here stay, unless the error is one of CUDA.
        """
        opened = self._opened()
        self._clock.release()  # what a candidate that failed has left behind
        try:
            candidate = Candidate(implementation(impl), opened, self._clock)
        finally:
            overwritten = opened.overwritten()
            if overwritten:
                opened.restore()
        if overwritten:
            raise RuntimeError(f"it writes to its inputs: {', '.join(overwritten)}.")
        self._candidates[impl] = candidate
        return {"series": candidate.series, "estimate": candidate.sample("latency").seconds, "facts": candidate.facts()}

    def sample(self, impl: str, series: str) -> dict[str, Any]:
        """{"seconds": float, "mhz": SM clock or None}"""
        if impl not in self._candidates:
            raise ValueError(f"{impl} was not added to this shape.")
        return self._candidates[impl].sample(series)._asdict()

    def _opened(self) -> Subject:
        if self._subject is None:
            raise ValueError("no shape is open.")
        return self._subject


def serve(request: Mapping[str, Any]) -> dict[str, Any]:
    """`Session.answer` on GPU 0. For a worker."""
    return _session().answer(request)


@cache
def _session() -> Session:
    return Session(Clock())


def prepare(request: Mapping[str, Any]) -> None:
    """Plan {"impl", "workload", "values", "arch"}, so that its kernels are in the caches on disk. Needs no GPU.

    Raises Unsupported, and whatever the implementation raises.
    """
    chosen, arch = implementation(request["impl"]), find(request["arch"])
    problem = workloads()[request["workload"]].problem(*request["values"])
    reason = chosen.why_not(problem, arch)
    if reason is not None:
        raise Unsupported(reason)
    chosen.plan(problem, arch)
