"""The cases and behaviours on GPU 0, for machines without pytest: python -m tests.triton.on_gpu [WORD_IN_NAME].

One line each; exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

import torch

from impls.arch import find
from impls.host import gpu_here
from impls.triton.attention import TritonPlan
from tests.triton.behaviours import BEHAVIOURS
from tests.triton.cases import CASES, run


def compile_case(name: str, arch: str) -> None:
    """Leave the kernels of a case in Triton's cache on disk."""
    TritonPlan(CASES[name].problem, find(arch))


def check(name: str, device: torch.device) -> tuple[bool, str]:
    """(whether it holds, what to print)."""
    try:
        if name in BEHAVIOURS:
            BEHAVIOURS[name](device)
            return True, ""
        found = run(CASES[name], device)
    except Exception:  # every other name is still to be checked
        return False, traceback.format_exc()
    holds = found["out_over_bound"] <= 1 and found["lse_over_bound"] <= 1 and found["bad_empty_rows"] == 0
    return holds, "  ".join(f"{key} {value:.3g}" for key, value in found.items())


def main(words: list[str]) -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    names = [name for name in (*CASES, *BEHAVIOURS) if not words or any(word in name for word in words)]
    start = time.perf_counter()
    compiled = [name for name in names if name in CASES]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_case, compiled, [arch.name] * len(compiled)))
    print(f"compiled in {time.perf_counter() - start:.0f} s", flush=True)
    failed = []
    for name in names:
        start = time.perf_counter()
        holds, details = check(name, torch.device("cuda", 0))
        print(f"{'ok  ' if holds else 'FAIL'}  {name}  {details}  {time.perf_counter() - start:.1f} s", flush=True)
        if not holds:
            failed.append(name)
    print(f"{arch.name}: {len(names) - len(failed)} of {len(names)} hold" + (f"; not {', '.join(failed)}" if failed else ""))
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
