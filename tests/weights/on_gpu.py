"""The cases and the speed of `w4a16` on GPU 0, for machines without pytest: python -m tests.weights.on_gpu [check|speed] [M]

check   one line a case; exit status 1 if one does not hold
speed   for each M of 1, 8, 16, 32, 64, 512 and 4096: torch's bf16 linear, then tiles of `w4a16`, the planner's first. The
        median of graph replays behind a flushed L2, launch included, and what it is of a copy measured in the same run
Without a word both. Exit status 2 without a GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple

import torch

from benchmarks.ceilings import measure
from benchmarks.clock import Clock
from impls.arch import Arch, find
from impls.host import gpu_here
from impls.nvfp4 import NVFP4Tensor, quantize
from impls.weights.contract import Projection, ProjectionPlan
from impls.weights.plan import W4A16Plan
from impls.weights.planner import Tile, schedule, tile_for
from impls.weights.reference import over_bound, reference_projection
from impls.weights.registry import projection
from tests.weights.cases import ON_GPU, run

SHAPES = ((14336, 4096), (4096, 14336))
ROWS = (1, 8, 16, 32, 64, 512, 4096)
SAMPLES = 20
FEW = (
    Tile(8, 64, 2, 4, 10, True),
    Tile(8, 64, 2, 4, 6, True),
    Tile(8, 64, 2, 3, 10, True),
    Tile(8, 64, 2, 6, 7, True),
    Tile(8, 32, 2, 5, 12, True),
    Tile(8, 128, 4, 4, 6, True),
    Tile(8, 128, 4, 3, 6, True),
    Tile(8, 128, 4, 4, 4, True),
    Tile(8, 128, 2, 4, 6, True),
    Tile(8, 256, 8, 3, 3, True),
)
TILES = {
    1: FEW,
    8: FEW,
    16: (Tile(16, 64, 2, 3, 8, True), Tile(16, 64, 2, 4, 4, True), Tile(16, 128, 4, 3, 4, True), Tile(16, 128, 4, 4, 4, True)),
    32: (Tile(32, 64, 2, 4, 4, True), Tile(32, 64, 2, 2, 6, True), Tile(32, 128, 4, 3, 3, True), Tile(64, 64, 4, 3, 2)),
    64: (Tile(64, 64, 4, 3, 3), Tile(64, 64, 4, 2, 4), Tile(64, 128, 4, 3, 2), Tile(64, 128, 8, 3, 2), Tile(64, 256, 8, 2, 1)),
    512: (Tile(64, 128, 4, 2, 2), Tile(128, 64, 4, 2, 3), Tile(128, 128, 8, 3, 1), Tile(256, 128, 8, 2, 1)),
    4096: (
        Tile(128, 128, 4, 3, 1),
        Tile(128, 128, 8, 2, 2),
        Tile(128, 128, 8, 3, 1),
        Tile(256, 128, 8, 2, 1),
        Tile(128, 256, 8, 2, 1),
        Tile(256, 64, 8, 2, 1),
        Tile(256, 64, 4, 2, 1),
        Tile(64, 256, 4, 2, 1),
    ),
}
"""Beside the planner's own."""


def tiles(rows: int, arch: Arch) -> list[Tile]:
    """The planner's for so many rows, then others."""
    first = tile_for(Projection(rows, *SHAPES[0]), arch)
    return list(dict.fromkeys((first, *TILES[rows])))


class _Tried(W4A16Plan):
    """With a tile of our choice."""

    def __init__(self, problem: Projection, arch: Arch, tile: Tile) -> None:
        self.problem, self.arch = problem, arch
        self.schedule = schedule(problem, arch, lambda *_: tile)
        self.compiled()


def compile_ahead(work: tuple[str, str | tuple[Projection, Tile]]) -> None:
    """Leave a kernel in Triton's cache on disk; what fails here fails again where it is told."""
    arch, what = find(work[0]), work[1]
    try:
        if isinstance(what, str):
            W4A16Plan(ON_GPU[what].problem, arch)
        else:
            _Tried(*what[:1], arch, what[1])
    except Exception:
        return


