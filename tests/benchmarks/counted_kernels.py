"""Implementations whose kernels are counted by hand, for the emulated suite: path/to/counted_kernels.py:Class."""

from __future__ import annotations

from pathlib import Path

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem
from impls.cuda.compiler import compile_kernel
from impls.cuda.runner import CompiledRunner
from impls.validation import Inputs, bind_inputs

KERNEL = Path(__file__).with_name("counted_kernels.cu")
BLOCKS = 3


class _Plan(Plan):
    def __init__(self, problem: Problem, arch: Arch, entries: tuple[str, ...]) -> None:
        self.problem, self.arch = problem, arch
        self.kernels = [compile_kernel(KERNEL, entry, arch) for entry in entries]

    def bind(self, q, cache, *, out=None, lse=None, kv_lens=None, block_table=None):
        output = bind_inputs(self.problem, Inputs(q, cache.k4, cache.v4, kv_lens, block_table), out, lse)
        geometry = {"grid": (BLOCKS, 1, 1), "block": (32, 1, 1), "shared_bytes": 0}
        chain = [(output.out, q), (q, output.out)]  # the second launch reads what the first wrote
        launches = [kernel.launch(**geometry, args=args) for kernel, args in zip(self.kernels, chain, strict=False)]
        return CompiledRunner(output, launches, self.arch)


class Twice(Implementation):
    """Launches the same kernel on q, and then on its own output."""

    name = "twice"
    summary = "for tests"
    lists_launches = True
    entries: tuple[str, ...] = ("counted", "counted")

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return "wide heads are refused." if problem.head_dim > 64 else None

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return _Plan(problem, arch, self.entries)


class Outside(Twice):
    """Reads shared memory that it does not have."""

    name = "outside"
    entries = ("outside",)
