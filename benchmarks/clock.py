"""The GPU clock: how long a call keeps the GPU, with a cold L2, and at which SM clock.

    clock = Clock()
    replay = clock.capture(runner)        a CUDA graph of exactly the runner's launches
    seconds, mhz, late = clock.sample(replay)

What a sample puts on the stream, in order:

    sleep        0.2 ms or longer, so that the host has put everything behind it before the GPU gets there
    flush        write a buffer of twice the L2, then read another one: what the L2 holds then is clean and nobody's
    start event, the call, end event

Reading matters: lines that are only written are still to be stored, and would be, while the call runs and on its time.
`prove_cold` measures that the flush works. The time between the events of an empty graph is never subtracted.
"""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.nvml import SmClock

if TYPE_CHECKING:
    import torch

SLEEP_CYCLES = 400_000
"""The GPU waits so long before a sample, while the host puts it on the stream; longer where that takes the host longer."""
FASTEST_SM_HZ = 3e9
"""No SM clock is faster, so that many cycles are no less than a second."""
LONGER = 4
"""Times as long the GPU waits once more, where it came to a call before all of it was on the stream."""
TRIES = 3
"""After which a sample is taken as it is: the call itself waits for the GPU."""
FLUSHED_L2S = 2
ROW = 4096  # float32 values that one block sums while a buffer is read
WARM_UPS = 2
SAMPLES = 20
COLD_OVER_WARM = 1.4
"""Least slowing of a chain of reads that shows a flush to work: one that does nothing gives 1, and DRAM takes about twice as
long to answer as an L2."""


class Sample(NamedTuple):
    """One measured call."""

    seconds: float
    mhz: int | None
    """SM clock when it ended; None where the driver does not tell."""
    late: bool
    """Whether the GPU came to the call before all of it was on the stream, at every try, so that it waited on our time."""


@dataclass(frozen=True)
class _Replay:
    """A captured call. Keeps alive what the call holds, because the graph uses the memory of its tensors."""

    graph: torch.cuda.CUDAGraph
    call: Callable[[], object]

    def __call__(self) -> None:
        self.graph.replay()


class Clock:
    """Times calls on GPU 0. Everything runs on a stream of its own, and each method returns when the GPU is idle."""

    def __init__(self) -> None:
        import torch

        self.device = torch.device("cuda", 0)
        self.l2_bytes = int(torch.cuda.get_device_properties(self.device).L2_cache_size)
        self._sm_clock = SmClock()
        self._stream = torch.cuda.Stream(self.device)
        rows = -(-FLUSHED_L2S * self.l2_bytes // (4 * ROW))
        self._written = torch.zeros(rows, ROW, device=self.device)
        self._read = torch.zeros(rows, ROW, device=self.device)
        self._sums = torch.zeros(rows, device=self.device)
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self.device)

    @property
    def why_no_mhz(self) -> str | None:
        """One sentence, where samples come without an SM clock."""
        return self._sm_clock.why_not

    def run(self, call: Callable[[], object]) -> None:
        """Call once on the clock's stream. The whole GPU is waited for, before and after: other streams too."""
        import torch

        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(self._stream):
            call()
        torch.cuda.synchronize(self.device)

    def capture(self, call: Callable[[], object]) -> Callable[[], None]:
        """The replay of a CUDA graph of exactly what `call` launches, after calls that let it allocate and load.

        Raises what `call` raises, and RuntimeError where what it does cannot be captured.
        """
        import torch

        for _ in range(WARM_UPS):
            self.run(call)
        graph = torch.cuda.CUDAGraph()
        fault: Exception | None = None
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                try:
                    call()
                except Exception as error:  # ending the broken capture raises another one, which says less
                    fault = error
        except RuntimeError as error:
            fault = fault or error
        if fault is not None:
            raise fault
        return _Replay(graph, call)

    def empty_graph(self, launches: int) -> Callable[[], None]:
        """The replay of a graph of so many kernels that do nothing."""
        import torch

        def call() -> None:
            for _ in range(launches):
                torch.cuda._sleep(0)

        return self.capture(call)

    def flush(self) -> None:
        """Fill the L2 with clean lines of a buffer that nobody else reads. Allocates nothing."""
        import torch

        self._written.fill_(1.0)
        torch.sum(self._read, dim=1, out=self._sums)

    def sample(self, call: Callable[[], object], *, cold: bool = True, host_seconds: float = 0.0) -> Sample:
        """GPU time of one call, a graph's replay or a runner; where not `cold`, right behind another call of it.

        The GPU begins when the whole call is on the stream: it would wait for launches on our time. `host_seconds` is what the
        calling thread has needed for it, so that the first try succeeds.
        """
        import torch

        cycles = sleep_cycles(host_seconds)
        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(self._stream), _no_garbage_collection():
            for tries_left in reversed(range(TRIES)):
                torch.cuda._sleep(cycles)
                if cold:
                    self.flush()
                else:
                    call()
                self._start.record()
                call()
                self._end.record()
                late = self._start.query()
                torch.cuda.synchronize(self.device)
                if not late or not tries_left:
                    break
                cycles *= LONGER
        return Sample(self._start.elapsed_time(self._end) / 1e3, self._sm_clock.mhz(), late)

    def host(self, call: Callable[[], object]) -> Sample:
        """Time that the calling thread spends in one call, with nothing on the GPU before it. Has no SM clock."""
        import torch

        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(self._stream), _no_garbage_collection():
            start = time.perf_counter_ns()
            call()
            seconds = (time.perf_counter_ns() - start) / 1e9
        torch.cuda.synchronize(self.device)
        return Sample(seconds, None, late=False)

    def median(self, call: Callable[[], object], *, samples: int = SAMPLES, cold: bool = True) -> float:
        """Median seconds of several samples."""
        return statistics.median(self.sample(call, cold=cold).seconds for _ in range(samples))

    def prove_cold(self) -> float:
        """How much longer a chain of reads, over a quarter of the L2, takes after `flush` than right after itself.

        The time of an empty graph is left out of both. Raises RuntimeError, with the figures, where it is hardly longer.
        """
        from benchmarks.chase import READS, chase

        replay = self.capture(chase(self.l2_bytes // 4, self.device))
        cold, warm, empty = self.median(replay), self.median(replay, cold=False), self.median(self.empty_graph(1))
        ratio = (cold - empty) / (warm - empty)
        if ratio < COLD_OVER_WARM:
            raise RuntimeError(
                f"the L2 is not cold after the flush: {READS} reads, each waiting for the last, take {1e6 * cold:.1f} us then "
                f"and {1e6 * warm:.1f} us when they were read right before."
            )
        return ratio

    def release(self) -> None:
        """Give back the memory that nobody holds any more."""
        import torch

        gc.collect()
        torch.cuda.empty_cache()


def sleep_cycles(host_seconds: float) -> int:
    """Cycles that last at least as long, at any SM clock, and never less than `SLEEP_CYCLES`."""
    return max(SLEEP_CYCLES, math.ceil(host_seconds * FASTEST_SM_HZ))


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection between the start event and the launch would count as time of the call."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
