"""One implementation, ready to be timed on one shape, and checked to do what its time is reported for.

A call that is fast because it does not happen is caught here: outputs are poisoned before the graph is replayed, so work
that was not captured, because it went to another stream, shows; and queries change between replays, so a kept output shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from benchmarks.clock import Clock, Sample
from benchmarks.measure_host import timed
from benchmarks.shape import Shape
from benchmarks.work import attended_bytes, flops
from impls.contract import Implementation, Launch, Output, Scalar, Unsupported

SHARED_ERRORS = ("relative_l2", "largest_row_error", "magnitude_ratio", "lse_error", "cosine", "nan_count", "inf_count")
"""Fields that `impls.numerics.metrics.Errors` and `benchmarks.records.Numerics` both have."""


class Candidate:
    """Planned, packed, bound, compared with the reference, captured and checked."""

    def __init__(self, chosen: Implementation, shape: Shape, clock: Clock) -> None:
        """Raises Unsupported, RuntimeError where a check fails, and whatever the implementation raises."""
        from impls.host import arch_of

        problem, arch = shape.problem, arch_of(shape.device)
        reason = chosen.why_not(problem, arch)
        if reason:
            raise Unsupported(reason)
        self.name = chosen.name
        self._warm = {"latency"}  # replays allocate nothing
        self._chosen, self._shape, self._clock = chosen, shape, clock
        self._plan, self._compile_seconds = timed(lambda: chosen.plan(problem, arch))
        _, self._prepare_seconds = timed(lambda: clock.run(self._pack_and_bind))
        clock.run(self._runner)  # torch's operators have an output only then, and a new one at every call
        direct = self._by_call()
        self._comparison = shape.compare(chosen, direct)
        self._replay = clock.capture(self._runner)
        self._captured = self._runner.output  # what replays write, also after other calls
        self._check_replay(direct)

    @property
    def series(self) -> tuple[str, ...]:
        """What `sample` takes."""
        k4, v4 = self._shape.inputs.k4, self._shape.inputs.v4
        converts = self._cache.k4 is not k4 or self._cache.v4 is not v4 or bool(self._cache.extra)
        return ("latency", "eager", "host", "pack", "total") if converts else ("latency", "eager", "host")

    def sample(self, series: str) -> Sample:
        """One sample.

        latency     the call, replayed as a CUDA graph
        eager       the call as it is, its launches put on the stream one by one
        host        what the calling thread spends in it
        pack        the conversion of the cache, where there is one
        total       the conversion, then the call

        Before its first sample a series is called once: what other candidates left was given back to the driver, and asking
        for memory again is not to be timed.
        """
        if series not in self.series:
            raise ValueError(f"{self.name} has no series {series!r} here; it has {', '.join(self.series)}.")
        calls: dict[str, Callable[[], object]] = {
            "latency": self._replay,
            "eager": self._runner,
            "host": self._runner,
            "pack": self._pack,
            "total": lambda: (self._pack(), self._runner()),
        }
        call = calls[series]
        if series not in self._warm:
            self._clock.run(call)
            self._warm.add(series)
        return self._clock.host(call) if series == "host" else self._clock.sample(call)

    def facts(self) -> dict[str, Any]:
        """The fields of `benchmarks.records.Cell` that are known before anything is timed, as JSON data."""
        problem, found = self._shape.problem, self._comparison.errors
        return {
            "numerics": {
                **{name: getattr(found, name) for name in SHARED_ERRORS},
                "error_over_bound": max(found.out_over_bound, found.lse_over_bound),
                "exact_relative_l2": self._comparison.exact_relative_l2,
                "verdict": self._comparison.why_wrong or "pass",
            },
            "plan": dict(self._plan.describe()),
            "launches": [_launch_record(launch) for launch in self._runner.launches],
            "cache_layout": self._cache.layout,
            "work": {
                "flops": flops(problem),
                "nvfp4_bytes": attended_bytes(problem),
                "cache_bytes": self._cache.nbytes,
                "workspace_bytes": self._plan.workspace_bytes,
            },
            "compile_seconds": self._compile_seconds,
            "prepare_seconds": self._prepare_seconds,
        }

    def _pack(self) -> object:
        return self._plan.pack(self._shape.inputs.k4, self._shape.inputs.v4)

    def _pack_and_bind(self) -> None:
        self._cache = self._plan.pack(self._shape.inputs.k4, self._shape.inputs.v4)
        # no outputs are given: torch's operators make their own, and would have to copy them
        self._runner = self._plan.bind(self._shape.inputs.q, self._cache)

    def _check_replay(self, direct: Output) -> None:
        """Raises RuntimeError where the graph's replays do not do what calls do."""
        replayed = self._by_replay()
        if not self._agree(replayed, direct):
            raise RuntimeError("its graph replay does not give what a direct call gives.")
        self._clock.run(self._shape.negate_queries)
        try:
            replayed_anew, direct_anew = self._by_replay(), self._by_call()
            if _same(replayed_anew, replayed) or _same(direct_anew, replayed):
                raise RuntimeError("it gives the old output for new queries: it caches what it should compute.")
            if not self._agree(replayed_anew, direct_anew):
                raise RuntimeError("its graph replay does not give what a direct call gives once the queries have changed.")
        finally:
            self._clock.run(self._shape.negate_queries)

    def _by_call(self) -> Output:
        """A copy of what a call leaves in the outputs, which are poisoned before it."""
        self._clock.run(lambda: _poison(self._runner.output))
        self._clock.run(self._runner)
        unwritten = _poisoned(self._runner.output)
        if unwritten:
            raise RuntimeError(f"a call leaves {unwritten} elements of out and lse unwritten.")
        return _copy(self._runner.output)

    def _by_replay(self) -> Output:
        """A copy of what a replay leaves in the outputs, which are poisoned before it."""
        self._clock.run(lambda: _poison(self._captured))
        self._clock.run(self._replay)
        if _poisoned(self._captured):
            raise RuntimeError("its graph replay leaves the output unwritten: a call launches on another stream than torch's.")
        return _copy(self._captured)

    def _agree(self, output: Output, other: Output) -> bool:
        """Bit by bit; sums by atomics come in any order, so `output` may also be another one that is right."""
        return _same(output, other) or self._shape.compare(self._chosen, output).why_wrong is None


def _poison(output: Output) -> None:
    import torch

    from impls.numerics.measure import POISON

    for tensor in (output.out, output.lse):
        tensor.view(torch.int16).fill_(POISON)


def _poisoned(output: Output) -> int:
    """Elements that are still poison, in all their halves."""
    import torch

    from impls.numerics.measure import POISON

    tensors = (output.out, output.lse)
    return sum(int((t.view(torch.int16).view(*t.shape, -1) == POISON).all(-1).sum()) for t in tensors)


def _copy(output: Output) -> Output:
    return Output(output.out.clone(), output.lse.clone())


def _same(a: Output, b: Output) -> bool:
    """Bit by bit, NaN included."""
    import torch

    return all(torch.equal(x.view(torch.int16), y.view(torch.int16)) for x, y in ((a.out, b.out), (a.lse, b.lse)))


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