def checked(device: torch.device) -> int:
    """The number of cases that do not hold."""
    failed = 0
    for name, case in ON_GPU.items():
        start = time.perf_counter()
        try:
            found = run(case, device)
            holds = found["over_bound"] <= 1 and found["same_again"] and found["spilt"] == 0
            told = f"over_bound {found['over_bound']:.3f}  same_again {found['same_again']}  spilt {found['spilt']}"
        except Exception:
            holds, told = False, traceback.format_exc()
        failed += not holds
        print(f"{'ok  ' if holds else 'FAIL'}  {name}  {told}  {time.perf_counter() - start:.1f} s", flush=True)
    print(f"{len(ON_GPU) - failed} of {len(ON_GPU)} cases hold", flush=True)
    return failed


def speed(rows: list[int], arch: Arch) -> None:
    limits = measure({})
    copy = limits["copy_bytes_per_s"]
    print(f"copy {copy / 1e12:.2f} TB/s, matmul {limits['bf16_matmul_flops_per_s'] / 1e12:.0f} TFLOP/s, ", end="")
    print(f"empty graph {1e6 * limits['empty_graph_1_seconds']:.1f} us", flush=True)
    clock = Clock()
    for outputs, inputs in SHAPES:
        w4 = quantize(torch.randn(outputs, inputs, device=clock.device))
        for m in rows:
            problem = Projection(m, outputs, inputs)
            x = torch.randn(m, inputs, device=clock.device, dtype=torch.bfloat16)
            print(f"M {m}, {inputs} -> {outputs}", flush=True)
            theirs = _time("torch-bf16-linear", projection("torch-bf16-linear").plan(problem, arch), x, w4, clock, copy, None)
            for tile in tiles(m, arch):
                _time(str(astuple(tile)), (problem, arch, tile), x, w4, clock, copy, theirs)


def _time(
    name: str,
    plan: ProjectionPlan | tuple[Projection, Arch, Tile],
    x: torch.Tensor,
    w4: NVFP4Tensor,
    clock: Clock,
    copy: float,
    theirs: float | None,
) -> float | None:
    """Print one line; the median seconds, None where it fails."""
    try:
        made = _Tried(*plan) if isinstance(plan, tuple) else plan
        runner = made.bind(x, made.pack(w4))
        clock.run(runner)
        rows = torch.linspace(0, len(x) - 1, min(len(x), 4)).round().long().to(x.device)
        chosen = projection("w4a16" if isinstance(plan, tuple) else "torch-bf16-linear")
        error = over_bound(runner.out[rows], reference_projection(x[rows], w4, chosen))
        seconds = clock.median(clock.capture(runner), samples=SAMPLES)
    except Exception as error:
        told = str(error).strip().splitlines() or ["no message"]
        print(f"  {name:34} {type(error).__name__}: {told[-1][:150]}", flush=True)
        return None
    p = made.problem
    rate = p.weight_bytes / seconds
    splits = made.describe().get("splits", "")
    faster = f"{theirs / seconds:5.2f} x torch" if theirs else ""
    print(
        f"  {name:34} splits {splits!s:4} {1e6 * seconds:8.1f} us  NVFP4 {rate / 1e12:5.2f} TB/s {100 * rate / copy:3.0f} %"
        f"  {p.flops / seconds / 1e12:5.0f} TFLOP/s  {faster}  error {error:.2f} of its bound",
        flush=True,
    )
    return seconds


def ahead(words: set[str], rows: list[int], arch: Arch) -> Iterator[tuple[str, str | tuple[Projection, Tile]]]:
    """What there is to compile."""
    if "check" in words:
        yield from ((arch.name, name) for name in ON_GPU)
    if "speed" in words:
        for shape in SHAPES:
            yield from ((arch.name, (Projection(m, *shape), tile)) for m in rows for tile in tiles(m, arch))


def main(arguments: list[str]) -> int:
    words = {word for word in arguments if not word.isdigit()} or {"check", "speed"}
    rows = [int(word) for word in arguments if word.isdigit()] or list(ROWS)
    if not words <= {"check", "speed"} or not set(rows) <= set(ROWS):
        print(f"on_gpu: the words are check and speed, and numbers of rows of {ROWS}.", file=sys.stderr)
        return 2
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    start = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_ahead, list(ahead(words, rows, arch))))
    print(f"compiled in {time.perf_counter() - start:.0f} s", flush=True)
    failed = checked(torch.device("cuda", 0)) if "check" in words else 0
    if "speed" in words:
        speed(rows, arch)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
