"""The hybrids on GPU 0, for machines without pytest: python -m tests.hybrid.on_gpu [speed | tiles | total | WORD_IN_NAME ...]

Without `speed`, `tiles` or `total`: every case of `tests.triton.cases` by `hybrid-bf16` and `hybrid-fp8`, every conversion and
behaviour, and some cases of `tests.peers.gpu_cases` by `hybrid-bf16:sdpa`, a line each.
speed    bytes read and written a second by converting, over those that a copy of the same run moves: replayed as a graph, which
         the floor of 70 % is for, and called from Python, as a cache is packed; median of 20
tiles    the same by graph, for each kernel with each tile of TILES, so that the best can be put in `impls/hybrid/tiles.py`
total    prefill of 32768, causal, 16 heads: torch's cuDNN on ready data, `hybrid-bf16:sdpa` on a converted cache, and both that
         and its conversion, in turns, by events around each, with nothing flushed: without a rest between, then after 0.2 s
Exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from impls.arch import find
from impls.contract import Cache, Plan, Problem, Runner
from impls.host import arch_of, gpu_here
from impls.hybrid.conversion import Converter
from impls.hybrid.formats import Kind, format_for
from impls.hybrid.tiles import CONVERSION, ColumnsTile, ConversionTiles, RowsTile
from impls.nvfp4 import NVFP4Tensor
from impls.registry import implementation
from tests.hybrid import conversions
from tests.hybrid.behaviours import BEHAVIOURS
from tests.on_gpu import at_once, hold, named
from tests.peers import gpu_cases
from tests.triton.cases import CASES, run
from tests.triton.quantize_on_gpu import seconds

DEVICE = torch.device("cuda", 0)
IMPLS = ("hybrid-bf16", "hybrid-fp8")
SDPA = "hybrid-bf16:sdpa"
FLOOR = 0.7
TURNS = 7
ELEMENTS, HEADS = 2**28, 64
"""Of K, and of V: far more than the L2 holds."""
TILES = {
    "as set": CONVERSION,
    "shorter": replace(CONVERSION, rows=RowsTile(128, 4), columns=ColumnsTile(128, 16)),
    "longer": replace(CONVERSION, rows=RowsTile(256, 8), columns=ColumnsTile(256, 8)),
}
WITH_EACH_TILE = ("16-bit-80-axis-1", "16-bit-80-axis-2", "e4m3-80-axis-1", "e4m3-80-axis-2")


def compile_case(impl: str, name: str, arch: str) -> None:
    """Leave the kernels of a case in Triton's cache on disk."""
    implementation(impl).plan(CASES[name].problem, find(arch))


def by_triton(impl: str, name: str) -> str:
    found = run(CASES[name], DEVICE, implementation(impl))
    told = "  ".join(f"{key} {value:.3g}" for key, value in found.items())
    assert found["out_over_bound"] <= 1 and found["lse_over_bound"] <= 1 and found["bad_empty_rows"] == 0, told
    return told


def by_torch(case: gpu_cases.Case) -> str:
    found = (gpu_cases.replay if case in gpu_cases.REPLAYED else gpu_cases.run)(implementation(SDPA), case, DEVICE)
    told = f"out_over_bound {found.out_over_bound:.3g}  lse_over_bound {found.lse_over_bound:.3g}"
    assert found.out_over_bound <= 1 and found.lse_over_bound <= 1, told
    return told


def checks() -> Iterator[tuple[str, Callable[[], str | None]]]:
    for name, one in conversions.CONVERSIONS.items():
        for tile, tiles in TILES.items():
            if tiles == CONVERSION or name in WITH_EACH_TILE:
                yield f"convert {name}, {tile}", partial(conversions.run, one, DEVICE, tiles)
    for name, behaviour in BEHAVIOURS.items():
        yield name, partial(behaviour, DEVICE)
    for case in (*gpu_cases.CASES.values(), *gpu_cases.REPLAYED):
        if implementation(SDPA).why_not(case.problem, arch_of(DEVICE)) is None:
            yield f"{SDPA} {case.name}", partial(by_torch, case)
    for impl in IMPLS:
        for name in CASES:
            yield f"{impl} {name}", partial(by_triton, impl, name)


def compile_conversion(problem: Problem, kind: Kind, tiles: ConversionTiles, arch: str) -> None:
    """Leave the kernels of a conversion in Triton's cache on disk."""
    Converter(problem, find(arch), format_for(problem, kind), tiles)


def check(words: list[str], arch: str) -> bool:
    """Whether all hold whose names contain one of the words."""
    wanted = named(words, checks())
    pairs = [name.split(" ", 1) for name, _ in wanted if name.startswith(tuple(f"{impl} " for impl in IMPLS))]
    at_once(partial(compile_case, *pair, arch) for pair in pairs)
    return hold(wanted, arch)


