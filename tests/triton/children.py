"""Functions that worker processes run: with TRITON_INTERPRET=1 they interpret the kernels, without it they compile them."""

from __future__ import annotations

from typing import Any

import torch

from impls.arch import find
from impls.contract import Launch
from impls.triton.attention import TritonPlan
from tests.triton.behaviours import BEHAVIOURS
from tests.triton.cases import CASES, make_inputs, run

CPU = torch.device("cpu")


def run_case(request: dict[str, Any]) -> dict[str, float]:
    return run(CASES[request["case"]], CPU)


def run_behaviour(request: dict[str, Any]) -> None:
    BEHAVIOURS[request["behaviour"]](CPU)


def launches(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What a runner for `arch` would launch for a case, bound to tensors on the CPU."""
    case = CASES[request["case"]]
    inputs = make_inputs(case, CPU)
    plan = TritonPlan(case.problem, find(request["arch"]))
    cache = plan.pack(inputs.k4, inputs.v4)
    runner = plan.bind(inputs.q, cache, kv_lens=inputs.kv_lens, block_table=inputs.block_table)
    return [_facts(launch) for launch in runner.launches]


def _facts(launch: Launch) -> dict[str, Any]:
    kinds = ["null" if x is None else "pointer" if isinstance(x, torch.Tensor) else x.kind for x in launch.args]
    return {
        "entry": launch.entry,
        "ptx": launch.ptx,
        "cubin_starts": launch.cubin[:4].decode("latin1"),
        "grid": launch.grid,
        "block": launch.block,
        "shared_bytes": launch.shared_bytes,
        "kinds": kinds,
    }
