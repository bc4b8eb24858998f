"""Budgets of the operation's host side: quantising on the CPU, and one call of a runner."""

from __future__ import annotations

import pytest
import torch

from impls.contract import Problem
from impls.host import arch_of
from impls.nvfp4 import quantize
from impls.registry import implementation


@pytest.fixture(autouse=True)
def one_thread():
    """The ratio of two things that spread over cores differently would depend on the number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("block_axis", [-1, -2], ids=["head dim", "tokens"])
def test_quantizing_on_the_cpu(within, block_axis):
    """In copies of the same tensor: 100 to 150 when this was written, mostly the passes that round to E2M1."""
    values = torch.randn(1, 8, 2048, 128, generator=torch.Generator().manual_seed(0))
    within(500, lambda: quantize(values, block_axis=block_axis), values.clone)


def test_call_of_a_runner(within):
    """A problem so small that it is all overhead, in calls of torch's smallest operation: about 200 when this was written."""
    problem = Problem(batch=1, q_heads=1, kv_heads=1, q_len=1, kv_len=16, head_dim=16, v_head_dim=16)
    plan = implementation("torch-reference-bf16").plan(problem, arch_of("cpu"))
    k4, v4 = (quantize(torch.ones(1, 1, 16, 16)) for _ in range(2))
    runner = plan.bind(torch.ones(1, 1, 1, 16, dtype=torch.bfloat16), plan.pack(k4, v4))
    one = torch.ones(1)

    def calls():
        for _ in range(50):
            runner()

    def additions():
        for _ in range(50):
            torch.add(one, one)

    within(600, calls, additions)
