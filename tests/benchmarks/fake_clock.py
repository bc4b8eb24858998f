"""A clock without a GPU: calls happen at once on the CPU, a captured call is the call, and every sample takes a millisecond."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from benchmarks.clock import Clock, Sample
from benchmarks.latency import Session


class FakeClock(Clock):
    """Nothing of the clock of a GPU is left."""

    why_no_mhz = "SM clocks are not recorded: this clock is made up."

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.did: list[str] = []
        """"run" for each call that was not timed, "host" or "sample" for each that was."""
        self.host_seconds: list[float] = []
        """What each sample was told that the host needs for it."""
        self.hosted: list[tuple[Callable[[], object], float]] = []
        """Each call of `host`, and its time, of which no two are alike."""

    def run(self, call: Callable[[], object]) -> None:
        self.did.append("run")
        call()

    def capture(self, call: Callable[[], object]) -> Callable[[], None]:
        """What an implementation says its graph does (see `hostile_calls`), else the call itself."""
        call()
        return getattr(call, "captured", call)

    def sample(self, call: Callable[[], object], *, cold: bool = True, host_seconds: float = 0.0) -> Sample:
        self.did.append("sample")
        self.host_seconds.append(host_seconds)
        call()
        return Sample(1e-3, None, late=False)

    def host(self, call: Callable[[], object]) -> Sample:
        self.did.append("host")
        call()
        self.hosted.append((call, 1e-3 * (1 + len(self.hosted))))
        return Sample(self.hosted[-1][1], None, late=False)

    def release(self) -> None:
        pass


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """`benchmarks.latency.serve` with this clock. For a worker."""
    return _session().answer(request)


@cache
def _session() -> Session:
    return Session(FakeClock())
