"""All candidates of one shape, timed in turns in one process, so that none has a clock or a temperature of its own.

A candidate that crashes the process, hangs, or breaks its CUDA context is lost. The others are then added to a new process
and sampled from the beginning: samples from before and after would not have been taken beside each other. One that finds no
memory beside the others gets another turn without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cells import CellSpec
from benchmarks.measure_host import sample_count
from benchmarks.outcome import cell_of, failure_of
from benchmarks.records import Cell
from benchmarks.work import predicted_call, predicted_pack
from impls.worker import Reply, Worker

PROGRESS_SECONDS = 30.0
"""Longest time that one sample may take, unless `SLOW` gives it more."""
LONG = 0.1
"""A call of more seconds than this has one sample of every series but `latency`, others `FEW`."""
FEW = 5
ADD_CALLS = 8
"""Calls, replays included, that adding a candidate makes: see `benchmarks.candidate`."""
SLOW = 8
"""Candidates may need this many times the predicted time for their calls, however long that is."""


@dataclass(frozen=True)
class _Added:
    """A candidate in the process, and what was sampled of it."""

    spec: CellSpec
    facts: dict[str, Any]
    wanted: dict[str, int]
    """{series: how many samples}"""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    clocks: dict[str, list[int]] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)

    def keep(self, series: str, sample: dict[str, Any]) -> None:
        self.seconds.setdefault(series, []).append(sample["seconds"])
        if sample["mhz"] is not None:
            self.clocks.setdefault(series, []).append(sample["mhz"])
        if sample["late"]:
            self.late[series] = self.late.get(series, 0) + 1

    def cell(self) -> Cell:
        whole = {name: mhz for name, mhz in self.clocks.items() if len(mhz) == len(self.seconds[name])}  # the driver may stop
        return cell_of(self.spec, "gpu", {**self.facts, "series": self.seconds, "clocks": whole, "late": self.late})


class Together:
    """Measures shape after shape in one worker of `benchmarks.latency`."""

    def __init__(self, worker: Worker, timeout: float, report: Callable[[str], None]) -> None:
        """`timeout` is for making the data and for adding one candidate, which gets more where its calls take long."""
        self._worker = worker
        self._timeout = timeout
        self._report = report
        self._told: str | None = None

    def measure(self, specs: Sequence[CellSpec]) -> Iterator[Cell]:
        """The cells of `specs`, which differ in their implementation only, as they end."""
        waiting, apart = list(specs), False
        while waiting:
            crowded_out: list[CellSpec] = []
            yield from self._measure(waiting, crowded_out, apart=apart)
            waiting, apart = crowded_out, True

    def _measure(self, specs: Sequence[CellSpec], crowded_out: list[CellSpec], *, apart: bool) -> Iterator[Cell]:
        """As `measure`, but those that found no memory beside others are not judged, and appended to `crowded_out`."""
        left = list(specs)
        while left:
            opened = self._open(left[0])
            if opened.status != "ok":
                self._worker.close()
                yield from (failure_of(spec, "gpu", opened) for spec in left)
                return
            self._tell(opened.value["no_clock"])
            added: list[_Added] = []
            for spec in tuple(left):
                reply = self._add(spec)
                if reply.status == "ok":
                    added.append(_added(spec, reply.value, apart=apart))
                    continue
                left.remove(spec)
                if reply.status == "oom" and added:
                    crowded_out.append(spec)
                else:
                    yield failure_of(spec, "gpu", reply)
                if not self._worker.running:
                    break
            else:
                lost = self._sample(added)
                if lost is None:
                    yield from (candidate.cell() for candidate in added)
                    return
                spec, reply = lost
                left.remove(spec)
                if reply.status == "oom" and len(added) > 1:
                    crowded_out.append(spec)
                else:
                    yield failure_of(spec, "gpu", reply)
                self._worker.close()  # also where it goes on: nobody knows what an error in a timed call has left

    def _tell(self, no_clock: str | None) -> None:
        """Once, that samples have no clock."""
        if no_clock and no_clock != self._told:
            self._report(no_clock)
        self._told = no_clock

    def _open(self, spec: CellSpec) -> Reply:
        request = {"do": "open", "workload": spec.workload.name, "values": spec.values}
        return self._worker.call(request, timeout=self._timeout)

    def _add(self, spec: CellSpec) -> Reply:
        return self._worker.call({"do": "add", "impl": spec.source}, timeout=max(self._timeout, _patience(spec, ADD_CALLS)))

    def _sample(self, added: Sequence[_Added]) -> tuple[CellSpec, Reply] | None:
        """Take all samples, at most one of each series and candidate a round. Whose sample failed, if one did, and how.

        Those of a series with few are spread over all rounds: clocks and temperatures drift from the first to the last.
        """
        rounds = max((count for candidate in added for count in candidate.wanted.values()), default=0)
        for number in range(rounds):
            for candidate in added:
                for series in (series for series, count in candidate.wanted.items() if _has_turn(number, count, rounds)):
                    request = {"do": "sample", "impl": candidate.spec.source, "series": series}
                    # the first sample of a series is its second call
                    limit = max(min(PROGRESS_SECONDS, self._timeout), _patience(candidate.spec, 2))
                    reply = self._worker.call(request, timeout=limit)
                    if reply.status != "ok":
                        return candidate.spec, reply
                    candidate.keep(series, reply.value)
        return None


def _has_turn(number: int, count: int, rounds: int) -> bool:
    """Whether a series with `count` samples takes one in this round, the first of which is number 0."""
    return (number + 1) * count // rounds > number * count // rounds


def samples_of(series: str, seconds: float) -> int:
    """How many samples a series has of a candidate whose call takes so many seconds."""
    if series == "latency":
        return sample_count(seconds)
    return FEW if seconds < LONG else 1


def _patience(spec: CellSpec, calls: int) -> float:
    """Seconds that so many calls may take, and as many conversions."""
    problem = spec.workload.problem(*spec.values)
    return SLOW * calls * (predicted_call(problem) + predicted_pack(problem))


def _added(spec: CellSpec, value: dict[str, Any], *, apart: bool) -> _Added:
    wanted = {series: samples_of(series, value["estimate"]) for series in value["series"]}
    return _Added(spec, {**value["facts"], "apart": apart}, wanted)
