"""What no single comparison with the reference shows. Each function takes a device and raises AssertionError."""

from __future__ import annotations

from collections.abc import Callable

import torch

from impls.contract import Inputs, Runner
from impls.dual_chunk import views
from impls.host import arch_of
from impls.nvfp4 import quantize
from tests.dual_chunk.cases import CASES, Case, bind, held_against, with_lens
from tests.triton.behaviours import captured, overwrite
from tests.triton.cases import make_inputs


def a_runner_follows_lengths_and_pages_that_change(device: torch.device) -> None:
    """Queries, lengths, pages and the cache change under a bound runner (on a GPU: under a captured graph)."""
    case = CASES["pages"]
    inputs = make_inputs(case.given, device)
    runner = bind(case, inputs, device)
    call = captured(runner) if device.type == "cuda" else runner
    call()
    _check(case, inputs, runner)
    for seed, lens in ((1, (65, 36, 35, 34, 0)), (2, (0, 0, 1, 2, 64))):
        changed = with_lens(case, lens)
        overwrite(inputs, make_inputs(changed.given, device, seed))
        call()
        _check(changed, inputs, runner)


def lengths_are_clamped_to_the_cache(device: torch.device) -> None:
    """A length that a scheduler got wrong must not lead outside the cache: it counts as the nearest possible one."""
    case = CASES["ragged-causal"]
    inputs = make_inputs(with_lens(case, (100, 0, 100, 7, 0)).given, device)
    runner = bind(case, inputs, device)
    assert inputs.kv_lens is not None
    right = inputs.kv_lens.clone()
    inputs.kv_lens.copy_(torch.tensor([2**31 - 1, -(2**31), 101, 7, -1]))
    runner()
    inputs.kv_lens.copy_(right)
    _check(case, inputs, runner)


def a_second_call_gives_the_same_bits(device: torch.device) -> None:
    """What is merged into starts anew at every call."""
    for name in ("tiles-causal", "ragged-tiles", "torch-inside-tiles"):
        case = CASES[name]
        runner = bind(case, make_inputs(case.given, device), device)
        runner()
        first = runner.output.out.clone(), runner.output.lse.clone()
        runner()
        assert torch.equal(first[0], runner.output.out), name
        assert torch.equal(first[1], runner.output.lse), name


def slices_of_the_cache_are_views(device: torch.device) -> None:
    """A copy would cost as much as the cache, and be made of what the cache held when it was bound."""
    data = torch.randn(2, 3, 100, 64, device=device)
    for axis in (-1, -2):
        whole = quantize(data, block_axis=axis)
        for start, stop in ((0, 100), (16, 48), (64, 100), (96, 96)):
            cut = views.tokens(whole, start, stop)
            assert cut.shape == (2, 3, stop - start, 64)
            assert cut.codes.untyped_storage().data_ptr() == whole.codes.untyped_storage().data_ptr()
            assert cut.scales.untyped_storage().data_ptr() == whole.scales.untyped_storage().data_ptr()


def a_call_allocates_nothing(device: torch.device) -> None:
    if device.type != "cuda":
        return  # an interpreter allocates
    case = CASES["ragged-tiles"]
    runner = bind(case, make_inputs(case.given, device), device)
    runner()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats(device)["allocation.all.allocated"]
    runner()
    torch.cuda.synchronize()
    assert torch.cuda.memory_stats(device)["allocation.all.allocated"] == before


def the_workspace_is_what_the_plan_says(device: torch.device) -> None:
    """In bytes that torch's allocator hands out: to 512 bytes a tensor."""
    if device.type != "cuda":
        return
    for name in ("tiles-causal", "ragged-tiles", "splits-inside"):
        case = CASES[name]
        inputs = make_inputs(case.given, device)
        problem = case.given.problem
        plan = case.chosen.plan(problem, arch_of(device))
        shape = (problem.batch, problem.q_heads, problem.q_len)
        out = torch.empty(*shape, problem.v_head_dim, dtype=inputs.q.dtype, device=device)
        lse = torch.empty(shape, device=device)
        before = torch.cuda.memory_allocated(device)
        runner = plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4), out=out, lse=lse, kv_lens=inputs.kv_lens)
        taken = torch.cuda.memory_allocated(device) - before
        assert abs(taken - plan.workspace_bytes) <= 512 * 12, (name, taken, plan.workspace_bytes)
        runner()
        del runner  # before the next one is counted


BEHAVIOURS: dict[str, Callable[[torch.device], None]] = {
    function.__name__: function
    for function in (
        a_runner_follows_lengths_and_pages_that_change,
        lengths_are_clamped_to_the_cache,
        a_second_call_gives_the_same_bits,
        slices_of_the_cache_are_views,
        a_call_allocates_nothing,
        the_workspace_is_what_the_plan_says,
    )
}


def _check(case: Case, inputs: Inputs, runner: Runner) -> None:
    found = held_against(case, inputs, runner)
    assert found["bad_empty_rows"] == 0, found
    assert found["out_over_bound"] <= 1, found
    assert found["lse_over_bound"] <= 1, found
