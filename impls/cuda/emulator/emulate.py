"""Executes launches of kernels from their PTX, checked and counted.

    report = emulate([Kernel(ptx, "scale", grid=(4, 1, 1), block=(128, 1, 1), arguments=(values, np.float32(2)))])

The arrays hold afterwards what the kernels left. Every schedule starts from the same memory and has to leave the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from impls.cuda.emulator.counting.counters import Counters
from impls.cuda.emulator.errors import BadLaunch, EmulationError
from impls.cuda.emulator.machine.execution import Executed, run
from impls.cuda.emulator.machine.memory import GlobalMemory
from impls.cuda.emulator.machine.observe import Observer
from impls.cuda.emulator.machine.program import Code, code, load
from impls.cuda.emulator.machine.schedules import SCHEDULES, Schedule, schedule
from impls.cuda.emulator.machine.state import Loaded, Shape, State, Triple
from impls.cuda.emulator.ptx.parser import parse
from impls.cuda.emulator.ptx.syntax import Module
from impls.cuda.emulator.rules import Rule

RESIDENT_WARPS = 64
"""Warps that run in step at most: more are faster, until their registers do not stay in the cache."""
LIMIT = 100_000_000
"""Warp instructions of a launch."""
SEED = 2
LARGEST_GRID: Triple = (2**31 - 1, 2**16 - 1, 2**16 - 1)
LARGEST_BLOCK: Triple = (1024, 1024, 64)
MOST_THREADS = 1024
"""Of a block: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", equal for all of them."""


@dataclass(frozen=True)
class Kernel:
    """One launch."""

    ptx: str
    entry: str
    grid: Triple
    block: Triple
    arguments: Sequence[Any]
    """In the order of the parameters: NumPy arrays and torch tensors in the CPU's memory are pointers to their first element,
    NumPy scalars are values, None is a null pointer."""
    shared_bytes: int = 0
    """Dynamic shared memory."""
    overlaps: bool = False
    """It may start before the launch before it has ended (programmatic dependent launch)."""
    names: Sequence[str] = ()
    """What sentences call the arguments; "argument 0" and so on where it is left out."""


@dataclass(frozen=True)
class Report:
    """What launches did."""

    counters: list[Counters]
    """Of each launch, in the first schedule."""
    rules: Mapping[str, Rule]
    """What the instructions that were executed rest on, and what was checked and counted of them."""
    schedules: tuple[str, ...]


class SchedulesDiffer(EmulationError):
    """The order in which warps run changes the result."""


def emulate(
    kernels: Sequence[Kernel],
    *,
    schedules: Sequence[str] = SCHEDULES,
    seed: int = SEED,
    checks: bool = True,
    shared_limit: int | None = None,
    same_bits: bool = True,
    limit: int = LIMIT,
) -> Report:
    """Execute `kernels` one after the other, under each of `schedules`.

    `shared_limit`: bytes of shared memory that a block may have. `same_bits` is False for kernels that declare that their
    result depends on the order. Raises EmulationError, in whose sentence is the PTX line, the source line where the PTX has it,
    the block, warp and lane; then the arrays are as they were. BadLaunch and Unknown among them are no faults of the kernel.
    """
    memory = GlobalMemory()
    for kernel in kernels:
        _require_possible(kernel)
    memory.reserve(
        [
            (value, name)
            for kernel in kernels
            for value, name in zip(kernel.arguments, _names(kernel), strict=True)
            if _is_pointer(value, name)
        ]
    )
    arguments = [
        [_packed(value, memory, name) for value, name in zip(kernel.arguments, _names(kernel), strict=True)]
        for kernel in kernels
    ]
    loaded = [
        load(parsed(kernel.ptx), kernel.entry, kernel.shared_bytes, given, memory, shared_limit)
        for kernel, given in zip(kernels, arguments, strict=True)
    ]
    for kernel, each in zip(kernels, loaded, strict=True):
        _require_block(kernel, each.function.required_block, each.function.largest_block)
    memory.load()
    before = memory.arena.copy()
    first: tuple[str, np.ndarray[Any, Any], Observer] | None = None
    for name in schedules:
        memory.arena[...] = before
        order = schedule(name, seed)
        observer = Observer(loaded, memory, checks=checks, counts=first is None)
        for kernel, each in zip(kernels, loaded, strict=True):
            _launch(kernel, each, memory, order, observer, limit)
        if first is None:
            first = name, memory.arena.copy(), observer
        elif same_bits:
            _compare(memory, first[0], first[1], name)
    if first is None:
        raise ValueError("no schedule was given.")
    memory.arena[...] = first[1]
    memory.store()
    return Report(first[2].counters, first[2].rules, tuple(schedules))


