"""Each peer against our float64 reference on GPU 0, for machines without pytest: python -m tests.peers.on_gpu [WORD ...].

A line for each peer and case whose names hold all the words; what a peer refuses is told once a reason. `-` before a word
leaves out what holds it. Exit status 0 if all hold, 1 if one does not, 2 without a GPU or where nothing was left to check.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch

from impls.arch import Arch, find
from impls.contract import Problem
from impls.host import gpu_here, usable_cores
from impls.registry import implementation
from tests.on_gpu import DoesNotHold, hold
from tests.peers.gpu_cases import CASES, REPLAYED, Case, replay, run
from tests.peers.problems import PEERS

ALL = {**CASES, **{case.name: case for case in REPLAYED}}


def compile_plan(peer: str, problem: Problem, arch: str) -> str | None:
    """Leave a peer's kernels in its library's cache on disk; what went wrong, or None."""
    try:
        implementation(peer).plan(problem, find(arch))
    except Exception:  # the checks will say which of them it concerns
        return f"{peer} at head dim {problem.head_dim}: {traceback.format_exc()}"
    return None


def compile_all(pairs: Iterable[tuple[str, Case]], arch: Arch) -> None:
    """Modules differ by peer, dtype and head dim."""
    wanted = {(peer, case.problem.dtype, case.problem.head_dim): case.problem for peer, case in pairs}
    start = time.perf_counter()
    with ProcessPoolExecutor(usable_cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(compile_plan, key[0], problem, arch.name) for key, problem in wanted.items()]
        for failure in filter(None, (job.result() for job in jobs)):
            print(f"FAIL  {failure}", flush=True)
    print(f"planned {len(wanted)} kernels in {time.perf_counter() - start:.0f} s", flush=True)


def check(peer: str, case: Case, device: torch.device) -> str:
    """What to print. Raises where it does not hold."""
    found = (replay if case in REPLAYED else run)(implementation(peer), case, device)
    told = f"out {found.out_over_bound:.3f} lse {found.lse_over_bound:.3f} of the bound, relative L2 {found.relative_l2:.1e}"
    if not (found.out_over_bound <= 1 and found.lse_over_bound <= 1):
        worst = f"worst at {found.worst} and {found.worst_lse}, magnitude {found.magnitude_ratio:.4f}"
        raise DoesNotHold(f"{told}, {worst}")
    return told


def main(words: list[str]) -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    pairs, refusals = [], set()
    for peer in PEERS:
        for case in ALL.values():
            title = f"{peer} {case.name}"
            if not all(word[1:] not in title if word[0] == "-" else word in title for word in words):
                continue
            reason = implementation(peer).why_not(case.problem, arch)
            if reason is None:
                pairs.append((peer, case))
            elif (peer, reason) not in refusals:
                refusals.add((peer, reason))
                print(f"skip  {title}: {reason}", flush=True)
    compile_all(pairs, arch)
    device = torch.device("cuda", 0)
    held = hold([(f"{peer} {case.name}", partial(check, peer, case, device)) for peer, case in pairs], arch.name)
    return 2 if not pairs else int(not held)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
