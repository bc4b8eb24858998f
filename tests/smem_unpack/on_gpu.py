"""`smem-unpack` on GPU 0, for machines without pytest: python -m tests.smem_unpack.on_gpu [speed | WORD_IN_NAME ...]

Without a word: every case of `tests.triton.cases` that fits, and every behaviour, a line each. `speed`: decode of 131072 tokens
and prefill of 8192. Exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch

from impls.arch import Arch, find
from impls.contract import Cache, Problem
from impls.host import gpu_here
from impls.smem_unpack.attention import SmemUnpackPlan
from tests.a4q.cases import assert_holds
from tests.hybrid.on_gpu import copy_rate, random_cache
from tests.on_gpu import at_once, hold, named
from tests.smem_unpack.behaviours import BEHAVIOURS
from tests.smem_unpack.cases import names, plan, run
from tests.triton.behaviours import captured
from tests.triton.cases import CASES
from tests.triton.quantize_on_gpu import seconds

DEVICE = torch.device("cuda", 0)
SHAPES = {
    **{f"decode 131072 d{dim}": Problem(1, 32, 8, 1, 131072, dim, dim) for dim in (64, 128, 256, 512)},
    **{f"prefill 8192 d{dim}": Problem(1, 32, 8, 8192, 8192, dim, dim) for dim in (64, 128, 256, 512)},
}


def compile_case(name: str, arch: str) -> None:
    """Leave the kernels of a case in the cache on disk."""
    plan(CASES[name], find(arch))


def checks(arch: Arch) -> Iterator[tuple[str, Callable[[], str | None]]]:
    for name, behaviour in BEHAVIOURS.items():
        yield name, partial(behaviour, DEVICE)
    for name in names(arch):
        yield name, partial(lambda name: assert_holds(run(CASES[name], DEVICE)), name)


def check(words: list[str], arch: Arch) -> bool:
    """Whether all hold whose names contain one of the words."""
    wanted = named(words, checks(arch))
    at_once(partial(compile_case, name, arch.name) for name, _ in wanted if name in CASES)
    return hold(wanted, arch.name)


def speed(arch: Arch) -> None:
    copy = copy_rate()
    print(f"copy: {copy / 1e9:.0f} GB/s, read and written", flush=True)
    for label, p in SHAPES.items():
        made = SmemUnpackPlan(p, arch)
        q = torch.randn(p.batch, p.q_heads, p.q_len, p.head_dim, dtype=torch.bfloat16, device=DEVICE)
        taken = seconds(captured(made.bind(q, Cache(*random_cache(p)))))
        share, facts = p.kv_bytes / taken / copy, made.kernels()[0].facts
        print(
            f"{label:24} {1e6 * taken:9.1f} us {share:6.1%} of copy  {made.describe()}, {facts.registers} registers", flush=True
        )


def main(words: list[str]) -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    rest = [word for word in words if word != "speed"]
    checked = check(rest, arch) if rest or not words else True
    if "speed" in words:
        speed(arch)
    return 0 if checked else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
