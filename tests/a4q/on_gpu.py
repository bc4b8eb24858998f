"""`a4q` and `a4q-q16` on GPU 0, for machines without pytest: python -m tests.a4q.on_gpu [speed | tiles | WORD_IN_NAME ...]

Without a word: every case of `tests.triton.cases` that they take, and every behaviour, a line each. `speed`: decode with the
planner's tiles at the shapes of the README. `tiles`: decode at 131072 by other tiles too. A time is that of one of many calls
in a graph, each with a cache of its own, and its share is of what a copy of the same run moves; the second time is that without
`a4q_combine`. Exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch

from impls.a4q.attention import A4QPlan
from impls.a4q.planner import Tile, tile_for
from impls.arch import Arch, find
from impls.contract import Cache, Problem, Runner
from impls.cuda.runner import CompiledRunner
from impls.host import gpu_here
from impls.registry import implementation
from tests.a4q.behaviours import BEHAVIOURS
from tests.a4q.cases import IMPLS, NAMES, assert_holds, plan, run
from tests.hybrid.on_gpu import copy_rate, random_cache
from tests.triton.behaviours import captured
from tests.triton.cases import CASES
from tests.triton.quantize_on_gpu import seconds

DEVICE = torch.device("cuda", 0)
CONTEXT = 131072
COLD_BYTES = 2**29
"""Of caches that a graph reads one after the other: when it is replayed the L2 has none of the first."""
TILES = {
    64: ((2, 4, 4), (2, 8, 2), (2, 4, 3), (4, 4, 3), (2, 2, 8)),
    128: ((2, 4, 4), (2, 4, 3), (2, 8, 2), (2, 2, 8), (1, 4, 4), (2, 5, 2), (4, 4, 2)),
    256: ((1, 4, 3), (1, 4, 2), (1, 6, 2), (1, 2, 6), (2, 4, 2), (1, 5, 2)),
    512: ((1, 4, 3), (1, 6, 2), (1, 8, 1), (1, 4, 2), (2, 8, 1), (1, 2, 6)),
}


def decode(dim: int, group: int = 4, batch: int = 1, kv_len: int = CONTEXT, kv_heads: int = 8, **fields: int) -> Problem:
    return Problem(batch, kv_heads * group, kv_heads, 1, kv_len, dim, dim, **fields)  # type: ignore[arg-type]


SHAPES: dict[str, Problem] = {
    **{f"decode {CONTEXT} d{dim}": decode(dim) for dim in TILES},
    **{f"decode {length} d{dim}": decode(dim, kv_len=length) for length in (8192, 32768) for dim in (128, 512)},
    **{f"decode 32 x 8192 d{dim}": decode(dim, batch=32, kv_len=8192) for dim in TILES},
    **{f"decode {CONTEXT} d128 group {group}": decode(128, group) for group in (1, 8, 16)},
    **{f"decode {CONTEXT} d{dim} V along tokens": decode(dim, v_block_axis=-2) for dim in TILES},
}


def compile_case(impl: str, name: str, arch: str) -> None:
    """Leave the kernels of a case in the cache on disk."""
    plan(implementation(impl), CASES[name], find(arch))


def compile_tile(problem: Problem, tile: Tile, arch: str) -> None:
    A4QPlan(problem, find(arch), rounds_q=True, tile=tile)


def checks() -> Iterator[tuple[str, Callable[[], str | None]]]:
    for name, behaviour in BEHAVIOURS.items():
        yield name, partial(behaviour, DEVICE)
    for impl, name in NAMES:
        yield (
            f"{impl} {name}",
            partial(lambda impl, name: assert_holds(run(implementation(impl), CASES[name], DEVICE)), impl, name),
        )


def check(words: list[str], arch: str) -> bool:
    """Whether all hold whose names contain one of the words."""
    wanted = [(name, one) for name, one in checks() if not words or any(word in name for word in words)]
    pairs = [name.split(" ", 1) for name, _ in wanted if name.startswith(tuple(f"{impl} " for impl in IMPLS))]
    start = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for job in [pool.submit(compile_case, *pair, arch) for pair in pairs]:
            job.exception()  # the check will say it
    print(f"compiled in {time.perf_counter() - start:.0f} s", flush=True)
    failed = []
    for name, one in wanted:
        try:
            said, told = "ok  ", one() or ""
            torch.cuda.synchronize()
        except Exception:  # every other one is still to be checked
            said, told = "FAIL", traceback.format_exc()
            failed.append(name)
        print(f"{said}  {name}  {told}", flush=True)
    print(f"{arch}: {len(wanted) - len(failed)} of {len(wanted)} hold" + (f"; not {', '.join(failed)}" if failed else ""))
    return bool(wanted) and not failed


def measure(problem: Problem, tile: Tile, arch: Arch) -> tuple[A4QPlan, float, float]:
    """(the plan, seconds of a call, seconds of its first launch alone)."""
    made = A4QPlan(problem, arch, rounds_q=True, tile=tile)
    shape = (problem.batch, problem.q_heads, problem.q_len, problem.head_dim)
    q = torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)
    runners = [made.bind(q, Cache(*random_cache(problem))) for _ in range(-(-COLD_BYTES // problem.kv_bytes))]
    firsts = [CompiledRunner(runner.output, runner.launches[:1], arch) for runner in runners]

    def each(ones: Sequence[Runner]) -> float:
        return seconds(captured(lambda: [one() for one in ones] and None)) / len(ones)

    return made, each(runners), each(firsts)


def speed(jobs: list[tuple[str, Problem, Tile]], arch: Arch) -> None:
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for job in [pool.submit(compile_tile, problem, tile, arch.name) for _, problem, tile in jobs]:
            job.exception()
    copy = copy_rate()
    print(f"copy: {copy / 1e9:.0f} GB/s, read and written", flush=True)
    for label, problem, tile in jobs:
        made, whole, first = measure(problem, tile, arch)
        facts = made.kernels()[0].facts
        share = problem.kv_bytes / whole / copy
        told = f"{1e6 * whole:7.1f} us {share:6.1%}  without combine {1e6 * first:7.1f} us"
        shape = f"tile {(tile.key_tiles, tile.warps, tile.blocks_per_sm)} x {made.schedule.splits} splits"
        print(f"{label:40} {told}  {shape}, {facts.registers} registers, {facts.local_bytes} B local", flush=True)


def main(words: list[str]) -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    rest = [word for word in words if word not in ("speed", "tiles")]
    checked = check(rest, arch.name) if rest or not words else True
    if "speed" in words:
        speed([(label, problem, tile_for(problem, rounds_q=True)) for label, problem in SHAPES.items()], arch)
    if "tiles" in words:
        speed([(f"decode {CONTEXT} d{dim}", decode(dim), Tile(*tile)) for dim, tiles in TILES.items() for tile in tiles], arch)
    return 0 if checked else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
