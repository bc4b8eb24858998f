"""The cases and the speed of our projections, on GPU 0 and without pytest: python -m tests.weights.on_gpu [WORD ...] [M ...]

check   one line a case; exit status 1 if one does not hold
speed   for each M of 1, 8, 16, 32, 64, 512 and 4096: torch's bf16 linear, `w4a16:convert` where rows are many, tiles of
        `w4a16:fused`, and for few rows cuts of `w4a16-cuda`; the planners' own first. The median of graph replays behind a
        flushed L2, launch included, and what it is of a copy measured in the same run
tiles   with speed: others than the planners' own, too
Without a word all three. Exit status 2 without a GPU.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass

import torch

from benchmarks.ceilings import measure
from benchmarks.clock import Clock
from impls.arch import Arch, find
from impls.host import gpu_here, usable_cores
from impls.nvfp4 import NVFP4Tensor, quantize
from impls.weights.contract import Projection, ProjectionPlan
from impls.weights.few_rows import FewRowsPlan
from impls.weights.few_rows_planner import ROWS as FEW
from impls.weights.few_rows_planner import Cut, cut_for
from impls.weights.fused import FusedPlan
from impls.weights.planner import Tile, schedule, tile_for
from impls.weights.reference import over_bound, reference_projection
from impls.weights.registry import projection
from impls.weights.tiled import TiledPlan
from tests.weights.cases import ON_GPU, on_gpu, run

SHAPES = ((14336, 4096), (4096, 14336))
ROWS = (1, 8, 16, 32, 64, 512, 4096)
SAMPLES = 20
WORDS = {"check", "speed", "tiles"}
FEW_TILES = (
    Tile(8, 64, 2, 3, 10, True),
    Tile(8, 64, 2, 3, 6, True),
    Tile(8, 64, 2, 4, 4, True),
    Tile(8, 128, 4, 3, 6, True),
    Tile(8, 128, 4, 4, 4, True),
)
TILES = {
    1: FEW_TILES,
    8: FEW_TILES,
    16: (Tile(16, 64, 2, 4, 3, True), Tile(16, 64, 2, 3, 4, True)),
    32: (Tile(32, 64, 2, 4, 3, True), Tile(64, 64, 4, 3, 2)),
    64: (Tile(64, 64, 4, 4, 2), Tile(64, 128, 4, 3, 2)),
    512: (Tile(64, 128, 4, 2, 2), Tile(128, 64, 4, 2, 3)),
    4096: (Tile(128, 128, 8, 2, 2),),
}
"""Of the Triton kernel."""
CUTS = (
    Cut(4, 1, 7),
    Cut(4, 2, 7),
    Cut(14, 1, 2),
    Cut(14, 2, 2),
    Cut(8, 3, 2),
    Cut(16, 1, 2),
    Cut(8, 2, 3),
)
"""Of the CUDA kernel."""


@dataclass(frozen=True)
class Tried:
    """A plan with a tile or a cut of our choice; None: the planner's."""

    impl: str
    problem: Projection
    how: Tile | Cut | None = None

    def plan(self, arch: Arch) -> ProjectionPlan:
        if isinstance(self.how, Tile):
            return _WithTile(self.problem, arch, self.how)
        if isinstance(self.how, Cut):
            return _WithCut(self.problem, arch, self.how)
        return projection(self.impl).plan(self.problem, arch)

    @property
    def name(self) -> str:
        return self.impl + (f" {astuple(self.how)}" if self.how else "")


class _WithTile(FusedPlan):
    def __init__(self, problem: Projection, arch: Arch, tile: Tile) -> None:
        TiledPlan.__init__(self, problem, arch)
        self.schedule = schedule(problem, arch, lambda *_: tile)
        self.compiled()


class _WithCut(FewRowsPlan):
    def __init__(self, problem: Projection, arch: Arch, cut: Cut) -> None:
        TiledPlan.__init__(self, problem, arch)
        self.cut = cut
        self.compiled()


