"""Functions that worker processes run: with TRITON_INTERPRET=1 they interpret kernels, without it they compile them."""

from __future__ import annotations

from typing import Any

import torch

from impls.arch import find
from impls.weights.api import linear
from impls.weights.contract import Projection
from impls.weights.reference import over_bound, reference_projection
from impls.weights.registry import projection
from tests.weights.cases import CASES, CONVERTED, make, run

CPU = torch.device("cpu")


def run_case(request: dict[str, Any]) -> dict[str, Any]:
    return run({**CASES, **CONVERTED}[request["case"]], CPU, request["impl"])


def new_rows(request: dict[str, Any]) -> dict[str, bool]:
    """A bound runner follows an x that changes; and weights packed for one number of rows serve another."""
    case = CASES["rows-9"]
    x, w4 = make(case, CPU)
    p = case.problem
    one = Projection(1, p.outputs, p.inputs)
    plan, other = (projection("w4a16").plan(problem, find("cpu")) for problem in (p, one))
    converting = projection("w4a16:convert")
    packed = other.pack(w4)
    runner, single = plan.bind(x, packed), other.bind(x[:1], plan.pack(w4))
    converted = converting.plan(p, find("cpu")).bind(x, packed)
    converted()
    reference = reference_projection(x, w4, converting.rounds(p))
    serves = over_bound(converted.out, reference) <= 1
    runner()
    before = runner.out.clone()
    single()
    first = single.out.clone()
    x.neg_()
    runner()
    api = linear(x.neg().view(3, 3, -1), w4)
    return {
        "follows": torch.equal(runner.out, -before),
        "serves": serves and torch.allclose(first.float(), before[:1].float(), rtol=2**-6),
        "many axes": torch.equal(api.view(9, -1), before),
    }


def compiled(request: dict[str, Any]) -> dict[str, Any]:
    """What the Triton kernel of {"impl"} for {"arch", "problem"} is."""
    arch = find(request["arch"])
    plan: Any = projection(request["impl"]).plan(Projection(**request["problem"]), arch)
    kernel = plan.compiled()
    return {"ptx": kernel.ptx, "cubin": kernel.cubin.hex(), "shared_bytes": kernel.shared_bytes, "plan": plan.describe()}
