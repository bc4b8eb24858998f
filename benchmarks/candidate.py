"""One implementation, ready to be timed on one subject, and checked to do what its time is reported for.

A call that is fast because it does not happen is caught here: outputs are poisoned before the graph is replayed, so work
that was not captured, because it went to another stream, shows; and queries change between replays, so a kept output shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.clock import Clock, Sample
from benchmarks.measure_host import timed
from benchmarks.subject import Subject
from impls.contract import Launch, Scalar, Unsupported

if TYPE_CHECKING:
    import torch

    Written = tuple[torch.Tensor, ...]


class Candidate:
    """Planned, packed, bound, compared with the reference, captured and checked."""

    def __init__(self, chosen: Any, subject: Subject, clock: Clock) -> None:
        """Raises Unsupported, RuntimeError where a check fails, and whatever the implementation raises."""
        from impls.host import arch_of

        problem, arch = subject.problem, arch_of(subject.device)
        self._arch = arch
        reason = chosen.why_not(problem, arch)
        if reason is not None:
            raise Unsupported(reason)
        self.name = chosen.name
        self._host_seconds = {"latency": 0.0}  # replays allocate nothing, and are put on the stream at once
        self._chosen, self._subject, self._clock = chosen, subject, clock
        self._plan, self._compile_seconds = timed(lambda: chosen.plan(problem, arch))
        _, self._prepare_seconds = timed(lambda: clock.run(self._pack_and_bind))
        clock.run(self._runner)  # torch's operators have an output only then, and a new one at every call
        direct = self._by_call()
        self._checked = subject.check(chosen, direct)
        self._replay = clock.capture(self._runner)
        self._captured = subject.written(self._runner)  # what replays write, also after other calls
        self._check_replay(direct)
        self._calls = self._timed_calls()

    @property
    def series(self) -> tuple[str, ...]:
        """What `sample` takes."""
        return tuple(self._calls)

    def sample(self, series: str) -> Sample:
        """One sample.

        latency     the call, replayed as a CUDA graph
        eager       the call as it is, its launches put on the stream one by one
        host        what the calling thread spends in it
        attend      the call without its last launch, which joins what the others left, replayed; where it has several of ours
        pack        the conversion of the cache, where there is one
        total       the conversion, then the call, which reads the cache that was converted when it was bound: the same bytes,
                    but at another place, so that nothing of them is found in the L2

        Before its first sample a series is called once: what other candidates left was given back to the driver, and asking
        for memory again is not to be timed. It tells, too, about how long the host needs, which only `host` is to show.
        """
        if series not in self.series:
            raise ValueError(f"{self.name} has no series {series!r} here; it has {', '.join(self.series)}.")
        call = self._calls[series]
        if series not in self._host_seconds:  # also of `host`, which needs the first call but not the time
            self._host_seconds[series] = self._clock.host(call).seconds
        return self._clock.host(call) if series == "host" else self._clock.sample(call, host_seconds=self._host_seconds[series])

    def facts(self) -> dict[str, Any]:
        """The fields of `benchmarks.records.Cell` that are known before anything is timed, as JSON data."""
        return {
            "numerics": {**self._checked.numerics, "verdict": self._checked.why_wrong or "pass"},
            "plan": dict(self._plan.describe()),
            "launches": [_launch_record(launch) for launch in self._runner.launches],
            **self._subject.facts(self._plan, self._packed),
            "compile_seconds": self._compile_seconds,
            "prepare_seconds": self._prepare_seconds,
        }

    def _timed_calls(self) -> dict[str, Callable[[], object]]:
        """{series: what a sample of it calls}"""
        from impls.cuda.runner import CompiledRunner

        runner = self._runner
        calls: dict[str, Callable[[], object]] = {"latency": self._replay, "eager": runner, "host": runner}
        if isinstance(runner, CompiledRunner) and len(runner.launches) > 1:
            calls["attend"] = self._clock.capture(CompiledRunner(runner.output, runner.launches[:-1], self._arch))
        convert = self._subject.conversion(self._plan, self._packed)
        if convert is not None:
            calls |= {"pack": convert, "total": lambda: (convert(), runner())}
        return calls

    def _pack_and_bind(self) -> None:
        self._packed = self._subject.pack(self._plan)
        self._runner = self._subject.bind(self._plan, self._packed)

    def _check_replay(self, direct: Written) -> None:
        """Raises RuntimeError where the graph's replays do not do what calls do."""
        replayed = self._by_replay()
        if not self._agree(replayed, direct):
            raise RuntimeError("its graph replay does not give what a direct call gives.")
        self._clock.run(self._subject.negate_queries)
        try:
            replayed_anew, direct_anew = self._by_replay(), self._by_call()
            if _same(replayed_anew, replayed) or _same(direct_anew, replayed):
                raise RuntimeError("it gives the old output for new queries: it caches what it should compute.")
            if not self._agree(replayed_anew, direct_anew):
                raise RuntimeError("its graph replay does not give what a direct call gives once the queries have changed.")
        finally:
            self._clock.run(self._subject.negate_queries)

    def _by_call(self) -> Written:
        """A copy of what a call leaves in the outputs, which are poisoned before it."""
        self._clock.run(lambda: _poison(self._subject.written(self._runner)))
        self._clock.run(self._runner)
        unwritten = _poisoned(self._subject.written(self._runner))
        if unwritten:
            raise RuntimeError(f"a call leaves {unwritten} elements of {self._subject.outputs} unwritten.")
        return _copy(self._subject.written(self._runner))

    def _by_replay(self) -> Written:
        """A copy of what a replay leaves in the outputs, which are poisoned before it."""
        self._clock.run(lambda: _poison(self._captured))
        self._clock.run(self._replay)
        if _poisoned(self._captured):
            raise RuntimeError("its graph replay leaves the output unwritten: a call launches on another stream than torch's.")
        return _copy(self._captured)

    def _agree(self, output: Written, other: Written) -> bool:
        """Bit by bit; sums by atomics come in any order, so `output` may also be another one that is right."""
        return _same(output, other) or self._subject.check(self._chosen, output).why_wrong is None


def _poison(output: Written) -> None:
    import torch

    from impls.numerics.measure import POISON

    for tensor in output:
        tensor.view(torch.int16).fill_(POISON)


def _poisoned(output: Written) -> int:
    """Elements that are still poison, in all their halves."""
    import torch

    from impls.numerics.measure import POISON

    return sum(int((t.view(torch.int16).view(*t.shape, -1) == POISON).all(-1).sum()) for t in output)


def _copy(output: Written) -> Written:
    return tuple(tensor.clone() for tensor in output)


def _same(a: Written, b: Written) -> bool:
    """Bit by bit, NaN included."""
    import torch

    return all(torch.equal(x.view(torch.int16), y.view(torch.int16)) for x, y in zip(a, b, strict=True))


def _launch_record(launch: Launch) -> dict[str, Any]:
    """The fields of `benchmarks.records.LaunchRecord`."""
    return {
        "entry": launch.entry,
        "cubin": hashlib.sha256(launch.cubin).hexdigest(),
        "grid": launch.grid,
        "block": launch.block,
        "cluster": launch.cluster,
        "shared_bytes": launch.shared_bytes,
        "overlaps": launch.overlaps,
        "scalars": [argument.value for argument in launch.args if isinstance(argument, Scalar)],
    }
