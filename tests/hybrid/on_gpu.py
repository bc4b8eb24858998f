"""The hybrids on GPU 0, for machines without pytest: python -m tests.hybrid.on_gpu [speed | WORD_IN_NAME ...]

Without `speed`: every case of `tests.triton.cases` by `hybrid-bf16` and `hybrid-fp8`, every conversion and behaviour, and some
cases of `tests.peers.gpu_cases` by `hybrid-bf16:sdpa`, a line each. With it: bytes read and written a second by converting,
over those that a copy of the same run moves, median of 20 calls; the floor is 70 % where V's blocks run along the head dim.
Exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch

from impls.arch import find
from impls.contract import Problem
from impls.host import arch_of, gpu_here
from impls.hybrid.conversion import Converter
from impls.hybrid.formats import format_for
from impls.nvfp4 import NVFP4Tensor
from impls.registry import implementation
from tests.hybrid import conversions
from tests.hybrid.behaviours import BEHAVIOURS
from tests.peers import gpu_cases
from tests.triton.cases import CASES, run
from tests.triton.quantize_on_gpu import seconds

DEVICE = torch.device("cuda", 0)
IMPLS = ("hybrid-bf16", "hybrid-fp8")
SDPA = "hybrid-bf16:sdpa"
FLOOR = 0.7
TOKENS, HEADS = 2**15, 64


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
        yield f"convert {name}", partial(conversions.run, one, DEVICE)
    for name, behaviour in BEHAVIOURS.items():
        yield name, partial(behaviour, DEVICE)
    for case in (*gpu_cases.CASES.values(), *gpu_cases.REPLAYED):
        if implementation(SDPA).why_not(case.problem, arch_of(DEVICE)) is None:
            yield f"{SDPA} {case.name}", partial(by_torch, case)
    for impl in IMPLS:
        for name in CASES:
            yield f"{impl} {name}", partial(by_triton, impl, name)


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
        start = time.perf_counter()
        try:
            said, told = "ok  ", one() or ""
            torch.cuda.synchronize()
        except Exception:  # every other one is still to be checked
            said, told = "FAIL", traceback.format_exc()
            failed.append(name)
        print(f"{said}  {name}  {told}  {time.perf_counter() - start:.1f} s", flush=True)
    print(f"{arch}: {len(wanted) - len(failed)} of {len(wanted)} hold" + (f"; not {', '.join(failed)}" if failed else ""))
    return bool(wanted) and not failed


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
    """Bytes a second, read and written, by the driver's copy or a kernel's, whichever is faster."""
    source = torch.randn(2**29, dtype=torch.bfloat16, device=DEVICE)
    target = torch.empty_like(source)
    copying = min(seconds(lambda: target.copy_(source)), seconds(lambda: torch.mul(source, 1.0, out=target)))
    return 2 * source.numel() * source.element_size() / copying


def speed() -> bool:
    """Print the table: K and V together, with E4M3's search for peaks. Returns whether the floor holds."""
    copy = copy_rate()
    print(f"copy: {copy / 1e9:.0f} GB/s, read and written", flush=True)
    holds = True
    for dim in (64, 128, 256, 512):
        for axis in (-1, -2):
            p = Problem(1, HEADS, HEADS, 1, TOKENS * 128 // dim, dim, dim, v_block_axis=axis)
            k4, v4 = random_cache(p)
            for kind in conversions.KINDS:
                convert = Converter(p, arch_of(DEVICE), format_for(p, kind))
                took = seconds(partial(convert, k4, v4))
                moved = k4.nbytes + v4.nbytes + convert(k4, v4).nbytes
                share = moved / took / copy
                below = axis == -1 and share < FLOOR
                holds = holds and not below
                along = "head dim" if axis == -1 else "tokens"
                limit = f"  floor {FLOOR:.0%}{'  BELOW' if below else ''}" if axis == -1 else ""
                what = f"{kind:6} head dim {dim:3}  V along {along:8}"
                print(f"{what} {1e6 * took:7.0f} us {moved / took / 1e9:6.0f} GB/s {share:6.1%}{limit}", flush=True)
    return holds


def main(words: list[str]) -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    rest = [word for word in words if word != "speed"]
    checked = check(rest, arch.name) if rest or not words else True
    fast = speed() if "speed" in words else True
    return 0 if checked and fast else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
