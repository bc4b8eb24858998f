"""The cases and behaviours on GPU 0, for machines without pytest: python -m tests.triton.on_gpu [WORD_IN_NAME].

One line each; exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import torch

from impls.arch import find
from impls.host import gpu_here
from impls.triton.attention import TritonPlan
from tests.on_gpu import DoesNotHold, at_once, hold, named
from tests.triton.behaviours import BEHAVIOURS
from tests.triton.cases import CASES, run

Behaviours = Mapping[str, Callable[[torch.device], None]]


def compile_case(name: str, arch: str) -> None:
    """Leave the kernels of a case in Triton's cache on disk."""
    TritonPlan(CASES[name].problem, find(arch))


def checked(
    name: str, device: torch.device, run: Callable[[str, torch.device], dict[str, float]], behaviours: Behaviours
) -> str | None:
    """What to print of a case or a behaviour. Raises where it does not hold."""
    if name in behaviours:
        behaviours[name](device)
        return None
    found = run(name, device)
    told = "  ".join(f"{key} {value:.3g}" for key, value in found.items())
    if not (found["out_over_bound"] <= 1 and found["lse_over_bound"] <= 1 and found["bad_empty_rows"] == 0):
        raise DoesNotHold(told)
    return told


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
    device = torch.device("cuda", 0)
    wanted = named(words, [(name, partial(checked, name, device, run, behaviours)) for name in (*cases, *behaviours)])
    at_once(partial(compile_case, name, arch.name) for name, _ in wanted if name not in behaviours)
    return 0 if hold(wanted, arch.name) else 1


def run_case(name: str, device: torch.device) -> dict[str, float]:
    return run(CASES[name], device)


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:], CASES, BEHAVIOURS, run_case, compile_case))
