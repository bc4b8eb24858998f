"""The cases and behaviours on GPU 0, for machines without pytest: python -m tests.triton.on_gpu [WORD_IN_NAME].

One line each; exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor

import torch

from impls.arch import find
from impls.host import gpu_here
from impls.triton.attention import TritonPlan
from tests.triton.behaviours import BEHAVIOURS
from tests.triton.cases import CASES, run

Behaviours = Mapping[str, Callable[[torch.device], None]]


def compile_case(name: str, arch: str) -> None:
    """Leave the kernels of a case in Triton's cache on disk."""
    TritonPlan(CASES[name].problem, find(arch))


def check(
    name: str, device: torch.device, run: Callable[[str, torch.device], dict[str, float]], behaviours: Behaviours
) -> tuple[bool, str]:
    """(whether it holds, what to print)."""
    try:
        if name in behaviours:
            behaviours[name](device)
            return True, ""
        found = run(name, device)
    except Exception:  # every other name is still to be checked
        return False, traceback.format_exc()
    holds = found["out_over_bound"] <= 1 and found["lse_over_bound"] <= 1 and found["bad_empty_rows"] == 0
    return holds, "  ".join(f"{key} {value:.3g}" for key, value in found.items())


def run_all(
    words: list[str],
    cases: Iterable[str],
    behaviours: Behaviours,
    run: Callable[[str, torch.device], dict[str, float]],
    compile_case: Callable[[str, str], None],
) -> int:
    """Compile the cases whose names have one of the words, in processes; run them and the behaviours. The exit status."""
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    compiled = [name for name in cases if not words or any(word in name for word in words)]
    names = [*compiled, *(name for name in behaviours if not words or any(word in name for word in words))]
    start = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_case, compiled, [arch.name] * len(compiled)))
    print(f"compiled in {time.perf_counter() - start:.0f} s", flush=True)
    failed = []
    for name in names:
        start = time.perf_counter()
        holds, details = check(name, torch.device("cuda", 0), run, behaviours)
        print(f"{'ok  ' if holds else 'FAIL'}  {name}  {details}  {time.perf_counter() - start:.1f} s", flush=True)
        if not holds:
            failed.append(name)
    print(f"{arch.name}: {len(names) - len(failed)} of {len(names)} hold" + (f"; not {', '.join(failed)}" if failed else ""))
    return 1 if failed or not names else 0


def run_case(name: str, device: torch.device) -> dict[str, float]:
    return run(CASES[name], device)


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:], CASES, BEHAVIOURS, run_case, compile_case))