def tried(problem: Projection, arch: Arch, *, others: bool) -> list[Tried]:
    """What is timed for a problem."""
    found = [Tried("torch-bf16-linear", problem)]
    if problem.rows > 64:
        found.append(Tried("w4a16:convert", problem))
    if problem.rows <= FEW:
        cuts = dict.fromkeys((cut_for(problem), *(CUTS if others else ())))
        found += [Tried("w4a16-cuda", problem, cut) for cut in cuts]
    tiles = dict.fromkeys((tile_for(problem, arch), *(TILES[problem.rows] if others else ())))
    return found + [Tried("w4a16:fused", problem, tile) for tile in tiles]


def compile_ahead(work: tuple[str, Tried]) -> None:
    """Leave a kernel in the caches on disk; what fails here fails again where it is told."""
    arch, what = work
    try:
        what.plan(find(arch))
    except Exception:
        return


def checked(device: torch.device) -> int:
    """The number of cases that do not hold."""
    failed = 0
    cases = on_gpu()
    for impl, name in cases:
        start = time.perf_counter()
        try:
            found = run(ON_GPU[name], device, impl)
            holds = found["over_bound"] <= 1 and found["same_again"] and found["spilt"] == 0
            told = f"over_bound {found['over_bound']:.3f}  same_again {found['same_again']}  spilt {found['spilt']}"
        except Exception:
            holds, told = False, traceback.format_exc()
        failed += not holds
        print(f"{'ok  ' if holds else 'FAIL'}  {impl}  {name}  {told}  {time.perf_counter() - start:.1f} s", flush=True)
    print(f"{len(cases) - failed} of {len(cases)} cases hold", flush=True)
    return failed


def speed(rows: list[int], arch: Arch, *, others: bool) -> None:
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
            theirs = None
            for one in tried(problem, arch, others=others):
                seconds = _time(one, arch, x, w4, clock, copy, theirs)
                theirs = theirs or seconds


def _time(
    one: Tried, arch: Arch, x: torch.Tensor, w4: NVFP4Tensor, clock: Clock, copy: float, theirs: float | None
) -> float | None:
    """Print one line; the median seconds, None where it fails."""
    p, name = one.problem, one.name
    try:
        made = one.plan(arch)
        runner = made.bind(x, made.pack(w4))
        clock.run(runner)
        rows = torch.linspace(0, len(x) - 1, min(len(x), 4)).round().long().to(x.device)
        error = over_bound(runner.out[rows], reference_projection(x[rows], w4, projection(one.impl).rounds(p)))
        seconds = clock.median(clock.capture(runner), samples=SAMPLES)
    except Exception as error:
        told = str(error).strip().splitlines() or ["no message"]
        print(f"  {name:42} {type(error).__name__}: {told[-1][:150]}", flush=True)
        return None
    rate = p.weight_bytes / seconds
    splits = made.describe().get("splits", "")
    faster = f"{theirs / seconds:5.2f} x torch" if theirs else ""
    print(
        f"  {name:42} splits {splits!s:4} {1e6 * seconds:8.1f} us  NVFP4 {rate / 1e12:5.2f} TB/s {100 * rate / copy:3.0f} %"
        f"  {p.flops / seconds / 1e12:5.0f} TFLOP/s  {faster}  error {error:.2f} of its bound",
        flush=True,
    )
    return seconds


def ahead(words: set[str], rows: list[int], arch: Arch) -> Iterator[tuple[str, Tried]]:
    """What there is to compile."""
    if "check" in words:
        yield from ((arch.name, Tried(impl, ON_GPU[name].problem)) for impl, name in on_gpu())
    if "speed" in words:
        problems = [Projection(m, *shape) for shape in SHAPES for m in rows]
        yield from ((arch.name, one) for problem in problems for one in tried(problem, arch, others="tiles" in words))


def main(arguments: list[str]) -> int:
    words = {word for word in arguments if not word.isdigit()} or WORDS
    rows = [int(word) for word in arguments if word.isdigit()] or list(ROWS)
    if not words <= WORDS or not set(rows) <= set(ROWS):
        print(f"on_gpu: the words are check, speed and tiles, and numbers of rows of {ROWS}.", file=sys.stderr)
        return 2
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    start = time.perf_counter()
    with ProcessPoolExecutor(usable_cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_ahead, list(ahead(words, rows, arch))))
    print(f"compiled in {time.perf_counter() - start:.0f} s", flush=True)
    failed = checked(torch.device("cuda", 0)) if "check" in words else 0
    if "speed" in words:
        speed(rows, arch, others="tiles" in words)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
