"""What tests of the gate do in a process of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from impls.arch import find
from impls.cuda.emulation.launches import run_emulated
from impls.numerics.cases import CASES
from impls.numerics.data import build
from impls.registry import implementation


def emulated_bits(request: Mapping[str, Any]) -> list[str]:
    """A hash of out and of lse, as the emulator leaves them: of {"impl", "case", "arch"}."""
    case, arch, chosen = CASES[request["case"]], find(request["arch"]), implementation(request["impl"])
    given = build(case).inputs
    plan = chosen.plan(case.problem, arch)
    runner = plan.bind(given.q, plan.pack(given.k4, given.v4), kv_lens=given.kv_lens, block_table=given.block_table)
    run_emulated(runner.launches, arch, schedules=("forward",))
    found = (runner.output.out, runner.output.lse)
    return [hashlib.sha256(t.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest() for t in found]
