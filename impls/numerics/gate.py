"""Runs implementations on cases in worker processes and judges each against its bound and baseline."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from impls.numerics.baselines import Baselines, largest_ratio, worse_than
from impls.numerics.cases import CASES
from impls.worker import Reply, Worker

JOBS = 2
"""Workers at a time on a CPU. A GPU has one: two would share its memory, and a fault of one could take the other."""
MAX_TIMEOUTS = 2
"""Cases of one implementation that may hang before the rest is given up."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Status = Literal["pass", "fail", "unsupported", "oom", "timeout", "failed", "crashed", "skipped"]
"""fail: it ran, and a bound, a baseline or the contract does not hold. What follows `unsupported` did not come to an answer."""


@dataclass(frozen=True)
class Chosen:
    """An implementation to run."""

    name: str
    source: str
    """What the registry finds it by: its name, or path/to/file.py:Class."""


@dataclass(frozen=True)
class Verdict:
    """What came of one implementation on one case."""

    implementation: str
    case: str
    status: Status
    seconds: float
    sentence: str | None = None
    """Why it is not pass."""
    measured: Mapping[str, Any] | None = None
    """As `impls.numerics.measure.examine` returns it; None unless it ran."""
    baseline: Mapping[str, float] | None = None

    @property
    def holds(self) -> bool:
        return self.status in ("pass", "unsupported")

    @property
    def breaks_bound(self) -> bool:
        """It fails whatever the baseline is."""
        return not self.holds and (self.measured is None or self.measured["numerics"]["verdict"] != "pass")

    @property
    def baseline_ratio(self) -> float | None:
        """Largest error over its baseline; None without either."""
        if self.measured is None or self.baseline is None:
            return None
        return largest_ratio(self.baseline, self.measured["numerics"])


def run(
    chosen: Sequence[Chosen],
    cases: Sequence[str],
    *,
    on: str,
    baselines: Baselines,
    timeout: float,
    report: Callable[[Verdict, int, int], None],
) -> list[Verdict]:
    """All implementations on all cases, in that order. `report` is told each verdict, its number, and of how many.

    `on` is "cpu", "gpu" or "emulated:ARCH".

    Nothing an implementation does reaches the caller: a crash, a hang or an exception is a verdict.
    """
    work: queue.SimpleQueue[tuple[int, Chosen, str]] = queue.SimpleQueue()
    order = [(one, case) for one in chosen for case in sorted(cases, key=_work, reverse=True)]
    for number, (one, case) in enumerate(order):
        work.put((number, one, case))
    done: queue.SimpleQueue[Verdict | BaseException] = queue.SimpleQueue()
    timeouts = dict.fromkeys((one.name for one in chosen), 0)

    def serve() -> None:
        # The thread keeps its workers: they end when the thread that started them does.
        worker, served, ran = None, None, False
        try:
            while True:
                try:
                    _, one, case = work.get_nowait()
                except queue.Empty:
                    return
                if worker is None or (served != one.name and ran):  # one that refused all it was asked has left nothing behind
                    if worker is not None:
                        worker.close()
                    worker, ran = Worker("impls.numerics.measure:examine", env=_environment(on)), False
                served = one.name
                if timeouts[one.name] >= MAX_TIMEOUTS:
                    done.put(_given_up(one, case))
                    continue
                begun = time.monotonic()
                reply = worker.call({"impl": one.source, "case": case, "on": on}, timeout=timeout)
                timeouts[one.name] += reply.status == "timeout"
                ran = ran or reply.status != "unsupported"
                done.put(judge(one.name, case, reply, time.monotonic() - begun, baselines))
        except BaseException as error:  # handed to the caller, who would wait for ever otherwise
            done.put(error)
        finally:
            if worker is not None:
                worker.close()

    for _ in range(1 if on == "gpu" else JOBS):
        threading.Thread(target=serve, daemon=True).start()  # daemon: Ctrl-C ends the command, and with it the workers
    verdicts: dict[tuple[str, str], Verdict] = {}
    for number in range(1, len(order) + 1):
        verdict = done.get()
        if isinstance(verdict, BaseException):
            raise verdict
        verdicts[verdict.implementation, verdict.case] = verdict
        report(verdict, number, len(order))
    return newly_refused([verdicts[one.name, case] for one in chosen for case in cases], baselines)


def judge(name: str, case: str, reply: Reply, seconds: float, baselines: Baselines) -> Verdict:
    """The verdict on a worker's reply about the implementation called `name`."""
    if reply.status != "ok":
        return Verdict(name, case, reply.status, seconds, reply.sentence)
    measured = reply.value
    entry = baselines.entry(name, case)
    wrong = None if measured["numerics"]["verdict"] == "pass" else measured["numerics"]["verdict"]
    if wrong is None and entry is not None:
        wrong = worse_than(entry, measured["numerics"], measured["bounds"])
    return Verdict(name, case, "fail" if wrong else "pass", seconds, wrong, measured, entry)


def refused_as_a_whole(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """{implementation: its sentence} of those that are unsupported in every case."""
    by_name: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_name.setdefault(verdict.implementation, []).append(verdict)
    return {
        name: str(mine[0].sentence)
        for name, mine in by_name.items()
        if all(verdict.status == "unsupported" for verdict in mine)
    }


def newly_refused(verdicts: Sequence[Verdict], baselines: Baselines) -> list[Verdict]:
    """The verdicts, where a case that has a baseline and is refused now fails: it ran when the baseline was made.

    An implementation that is refused as a whole is one that this machine lacks something for, and is left as it is.
    """
    absent = refused_as_a_whole(verdicts)

    def seen(verdict: Verdict) -> Verdict:
        known = baselines.entry(verdict.implementation, verdict.case) is not None
        if verdict.status != "unsupported" or not known or verdict.implementation in absent:
            return verdict
        return replace(verdict, status="fail", sentence=f"it refuses a case it has a baseline for: {verdict.sentence}")

    return [seen(verdict) for verdict in verdicts]


def _given_up(one: Chosen, case: str) -> Verdict:
    sentence = f"not run, because {MAX_TIMEOUTS} other cases of {one.name} gave no answer in time."
    return Verdict(one.name, case, "skipped", 0.0, sentence)


def _environment(on: str) -> dict[str, str]:
    """A worker interprets Triton where it runs on the CPU itself, and compiles it for a GPU, be it emulated. Without a GPU it
    computes on one core of its own, unless the caller says otherwise."""
    interpret = {"TRITON_INTERPRET": str(int(on == "cpu"))}
    return interpret if on == "gpu" else interpret | {name: os.environ.get(name, "1") for name in THREADS}


def _work(case: str) -> int:
    """Query-key pairs: the longest cases begin first, so that none is left for the end."""
    p = CASES[case].problem
    return p.batch * p.q_heads * p.q_len * p.kv_len
