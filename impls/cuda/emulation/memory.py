"""How much of this machine's memory an emulation takes, and how much there is."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from impls.cuda.emulator.checks.grid_reads import LARGEST, LINE
from impls.cuda.emulator.emulate import RESIDENT_WARPS, Kernel, parsed
from impls.cuda.emulator.machine.memory import GlobalMemory
from impls.cuda.emulator.machine.observe import grain_of
from impls.cuda.emulator.machine.program import load
from impls.cuda.emulator.machine.state import Loaded, Shape

COPIES = 5
"""Of each buffer: the caller's, the one that kernels see, the one before, the first schedule's, one to compare."""
STAMP = 8
"""Bytes of what the checks remember of a read or a write of one grain."""
BLOCK = 200
"""Bytes of Python objects for a block of the grid, at most."""


def available() -> int | None:
    """Bytes that this process can still have; None where the system does not say."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
        group = Path("/sys/fs/cgroup")
        most, used = (int((group / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        found.append(max(most - used, 0))
    return min(found, default=None)


def needed(kernels: Sequence[Kernel], buffer_bytes: int, *, checks: bool, shared_limit: int | None) -> int:
    """Bytes that emulating `kernels` takes at most, by and large. Raises BadLaunch if one of them does not fit its kernel."""
    loaded = [
        load(
            parsed(kernel.ptx),
            kernel.entry,
            kernel.shared_bytes,
            [each.tobytes() if isinstance(each, np.generic) else bytes(8) for each in kernel.arguments],
            GlobalMemory(),
            shared_limit,
        )
        for kernel in kernels
    ]
    total = COPIES * buffer_bytes
    if checks:
        total += 2 * STAMP * buffer_bytes // grain_of(loaded, "global")
    grain = grain_of(loaded, "shared")
    launches = []
    for kernel, each in zip(kernels, loaded, strict=True):
        shape = Shape(kernel.grid, kernel.block)
        taken = BLOCK * shape.blocks
        if checks:
            resident = min(shape.blocks, max(RESIDENT_WARPS // shape.warps, 1))
            taken += resident * each.shared_bytes // grain * (2 * STAMP + 4 * shape.warps)
            taken += shape.blocks * shape.warps * STAMP * 2 * (shape.warps + 2)
            taken += min(shape.blocks * shape.warps * LINE * _global_reads(each), LARGEST)
        launches.append(taken)
    return total + max(launches)


def _global_reads(loaded: Loaded) -> int:
    """Instructions that read global memory, each of which a warp remembers: once, as in a loop that reads one place."""
    return sum(each.opcode in ("ld", "ldu", "cp") and "global" in each.modifiers for each in loaded.function.body)
