"""What is no cache and no NVFP4 tensor ends in one sentence in every plan's `pack` and `bind`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from impls.contract import Plan, Problem
from impls.nvfp4 import quantize

MODULES = (
    "a4q.attention",
    "dual_chunk.attention",
    "hybrid.attention",
    "hybrid.sdpa_plan",
    "peers.flashinfer_runner",
    "smem_unpack.attention",
    "torch_reference.attention",
    "triton_native.attention",
)
X4 = quantize(torch.ones(1, 1, 16, 16))
Q = torch.zeros(1, 1, 1, 16).bfloat16()
PROBLEM = Problem(batch=1, q_heads=1, kv_heads=1, q_len=1, kv_len=16, head_dim=16, v_head_dim=16)


def plans(of: type[Plan] = Plan) -> Iterator[type[Plan]]:
    for found in of.__subclasses__():
        if found.__module__.startswith("impls.") and not found.__abstractmethods__:
            yield found
        yield from plans(found)


def refusal(call: Any, *given: Any) -> str:
    with pytest.raises(ValueError) as caught:
        call(*given)
    return str(caught.value)


def test_every_plan_refuses_what_is_none() -> None:
    for name in MODULES:
        importlib.import_module(f"impls.{name}")
    found = set(plans())
    assert len(found) >= len(MODULES)
    for kind in found:
        plan: Any = object.__new__(kind)  # nothing is compiled: the operands are looked at first
        plan.problem = PROBLEM
        for given in (None, torch.zeros(3), Q):
            what = type(given).__name__
            for name, pair in (("k4", (given, X4)), ("v4", (X4, given))):
                assert refusal(plan.pack, *pair) == f"{name} must be an NVFP4Tensor, as `quantize` makes one, not {what}."
            assert refusal(plan.bind, Q, given) == f"the cache must be what plan.pack(k4, v4) returns, not {what}."
