"""What a sample puts on the stream, with a GPU that only takes notes."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from benchmarks import clock
from benchmarks.clock import LONGER, SLEEP_CYCLES, TRIES, Clock, sleep_cycles


@pytest.mark.parametrize("host_seconds", [0.0, 1e-6, 1e-3, 0.5])
def test_the_gpu_sleeps_as_long_as_the_host_takes_at_any_clock(host_seconds: float) -> None:
    """3 GHz is more than the highest SM clock of any data sheet (NVIDIA's GeForce RTX 5090: 2.41 GHz)."""
    assert sleep_cycles(host_seconds) >= max(host_seconds * 3e9, SLEEP_CYCLES)


@pytest.mark.parametrize("late", [0, 1, TRIES - 1, TRIES, 100])
def test_a_call_that_the_gpu_came_to_too_early_is_timed_anew(late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `TRIES` it is the call that waits for the GPU."""
    did: list[object] = []
    answers = iter([True] * late + [False] * TRIES)
    event = SimpleNamespace(record=lambda: did.append("event"), query=lambda: next(answers), elapsed_time=lambda end: 2.0)
    made = Clock.__new__(Clock)
    made.device = torch.device("cuda", 0)
    parts = {"_stream": None, "_start": event, "_end": event, "_sm_clock": SimpleNamespace(mhz=lambda: 1980)}
    for name, part in parts.items():
        monkeypatch.setattr(made, name, part, raising=False)
    monkeypatch.setattr(Clock, "flush", lambda self: did.append("flush"))
    monkeypatch.setattr(torch.cuda, "_sleep", did.append, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: did.append("wait"))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    assert made.sample(lambda: did.append("call"), host_seconds=1e-3) == clock.Sample(2e-3, 1980, late=late >= TRIES)
    tries = min(late + 1, TRIES)
    sleeps = [sleep_cycles(1e-3) * LONGER**number for number in range(tries)]
    assert did == ["wait"] + [step for sleep in sleeps for step in (sleep, "flush", "event", "call", "event", "wait")]
