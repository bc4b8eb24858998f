"""The cases and behaviours on GPU 0, for machines without pytest: python -m tests.dual_chunk.on_gpu [WORD_IN_NAME ...].

One line each; exit status 0 if all hold, 1 if one does not, 2 without a GPU.

    python -m tests.dual_chunk.on_gpu bias      how far one accumulator chain drifts, and chunks do not; see `bias`
    python -m tests.dual_chunk.on_gpu speed     prefill of 131072 tokens, in chunks against one pass; see `speed`
"""

from __future__ import annotations

import sys

import torch

from impls.arch import find
from tests.dual_chunk import bias, speed
from tests.dual_chunk.behaviours import BEHAVIOURS
from tests.dual_chunk.cases import CASES, run
from tests.triton.on_gpu import run_all


def compile_case(name: str, arch: str) -> None:
    """Leave the kernels of a case in Triton's cache on disk."""
    case = CASES[name]
    case.chosen.plan(case.given.problem, find(arch))


def run_case(name: str, device: torch.device) -> dict[str, float]:
    return run(CASES[name], device)


def main(words: list[str]) -> int:
    alone = {"bias": bias.main, "speed": speed.main}
    if len(words) == 1 and words[0] in alone:
        return alone[words[0]]()
    names = {name: case for name, case in CASES.items() if case.inner != "triton-native"}  # which needs another GPU
    return run_all(words, names, BEHAVIOURS, run_case, compile_case)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
