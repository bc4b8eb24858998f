"""What the GPU reaches at its best, measured anew for every run: figures of another day or card are no yardstick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from impls.errors import CommandError
from impls.worker import Worker

TIMEOUT = 120.0
"""Seconds, of which importing torch from a cold disk and creating a CUDA context take the most."""
SAMPLES = 10
COPIED_BYTES = 1 << 30
ROW = 4096  # float32 values that one block sums while it reads
MATMUL = 8192


def measured_ceilings(import_path: str) -> dict[str, float]:
    """The fields of `measure`, from a process of its own, because the caller shall hold no CUDA context.

    Raises CommandError where they cannot be measured, or where the L2 cannot be made cold.
    """
    with Worker("benchmarks.ceilings:measure", env={"PYTHONPATH": import_path}) as worker:
        reply = worker.call({}, timeout=TIMEOUT)
    if reply.status != "ok":
        raise CommandError(f"this GPU cannot be timed: {reply.sentence}")
    return dict(reply.value)


def measure(request: Mapping[str, Any]) -> dict[str, float]:
    """Medians of GPU 0:

    copy_bytes_per_s            copy of 1 GiB on the device, what it reads and what it writes counted, by the faster of the
                                driver's copy and a kernel that multiplies by 1
    read_bytes_per_s            sums over 1 GiB
    bf16_matmul_flops_per_s     product of two 8192 x 8192 matrices, 2 * 8192^3 operations
    empty_graph_1_seconds       replay of a graph of one kernel that does nothing
    empty_graph_2_seconds       of two
    cold_over_warm              time of reads that wait for each other, after the flush, over that of their repetition

    Raises RuntimeError where the flush leaves the L2 warm.
    """
    import torch

    from benchmarks.clock import Clock

    clock = Clock()
    cold_over_warm = clock.prove_cold()
    source = torch.zeros(COPIED_BYTES // (4 * ROW), ROW, device=clock.device)
    target = torch.zeros_like(source)
    sums = torch.zeros(len(source), device=clock.device)
    a, b = (torch.randn(MATMUL, MATMUL, device=clock.device, dtype=torch.bfloat16) for _ in range(2))
    c = torch.zeros_like(a)
    calls = {
        "copy": lambda: target.copy_(source),
        "multiply": lambda: torch.mul(source, 1.0, out=target),
        "read": lambda: torch.sum(source, dim=1, out=sums),
        "matmul": lambda: torch.matmul(a, b, out=c),
    }
    seconds = {name: clock.median(clock.capture(call), samples=SAMPLES) for name, call in calls.items()}
    return {
        "copy_bytes_per_s": 2 * COPIED_BYTES / min(seconds["copy"], seconds["multiply"]),
        "read_bytes_per_s": COPIED_BYTES / seconds["read"],
        "bf16_matmul_flops_per_s": 2 * MATMUL**3 / seconds["matmul"],
        "empty_graph_1_seconds": clock.median(clock.empty_graph(1)),
        "empty_graph_2_seconds": clock.median(clock.empty_graph(2)),
        "cold_over_warm": cold_over_warm,
    }