@lru_cache(maxsize=64)
def parsed(ptx: str) -> Module:
    """The module of a text, parsed once."""
    return parse(ptx)


def _launch(kernel: Kernel, loaded: Loaded, memory: GlobalMemory, order: Schedule, observer: Observer, limit: int) -> None:
    """All blocks of one launch, as many at a time as are resident."""
    shape = Shape(kernel.grid, kernel.block)
    observer.begin(loaded, shape, kernel.overlaps)
    warps, lanes = (np.zeros(len(loaded.function.body), np.int64) for _ in range(2))
    executed = Executed(warps, lanes, limit)
    at_a_time = max(RESIDENT_WARPS // shape.warps, 1)
    waves = [range(start, min(start + at_a_time, shape.blocks)) for start in range(0, shape.blocks, at_a_time)]
    ready: dict[int, tuple[State, Code]] = {}
    for blocks in waves if order.ascending else waves[::-1]:
        if len(blocks) not in ready:
            state = State(loaded, shape, blocks, memory, order, observer)
            ready[len(blocks)] = state, observer.counting(state, code(state))
        state, program = ready[len(blocks)]
        state.begin(blocks)
        observer.reside(blocks, state.shared.size)
        run(state, program, executed)
    observer.end(warps, lanes)


def _names(kernel: Kernel) -> Sequence[str]:
    return kernel.names or [f"argument {number}" for number in range(len(kernel.arguments))]


def _is_pointer(value: Any, name: str) -> bool:
    """Whether an argument is memory, and no value. Raises BadLaunch if it is neither."""
    if value is None or isinstance(value, np.generic):
        return False
    if not isinstance(value, np.ndarray) and getattr(getattr(value, "device", None), "type", None) != "cpu":
        raise BadLaunch(f"{name} is neither a NumPy array or scalar nor a tensor in the CPU's memory, but {value!r:.80}")
    return True


def _packed(value: Any, memory: GlobalMemory, name: str) -> bytes:
    """The bytes of an argument; arrays have an address."""
    if value is None:
        return bytes(8)
    return value.tobytes() if isinstance(value, np.generic) else memory.place(value, name).to_bytes(8, "little")


def _require_possible(kernel: Kernel) -> None:
    for called, sizes, most in (("grid", kernel.grid, LARGEST_GRID), ("block", kernel.block, LARGEST_BLOCK)):
        if len(sizes) != 3 or not all(1 <= size <= limit for size, limit in zip(sizes, most, strict=True)):
            raise BadLaunch(f"{kernel.entry} is launched with a {called} of {sizes}; each size is from 1 to those of {most}")
    if prod(kernel.block) > MOST_THREADS:
        raise BadLaunch(f"{kernel.entry} is launched with blocks of {prod(kernel.block)} threads; {MOST_THREADS} are the most")
    if kernel.shared_bytes < 0:
        raise BadLaunch(f"{kernel.entry} is launched with {kernel.shared_bytes} B of dynamic shared memory")


def _require_block(kernel: Kernel, required: Triple | None, largest: Triple | None) -> None:
    if required is not None and kernel.block != required:
        raise BadLaunch(f"{kernel.entry} wants blocks of {required} threads, and is launched with {kernel.block}")
    if largest is not None and np.prod(kernel.block) > np.prod(largest):
        raise BadLaunch(
            f"{kernel.entry} takes blocks of {np.prod(largest)} threads at most, and is launched with {kernel.block}"
        )


def _compare(memory: GlobalMemory, first: str, expected: np.ndarray[Any, Any], name: str) -> None:
    differs = np.flatnonzero(memory.arena != expected)
    if differs.size:
        where = memory.describe(int(differs[0]))
        raise SchedulesDiffer(
            f"under the schedules {first} and {name} {differs.size} bytes of global memory differ, the first at {where}"
        )
