"""`a4q` and `a4q-q16` on GPU 0, for machines without pytest: python -m tests.a4q.on_gpu [WORD ...]

Without a word, or with parts of names: every case of `tests.a4q.cases` that they take, and every behaviour, a line each.

    speed            decode with the planner's tiles, at the shapes of the README
    tiles            decode at 131072 by other tiles too
    speed extend     16 queries of 4 heads to 131072 keys by several tiles, the planner's first, and 32 queries by the planner's
    speed prefill    16 heads, causal, 32768 tokens, by several tiles, the planner's first

A time is that of one of many calls in a graph, each with a cache of its own, or of one call for prefill. Its share is of what a
copy of the same run moves, and its TFLOP/s are those of the products that the mask leaves; the second time is that without
`a4q_combine`. Exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, replace
from functools import partial

import torch

from impls.a4q.attention import A4QPlan
from impls.a4q.planner import SharedTile, Tile, tile_for
from impls.arch import Arch, find
from impls.contract import Cache, Problem, Runner
from impls.cuda.runner import CompiledRunner
from impls.host import gpu_here
from impls.registry import implementation
from tests.a4q.behaviours import BEHAVIOURS
from tests.a4q.cases import ALL_CASES, IMPLS, NAMES, assert_holds, plan, run
from tests.hybrid.on_gpu import copy_rate, random_cache
from tests.on_gpu import at_once, hold, named
from tests.triton.behaviours import captured
from tests.triton.quantize_on_gpu import seconds

DEVICE = torch.device("cuda", 0)
AnyTile = Tile | SharedTile
CONTEXT = 131072
COLD_BYTES = 2**29
"""Of caches that a graph reads one after the other: when it is replayed the L2 has none of the first."""
TILES = {
    64: ((2, 8, 2, 3), (4, 12, 1, 4), (2, 8, 2)),
    128: ((2, 8, 2, 3), (4, 12, 1, 2), (2, 12, 1, 4), (2, 4, 3)),
    192: ((1, 12, 1, 5), (1, 4, 3)),
    256: ((1, 12, 1, 4), (2, 8, 1, 3), (1, 4, 3)),
    512: ((1, 12, 1, 3), (1, 4, 3)),
}
# (64 query rows, keys of a step, stages, warp groups that decode, blocks of an SM), besides the planner's
EXTEND_TILES = {
    64: ((1, 64, 4, 1, 2), (1, 64, 2, 1, 1)),
    128: ((1, 64, 2, 1, 1), (1, 64, 2, 2, 1), (1, 128, 2, 1, 1), (1, 128, 2, 2, 1)),
    256: ((1, 64, 2, 2, 1),),
    512: (),
}
PREFILL_TILES = {
    64: ((2, 64, 2, 1, 1), (3, 64, 2, 1, 1), (1, 64, 2, 1, 2)),
    128: ((2, 64, 2, 1, 1), (2, 64, 3, 1, 1), (1, 64, 2, 1, 2)),
    256: ((1, 64, 2, 1, 1), (1, 64, 2, 2, 1)),
    512: (),
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


def extend(dim: int, q_len: int) -> Problem:
    return replace(decode(dim), q_len=q_len)


def prefill(dim: int) -> Problem:
    return Problem(1, 16, 16, 32768, 32768, dim, dim)


def compile_case(impl: str, name: str, arch: str) -> None:
    """Leave the kernels of a case in the cache on disk."""
    plan(implementation(impl), ALL_CASES[name], find(arch))


def compile_tile(problem: Problem, tile: AnyTile, arch: str) -> None:
    A4QPlan(problem, find(arch), rounds_q=True, tile=tile)


def checks() -> Iterator[tuple[str, Callable[[], str | None]]]:
    for name, behaviour in BEHAVIOURS.items():
        yield name, partial(behaviour, DEVICE)
    for impl, name in NAMES:
        yield (
            f"{impl} {name}",
            partial(lambda impl, name: assert_holds(run(implementation(impl), ALL_CASES[name], DEVICE)), impl, name),
        )


def check(words: list[str], arch: str) -> bool:
    """Whether all hold whose names contain one of the words."""
    wanted = named(words, checks())
    pairs = [name.split(" ", 1) for name, _ in wanted if name.startswith(tuple(f"{impl} " for impl in IMPLS))]
    at_once(partial(compile_case, *pair, arch) for pair in pairs)
    return hold(wanted, arch)


def measure(problem: Problem, tile: AnyTile, arch: Arch) -> tuple[A4QPlan, float, float]:
    """(the plan, seconds of a call, seconds of its first launch alone)."""
    made = A4QPlan(problem, arch, rounds_q=True, tile=tile)
    shape = (problem.batch, problem.q_heads, problem.q_len, problem.head_dim)
    q = torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)
    count = 1 if problem.q_len == problem.kv_len else -(-COLD_BYTES // problem.kv_bytes)  # prefill is bound by its products
    runners = [made.bind(q, Cache(*random_cache(problem))) for _ in range(count)]
    firsts = [CompiledRunner(runner.output, runner.launches[:1], arch) for runner in runners]

    def each(ones: Sequence[Runner]) -> float:
        return seconds(captured(lambda: [one() for one in ones] and None)) / len(ones)

    whole = each(runners)
    return made, whole, each(firsts) if made.schedule.splits > 1 else whole


def flops(problem: Problem) -> int:
    """Of a causal problem whose queries all see a key."""
    p = problem
    pairs = p.q_len * p.kv_len - p.q_len * (p.q_len - 1) // 2
    return 2 * p.batch * p.q_heads * pairs * (p.head_dim + p.v_head_dim)


def speed(jobs: list[tuple[str, Problem, AnyTile]], arch: Arch) -> None:
    at_once(partial(compile_tile, problem, tile, arch.name) for _, problem, tile in jobs)
    copy = copy_rate()
    print(f"copy: {copy / 1e9:.0f} GB/s, read and written", flush=True)
    for label, problem, tile in jobs:
        made, whole, first = measure(problem, tile, arch)
        facts, log = made.kernels()[0].facts, made.kernels()[0].log
        share, rate = problem.kv_bytes / whole / copy, flops(problem) / whole
        told = f"{1e6 * whole:8.1f} us {share:6.1%} {rate / 1e12:5.0f} TFLOP/s  without combine {1e6 * first:8.1f} us"
        shape = f"tile {astuple(tile)} x {made.schedule.splits} splits"
        print(f"{label:40} {told}  {shape}, {facts.registers} registers, {facts.local_bytes} B local {log.strip()}", flush=True)


def jobs(words: list[str], arch: Arch) -> list[tuple[str, Problem, AnyTile]]:
    """What `words` ask to be timed."""
    found: list[tuple[str, Problem, AnyTile]] = []

    def add(label: str, problem: Problem, others: Sequence[AnyTile] = ()) -> None:
        planned = tile_for(problem, arch, rounds_q=True)
        found.extend((label, problem, tile) for tile in (planned, *(tile for tile in others if tile != planned)))

    if "tiles" in words:
        for dim, tiles in TILES.items():
            add(f"decode {CONTEXT} d{dim}", decode(dim), [Tile(*tile) for tile in tiles])
    if "extend" in words:
        for q_len, dim in itertools.product((16, 32), EXTEND_TILES):
            shared = [SharedTile(*tile) for tile in EXTEND_TILES[dim]] if q_len == 16 else []
            add(f"{q_len} queries {CONTEXT} d{dim}", extend(dim, q_len), shared)
    if "prefill" in words:
        for dim, others in PREFILL_TILES.items():
            add(f"prefill 32768 d{dim}", prefill(dim), [SharedTile(*tile) for tile in others])
    if "speed" in words and not found:
        for label, problem in SHAPES.items():
            add(label, problem)
    return found


def main(words: list[str]) -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    rest = [word for word in words if word not in ("speed", "tiles", "extend", "prefill")]
    checked = check(rest, arch.name) if rest or not words else True
    if timed := jobs(words, arch):
        speed(timed, arch)
    return 0 if checked else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
