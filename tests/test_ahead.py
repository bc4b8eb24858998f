"""Plans made ahead: all of them, in as many processes as there are cores for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from impls import ahead

REQUESTS = [{"number": number} for number in range(40)]


@pytest.mark.parametrize(("usable", "processes"), [(3, 3), (40, ahead.MAX_PROCESSES)])
def test_no_more_processes_than_cores_that_may_be_used(monkeypatch, usable: int, processes: int) -> None:
    """A container of few cores may be on a machine of many."""
    workers: list[Worker] = []
    calls: list[Mapping[str, Any]] = []

    class Worker:
        def __init__(self, function: str, *, env: Mapping[str, str]) -> None:
            workers.append(self)

        def __enter__(self) -> Worker:
            return self

        def __exit__(self, *exc: object) -> None:
            pass

        def call(self, request: Mapping[str, Any], *, timeout: float) -> None:
            calls.append(request)

    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(usable)), raising=False)
    monkeypatch.setattr(ahead, "Worker", Worker)
    ahead.plan_ahead("module:function", REQUESTS, lambda line: None)
    assert len(workers) == processes
    assert sorted(request["number"] for request in calls) == list(range(len(REQUESTS)))
