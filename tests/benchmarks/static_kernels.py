"""Implementations whose kernels are known to the byte, for the static report: named as path/to/static_kernels.py:Class."""

from __future__ import annotations

from pathlib import Path

from impls.arch import Arch
from impls.contract import Implementation, Plan, Problem, Scalar
from impls.cuda.compiler import compile_kernel
from impls.cuda.runner import CompiledRunner
from impls.validation import Inputs, bind_inputs

KERNEL = Path(__file__).with_name("static_kernels.cu")


class _Plan(Plan):
    def __init__(self, problem: Problem, arch: Arch, kernel: str) -> None:
        self.problem, self.arch = problem, arch
        self.kernel = compile_kernel(KERNEL, kernel, arch, {"HEAD_DIM": problem.head_dim})

    def bind(self, q, cache, *, out=None, lse=None, kv_lens=None, block_table=None):
        output = bind_inputs(self.problem, Inputs(q, cache.k4, cache.v4, kv_lens, block_table), out, lse)
        geometry = {"grid": (1, 1, 1), "block": (64, 2, 1), "shared_bytes": 2048}
        return CompiledRunner(output, [self.kernel.launch(**geometry, args=(output.out, Scalar("i32", 1)))], self.arch)


class Tidy(Implementation):
    """Declares one byte of shared memory for each of a head's dims, and keeps all else in registers."""

    name = "tidy"
    summary = "for tests"
    lists_launches = True
    kernel = "tidy"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return "wide heads are refused." if problem.head_dim > 256 else None

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return _Plan(problem, arch, self.kernel)


class Spilling(Tidy):
    """Keeps 64 floats, indexed at run time."""

    name = "spilling"
    kernel = "spilling"


class Broken(Tidy):
    """Does not compile."""

    name = "broken"
    kernel = "missing"


class Silent(Tidy):
    """Lists nothing."""

    name = "silent"
    lists_launches = False
