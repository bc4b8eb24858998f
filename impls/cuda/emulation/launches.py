"""Runs the launches of a runner in the emulator: PTX of the compilation that gave the cubin, with the same arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from impls.arch import Arch, find
from impls.contract import Launch, Scalar
from impls.cuda.emulator.emulate import Kernel, Report, emulate
from impls.cuda.emulator.errors import Unknown

WORDS = {"i32": np.int32, "i64": np.int64, "f32": np.float32}


def shared_limit(target: str) -> int | None:
    """Bytes of shared memory that a block may have on `target`, as a module names it; None if nothing is known of that."""
    try:
        return find(target).shared_per_block
    except ValueError:
        return None


def run_emulated(launches: Sequence[Launch], arch: Arch, **options: Any) -> Report:
    """Execute `launches`, whose tensors are in the CPU's memory. `options` are those of `emulate`.

    Raises EmulationError where a check fails, and `Unknown`, which is one, on what the emulator cannot do.
    """
    for launch in launches:
        if launch.cluster != (1, 1, 1):
            raise Unknown(f"{launch.entry} asks for a cluster of {launch.cluster}; the emulator launches single blocks.")
    return emulate([_kernel(launch) for launch in launches], shared_limit=arch.shared_per_block, **options)


def _kernel(launch: Launch) -> Kernel:
    arguments = [
        np.array(each.value).astype(WORDS[each.kind])[()] if isinstance(each, Scalar) else each for each in launch.args
    ]
    return Kernel(launch.ptx, launch.entry, launch.grid, launch.block, arguments, launch.shared_bytes, launch.overlaps)
