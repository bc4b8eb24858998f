"""Compiles the kernels for any architecture Triton knows, without its GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from impls.arch import Arch
from impls.contract import Problem
from impls.triton import kernels
from impls.triton.arguments import (
    ATTEND_STRIDES,
    MERGE_STRIDES,
    Alignment,
    attend_constants,
    attend_types,
    merge_constants,
    merge_types,
    stride_names,
)
from impls.triton.planner import Schedule

ELEMENT_BYTES = {"*u8": 1, "*fp16": 2, "*bf16": 2, "*fp32": 4}
MERGE_WARPS = 4


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for one architecture."""

    ptx: str
    cubin: bytes
    entry: str
    num_warps: int
    shared_bytes: int
    parameters: Mapping[str, str]
    """{name: Triton type} in the order of the PTX entry's parameters."""
    scratch_pointers: int
    """Pointers that Triton adds after them for scratch memory. These kernels use none, so they are null."""


def compile_attend(problem: Problem, arch: Arch, schedule: Schedule, alignment: Alignment) -> Compiled:
    """`kernels.attend` for tensors that are aligned at least like `alignment`."""
    types = attend_types(problem, schedule)
    constants = attend_constants(problem, schedule, alignment)
    options = {"num_warps": schedule.num_warps, "num_stages": schedule.num_stages, "maxnreg": schedule.max_registers}
    return compile_kernel(kernels.attend, types, constants, attend_divisors(types, alignment), arch, options)


def attend_divisors(types: Mapping[str, str], alignment: Alignment) -> dict[str, int]:
    """What divides the tensors and strides of a kernel that takes those of `ATTEND_STRIDES`, by `alignment`."""
    divisors = {}
    for tensor, strides in ATTEND_STRIDES.items():
        if hasattr(alignment, tensor):
            divisors[tensor] = getattr(alignment, tensor)
            elements = max(divisors[tensor] // ELEMENT_BYTES[types[tensor]], 1)
            divisors |= dict.fromkeys(stride_names({tensor: strides}), elements)
    return divisors


def compile_merge(problem: Problem, arch: Arch, schedule: Schedule, alignment: Alignment) -> Compiled:
    """`kernels.merge` into an `out` that is aligned at least like `alignment.out`."""
    types = merge_types(schedule)
    elements = max(alignment.out // ELEMENT_BYTES[types["out"]], 1)
    divisors = {"partial_out": 16, "partial_lse": 16, "out": alignment.out}
    divisors |= dict.fromkeys(stride_names({"out": MERGE_STRIDES["out"]}), elements)
    return compile_kernel(kernels.merge, types, merge_constants(problem, schedule), divisors, arch, {"num_warps": MERGE_WARPS})


def compile_kernel(
    kernel: Any,
    types: Mapping[str, str],
    constants: Mapping[str, Any],
    divisors: Mapping[str, int],
    arch: Arch,
    options: Mapping[str, int | None],
) -> Compiled:
    """`kernel` for `arch`. Parameters of `types` are passed, those of `constants` compiled in, and the rest is None.

    `divisors` are powers of two that divide an argument (for a pointer: its address in bytes) at every call. What is the same
    in all of them, as it is for problems that differ in lengths alone, is compiled once.
    """
    return _compiled(kernel, *(tuple(each.items()) for each in (types, constants, divisors)), arch, tuple(options.items()))


@cache
def _compiled(
    kernel: Any,
    types_: tuple[tuple[str, str], ...],
    constants_: tuple[tuple[str, Any], ...],
    divisors_: tuple[tuple[str, int], ...],
    arch: Arch,
    options_: tuple[tuple[str, int | None], ...],
) -> Compiled:
    """`compile_kernel`, of what can be a key."""
    types, constants, divisors, options = dict(types_), dict(constants_), dict(divisors_), dict(options_)
    names = kernel.arg_names
    absent = {name: None for name in names if name not in types and name not in constants}
    constants = {**constants, **absent}
    source = ASTSource(
        fn=kernel,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs=constants,
        attrs={(names.index(name),): [["tt.divisibility", divisor]] for name, divisor in divisors.items()},
    )
    target = GPUTarget("cuda", arch.triton_capability, 32)
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = True  # paths of this host would make equal kernels differ
        built = triton.compile(source, target=target, options={**options, "enable_fp_fusion": True})
    metadata = built.metadata
    scratch = [name for name in ("global_scratch_size", "profile_scratch_size") if getattr(metadata, name, 0)]
    if scratch:
        raise RuntimeError(
            f"Triton wants scratch memory for {metadata.name} on {arch.name} ({scratch[0]}), which bind does not give."
        )
    ptx = built.asm["ptx"]
    parameters = {name: types[name] for name in names if name in types}
    return Compiled(
        ptx=ptx,
        cubin=built.asm["cubin"],
        entry=metadata.name,
        num_warps=metadata.num_warps,
        shared_bytes=metadata.shared,
        parameters=parameters,
        scratch_pointers=len(_entry_parameters(ptx)) - len(parameters),
    )


def _entry_parameters(ptx: str) -> list[str]:
    """The parameters of the one kernel in `ptx`."""
    entry = re.search(r"\.entry\s+\w+\s*\((.*?)\)", ptx, re.DOTALL)
    if entry is None:
        raise RuntimeError("Triton's PTX has no .entry with parameters.")
    return re.findall(r"\.param\s+[^,]+", entry[1])
