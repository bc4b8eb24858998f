"""Implementations for the GPU whose time is known, or who do what must not be timed. Torch only."""

from __future__ import annotations

import time

import torch

from impls.arch import Arch
from impls.contract import Cache, Inputs, Output, Plan, Problem, Runner
from impls.nvfp4 import NVFP4Tensor
from impls.torch_reference import TorchReference
from impls.validation import bind_inputs

SLEEP_CYCLES = 2_000_000
THINKING_SECONDS = 3e-3
READ_BYTES = 16 << 20
CALLS_BEFORE_SAMPLES = 6
"""A first call, two that are compared, two warm-ups and the captured one: those of `benchmarks.candidate` when one is added."""


class LightRunner(Runner):
    """Two small kernels that read the queries and write the outputs: no attention, but done anew at each call."""

    def __init__(self, inputs: Inputs, output: Output) -> None:
        self.inputs = inputs
        self.output = output
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        torch.mul(self.inputs.q, 1, out=self.output.out)
        torch.sum(self.inputs.q, dim=-1, dtype=torch.float32, out=self.output.lse)
        self.more()

    def more(self) -> None:
        """What a call does besides."""


class LightPlan(Plan):
    def __init__(self, problem: Problem, arch: Arch, runner: type[LightRunner]) -> None:
        self.problem = problem
        self.arch = arch
        self.runner = runner

    def bind(self, q, cache, *, out=None, lse=None, kv_lens=None, block_table=None):  # type: ignore[no-untyped-def]
        inputs = Inputs(q, cache.k4, cache.v4, kv_lens, block_table)
        return self.runner(inputs, bind_inputs(self.problem, inputs, out, lse))


class Light(TorchReference):
    name = "light"
    runner: type[LightRunner] = LightRunner

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return LightPlan(problem, arch, self.runner)


class _Sleeps(LightRunner):
    def more(self) -> None:
        torch.cuda._sleep(SLEEP_CYCLES)


class Sleeps(Light):
    """Takes `SLEEP_CYCLES` cycles of the SM clock longer than `Light`."""

    name = "sleeps"
    runner = _Sleeps


class _Thinks(LightRunner):
    def more(self) -> None:
        end = time.perf_counter() + THINKING_SECONDS
        while time.perf_counter() < end:
            pass


class Thinks(Light):
    """Has the GPU wait for the host in the middle of a call, unless it was given enough to do before."""

    name = "thinks"
    runner = _Thinks


class _Reads(LightRunner):
    times = 1

    def __init__(self, inputs: Inputs, output: Output) -> None:
        super().__init__(inputs, output)
        self.buffer = torch.zeros(READ_BYTES // 4 // 4096, 4096, device=inputs.q.device)
        self.sums = torch.zeros(len(self.buffer), device=inputs.q.device)

    def more(self) -> None:
        for _ in range(self.times):
            torch.sum(self.buffer, dim=1, out=self.sums)


class Reads(Light):
    """Reads 16 MiB, which each call leaves in the L2 for the next one."""

    name = "reads"
    runner = _Reads


class _ReadsTwice(_Reads):
    times = 2


class ReadsTwice(Light):
    """Reads them again, which the L2 may then serve."""

    name = "reads-twice"
    runner = _ReadsTwice


class _OnAnotherStream(LightRunner):
    def __init__(self, inputs: Inputs, output: Output) -> None:
        super().__init__(inputs, output)
        self.stream = torch.cuda.Stream(inputs.q.device)

    def __call__(self) -> None:
        with torch.cuda.stream(self.stream):
            super().__call__()


class OnAnotherStream(Light):
    """Launches on a stream of its own, and nobody waits for it."""

    name = "on-another-stream"
    runner = _OnAnotherStream


class _Caches(LightRunner):
    def __init__(self, inputs: Inputs, output: Output) -> None:
        super().__init__(inputs, output)
        self.kept = Output(inputs.q.clone(), inputs.q.sum(-1, dtype=torch.float32))

    def __call__(self) -> None:
        self.output.out.copy_(self.kept.out)
        self.output.lse.copy_(self.kept.lse)


class Caches(Light):
    """Copies what it has once computed."""

    name = "caches"
    runner = _Caches


class _Waits(LightRunner):
    def more(self) -> None:
        torch.cuda.synchronize()


class Waits(Light):
    """Waits for the GPU, which no graph can hold."""

    name = "waits-for-the-gpu"
    runner = _Waits


class _Hangs(LightRunner):
    def more(self) -> None:
        while self.calls > CALLS_BEFORE_SAMPLES:
            time.sleep(1)


class Hangs(Light):
    """Never returns once its calls are timed."""

    name = "hangs"
    runner = _Hangs


class _EndsLate(LightRunner):
    def more(self) -> None:
        if self.calls > CALLS_BEFORE_SAMPLES:
            torch.cuda._sleep(2**37)


class EndsLate(Light):
    """Its kernel takes a minute once its calls are timed."""

    name = "ends-late"
    runner = _EndsLate


class _Faults(LightRunner):
    def __init__(self, inputs: Inputs, output: Output) -> None:
        super().__init__(inputs, output)
        self.untrue = torch.zeros((), dtype=torch.bool, device=inputs.q.device)

    def more(self) -> None:
        torch._assert_async(self.untrue)


class Faults(Light):
    """Fails an assertion in a kernel, which ends the CUDA context."""

    name = "faults"
    runner = _Faults


class _FillsPlan(LightPlan):
    def pack(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
        return Cache(k4, v4, {"k": torch.empty(1 << 44, device=k4.device)}, "larger than any memory")


class Fills(Light):
    """Takes more memory than there is."""

    name = "fills"

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return _FillsPlan(problem, arch, LightRunner)