def random_cache(problem: Problem) -> tuple[NVFP4Tensor, NVFP4Tensor]:
    """Codes and scales of any bits but NaN: how fast they are converted does not depend on them."""
    p = problem

    def made(shape: tuple[int, ...], block_axis: int) -> NVFP4Tensor:
        codes = torch.randint(0, 256, (*shape[:-1], shape[-1] // 2), dtype=torch.uint8, device=DEVICE)
        scales = torch.randint(0, 0x7F, (*shape[:-1], shape[-1] // 16), dtype=torch.uint8, device=DEVICE)
        return NVFP4Tensor(codes, scales.view(torch.float8_e4m3fn), torch.ones((), device=DEVICE), block_axis)

    outer = (p.batch, p.kv_heads)
    lines = (p.v_head_dim, p.kv_len) if p.v_block_axis == -2 else (p.kv_len, p.v_head_dim)
    return made((*outer, p.kv_len, p.head_dim), -1), made((*outer, *lines), p.v_block_axis)


def copy_rate() -> float:
    """Bytes a second, read and written, by the driver's copy or a kernel's, whichever is faster. Printed."""
    source = torch.randn(2**29, dtype=torch.bfloat16, device=DEVICE)
    target = torch.empty_like(source)
    copying = min(seconds(lambda: target.copy_(source)), seconds(lambda: torch.mul(source, 1.0, out=target)))
    rate = 2 * source.numel() * source.element_size() / copying
    print(f"copy: {rate / 1e9:.0f} GB/s, read and written", flush=True)
    return rate


def problem_of(k_dim: int, v_dim: int, v_block_axis: int) -> Problem:
    return Problem(1, HEADS, HEADS, 1, ELEMENTS // HEADS // v_dim, k_dim, v_dim, v_block_axis=v_block_axis)


def rates(problem: Problem, kind: Kind, tiles: ConversionTiles) -> tuple[float, float]:
    """Bytes a second, read and written, of K and V together with E4M3's search for peaks: (by graph, called from Python)."""
    k4, v4 = random_cache(problem)
    convert = Converter(problem, arch_of(DEVICE), format_for(problem, kind), tiles)
    moved = k4.nbytes + v4.nbytes + convert(k4, v4).nbytes
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        convert(k4, v4)
    return moved / seconds(graph.replay), moved / seconds(partial(convert, k4, v4))


def speed(arch: str) -> bool:
    """Print the table. Returns whether the floor holds."""
    rows = [(kind, dim, axis) for dim in (64, 128, 256, 512) for axis in (-1, -2) for kind in conversions.KINDS]
    at_once(partial(compile_conversion, problem_of(dim, dim, axis), kind, CONVERSION, arch) for kind, dim, axis in rows)
    copy, holds = copy_rate(), True
    for kind, dim, axis in rows:
        by_graph, called = rates(problem_of(dim, dim, axis), kind, CONVERSION)
        below = by_graph < FLOOR * copy
        holds = holds and not below
        what = f"{kind:6} head dim {dim:3}  V along {'head dim' if axis == -1 else 'tokens':8}"
        told = f"{by_graph / 1e9:5.0f} GB/s {by_graph / copy:6.1%}, called {called / copy:6.1%}"
        print(f"{what} {told}  floor {FLOOR:.0%}{'  BELOW' if below else ''}", flush=True)
    return holds


def try_tiles(arch: str) -> None:
    """Print the table. Where columns are timed, K has but 16 head dims."""
    rows = [(kind, dim, axis) for axis in (-1, -2) for kind in ("16-bit", "e4m3") for dim in (64, 128, 512)]
    shapes = {(dim, axis): problem_of(dim if axis == -1 else 16, dim, axis) for _, dim, axis in rows}
    at_once(
        partial(compile_conversion, shapes[dim, axis], kind, tiles, arch)
        for kind, dim, axis in rows
        for tiles in TILES.values()
    )
    copy = copy_rate()
    print(f"{'':32}", *(f"{name:>20}" for name in TILES))
    for kind, dim, axis in rows:
        shares = [rates(shapes[dim, axis], kind, tiles)[0] / copy for tiles in TILES.values()]
        what = f"{'rows' if axis == -1 else 'columns'} {kind} head dim {dim}"
        print(f"{what:32}", *(f"{share:20.1%}" for share in shares), flush=True)


def in_turns(calls: dict[str, Callable[[], object]], rest: float) -> dict[str, float]:
    """{call: median milliseconds of TURNS}."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            time.sleep(rest)
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            stop.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(stop))
    return {name: statistics.median(taken) for name, taken in times.items()}


def converted_and_called(plan: Plan, call: Runner, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
    cache = plan.pack(k4, v4)
    call()
    return cache


def total() -> None:
    """Print the table."""
    for dim in (64, 128, 256):
        problem = Problem(1, 16, 16, 32768, 32768, dim, dim)
        k4, v4 = random_cache(problem)
        q = torch.randn(1, 16, problem.q_len, dim, dtype=torch.bfloat16, device=DEVICE)
        ready, converting = (implementation(name).plan(problem, arch_of(DEVICE)) for name in ("sdpa-cudnn", SDPA))
        cudnn = ready.bind(q, ready.pack(k4, v4))
        hybrid = converting.bind(q, converting.pack(k4, v4))
        calls: dict[str, Callable[[], object]] = {
            "cuDNN": cudnn,
            "converted": hybrid,
            "total": partial(converted_and_called, converting, hybrid, k4, v4),
        }
        for call in calls.values():
            call()
        for rest in (0.0, 0.2):
            found = in_turns(calls, rest)
            told = "  ".join(f"{name} {taken:.2f} ms" for name, taken in found.items())
            print(f"head dim {dim:3}, rest {rest} s: {told}  cuDNN / total {found['cuDNN'] / found['total']:.3f}", flush=True)


def main(words: list[str]) -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    rest = [word for word in words if word not in ("speed", "tiles", "total")]
    checked = check(rest, arch.name) if rest or not words else True
    fast = speed(arch.name) if "speed" in words else True
    if "tiles" in words:
        try_tiles(arch.name)
    if "total" in words:
        total()
    return 0 if checked and fast else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
