"""Times other tiles of the `triton` kernel than the planner's on the GPU here: how the tables of its planner are found.

python scripts/try_tiles.py decode --head-dim 128 --kv-len 131072 block_n=32,64 num_warps=1,2 max_registers=0,168

Every combination of the given fields of `impls.triton.planner.Tile` takes the place of those that the planner chose; "/" ends
one set of combinations and begins another. All are compiled first, on all cores. One line each: the median of its graph
replays with a cold L2, what that is of the cache's bytes and of the products' operations a second, and its largest error over
its bound. Combinations that do not compile, or do not fit, say so.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cells import workloads
from benchmarks.clock import Clock
from benchmarks.shape import Shape
from benchmarks.work import attended_bytes, flops
from impls.arch import CPU, Arch, find
from impls.contract import Problem
from impls.host import gpu_here, usable_cores
from impls.registry import implementation
from impls.triton import planner
from impls.triton.planner import Tile

SAMPLES = 10
NAMES = tuple(field.name for field in fields(Tile))


def combinations(words: list[str]) -> Iterator[dict[str, int | None]]:
    """Of ["block_n=32,64", "num_warps=1"]: {"block_n": 32, "num_warps": 1}, ... A number of 0 registers is no limit.

    Raises ValueError on what is not a field of a tile.
    """
    if "/" in words:
        end = words.index("/")
        yield from combinations(words[:end])
        yield from combinations(words[end + 1 :])
        return
    lists = {}
    for word in words:
        name, _, values = word.partition("=")
        if name not in NAMES or not all(value.isdigit() for value in values.split(",")):
            raise ValueError(f"{word!r} is not field=number,number,...; the fields are {', '.join(NAMES)}.")
        lists[name] = [int(value) for value in values.split(",")]
    for chosen in itertools.product(*lists.values()):
        tile: dict[str, int | None] = dict(zip(lists, chosen, strict=True))
        yield {**tile, "max_registers": tile["max_registers"] or None} if "max_registers" in tile else tile


def changed_tile(problem: Problem, tile: dict[str, int | None], arch: Arch) -> Tile:
    """The planner's tile with the fields of `tile`."""
    return replace(planner.tile_for(problem, problem.q_len * problem.group, arch), **tile)  # type: ignore[arg-type]


def compile_ahead(work: tuple[Problem, dict[str, int | None], str]) -> None:
    """Leave the kernels in Triton's cache on disk; what fails here fails again where it is told."""
    from impls.triton.attention import TritonPlan

    problem, tile, name = work
    arch = find(name)
    plan = TritonPlan(problem, CPU)
    plan.arch = arch
    plan.schedule = planner.schedule(problem, arch, lambda *_: changed_tile(problem, tile, arch))
    with suppress(Exception):
        plan.kernels()


def try_tile(problem: Problem, tile: dict[str, int | None], shape: Shape, clock: Clock) -> str:
    """One line about the planner's tile with the fields of `tile`."""
    from impls.host import arch_of
    from impls.triton.attention import TritonPlan

    arch = arch_of(shape.device)
    changed = changed_tile(problem, tile, arch)
    told = "  ".join(f"{name} {getattr(changed, name)}" for name in NAMES)
    try:
        plan = TritonPlan(problem, arch)
        plan.schedule = planner.schedule(problem, arch, lambda *_: changed)
        runner = plan.bind(shape.inputs.q, plan.pack(shape.inputs.k4, shape.inputs.v4))
        clock.run(runner)
        errors = shape.compare(implementation("triton"), runner.output).errors
        replay = clock.capture(runner)
        seconds = statistics.median(clock.sample(replay).seconds for _ in range(SAMPLES))
    except Exception as error:  # the other combinations are still to be tried
        return f"{told}  {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"
    over = max(errors.out_over_bound, errors.lse_over_bound)
    rates = f"{attended_bytes(problem) / seconds / 1e12:5.2f} TB/s  {flops(problem) / seconds / 1e12:4.0f} TFLOP/s"
    return f"{told}  splits {plan.schedule.splits}  {1e6 * seconds:9.1f} us  {rates}  error {over:.2f} of its bound"


def main(arguments: list[str]) -> int:
    """0, or 2 without a GPU."""
    latency = [name for name, workload in workloads().items() if workload.suite == "latency"]
    parser = argparse.ArgumentParser(prog="try_tiles", description="Times other tiles of the triton kernel.")
    parser.add_argument("workload", choices=latency)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--kv-len", type=int, default=131072)
    parser.add_argument("tile", nargs="*", metavar="field=n,n", help=f"of {', '.join(NAMES)}")
    chosen = parser.parse_intermixed_args(arguments)  # tiles may follow options
    try:
        tiles = list(combinations(chosen.tile))
        problem = workloads()[chosen.workload].attention(chosen.head_dim, chosen.kv_len)
    except ValueError as error:
        parser.error(str(error))
    arch, why_not = gpu_here()
    if arch is None:
        print(f"try_tiles: {why_not}", file=sys.stderr)
        return 2
    with ProcessPoolExecutor(usable_cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_ahead, [(problem, tile, arch.name) for tile in tiles]))
    clock = Clock()
    shape = Shape(problem, clock.device)
    for tile in tiles:
        print(try_tile(problem, tile, shape, clock), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
