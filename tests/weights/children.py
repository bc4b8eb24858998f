"""Functions that worker processes run: with TRITON_INTERPRET=1 they interpret the kernel, without it they compile it."""

from __future__ import annotations

from typing import Any

import torch

from impls.arch import find
from impls.weights.api import linear
from impls.weights.contract import Projection
from impls.weights.plan import W4A16Plan
from tests.weights.cases import CASES, make, run

CPU = torch.device("cpu")


def run_case(request: dict[str, Any]) -> dict[str, Any]:
    return run(CASES[request["case"]], CPU)


def new_rows(request: dict[str, Any]) -> dict[str, bool]:
    """A bound runner follows an x that changes; and weights packed for one number of rows serve another."""
    case = CASES["rows-9"]
    x, w4 = make(case, CPU)
    p = case.problem
    plan, other = W4A16Plan(p, find("cpu")), W4A16Plan(Projection(1, p.outputs, p.inputs), find("cpu"))
    runner, single = plan.bind(x, other.pack(w4)), other.bind(x[:1], plan.pack(w4))
    runner()
    before = runner.out.clone()
    single()
    first = single.out.clone()
    x.neg_()
    runner()
    api = linear(x.neg().view(3, 3, -1), w4)
    return {
        "follows": torch.equal(runner.out, -before),
        "serves": torch.allclose(first.float(), before[:1].float(), rtol=2**-6),
        "many axes": torch.equal(api.view(9, -1), before),
    }


def compiled(request: dict[str, Any]) -> dict[str, Any]:
    """What the kernel for {"arch", "problem"} is."""
    arch = find(request["arch"])
    plan = W4A16Plan(Projection(**request["problem"]), arch)
    kernel = plan.compiled()
    return {"ptx": kernel.ptx, "cubin": kernel.cubin.hex(), "shared_bytes": kernel.shared_bytes, "plan": plan.describe()}
