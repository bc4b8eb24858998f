"""What the kernels compile to, for GPUs that are not here: registers, local memory, shared memory as the planner counts it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from impls.arch import Arch, find
from impls.contract import Cache, Paged, Problem
from impls.nvfp4 import NVFP4Tensor
from impls.registry import implementation
from impls.smem_unpack.attention import SmemUnpackPlan
from impls.smem_unpack.planner import WARPS, blocks_per_sm, why_not
from tests.cuda.needs import needs_nvrtc

DECODE = Problem(1, 32, 8, 1, 131072, 128, 128)
ARCHES = ("sm_90a", "sm_120a")
OPTIONS: list[dict[str, Any]] = [
    {},
    {"window": 4096},
    {"layout": Paged(64, "NHD"), "ragged": True},
    {"layout": Paged(16), "ragged": True, "window": 4096},
]


def check(problem: Problem, arch: Arch) -> None:
    plan = SmemUnpackPlan(problem, arch)
    attend, *combine = plan.kernels()
    for kernel in (attend, *combine):
        assert kernel.facts.local_bytes == 0, (arch, problem, kernel.entry, kernel.facts)
        assert f".target {arch.name}" in kernel.ptx
    assert "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32" in attend.ptx
    assert attend.facts.shared_bytes == 0, "all of it is what the planner counts"
    assert plan.schedule.shared_bytes <= arch.shared_per_block
    assert attend.facts.registers * 32 * WARPS * blocks_per_sm(problem, plan.schedule, arch) <= arch.registers_per_sm


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHES)
def test_nothing_spills_and_blocks_fit(arch: str) -> None:
    check(DECODE, find(arch))


@needs_nvrtc
def test_the_widest_head_does_not_spill_either() -> None:
    check(replace(DECODE, q_len=512, head_dim=512, v_head_dim=512, layout=Paged(16), ragged=True, window=4096), find("sm_90a"))


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHES)
def test_nothing_spills_whatever_the_options(arch: str) -> None:
    """Every option and axis with some of the head dims and lengths: all with all would compile for a quarter of an hour."""
    for number, (dim, q_len) in enumerate(itertools.product((64, 128, 192, 256, 512), (1, 8, 512))):
        axis, options = (-1, -2)[number // 2 % 2], OPTIONS[number % len(OPTIONS)]
        problem = replace(DECODE, head_dim=dim, v_head_dim=dim, q_len=q_len, v_block_axis=axis, **options)
        if why_not(problem, find(arch)) is None:
            check(problem, find(arch))


@needs_nvrtc
def test_a_call_is_one_kernel_or_two_and_its_arguments_are_the_kernels() -> None:
    """`Kernel.launch` compares sizes; here are the places of what a kernel would misread without noticing."""
    p = replace(DECODE, kv_len=4096)
    plan = implementation("smem-unpack").plan(p, find("sm_90a"))
    codes = torch.empty(1, 8, 4096, 64, dtype=torch.uint8, device="meta")
    scales = torch.empty(1, 8, 4096, 8, dtype=torch.float8_e4m3fn, device="meta")
    k4, v4 = (NVFP4Tensor(codes.clone(), scales.clone(), torch.empty((), device="meta")) for _ in range(2))
    q = torch.empty(1, 32, 1, 128, dtype=torch.bfloat16, device="meta")
    runner = plan.bind(q, Cache(k4, v4))
    attend, combine = runner.launches
    assert attend.args[0] is q and attend.args[1] is k4.codes and attend.args[4] is v4.codes
    assert attend.args[3] is k4.global_scale and attend.args[6] is v4.global_scale
    assert attend.args[9] is attend.args[10] is None  # kv_lens, block_table
    assert combine.args[0] is attend.args[7] and combine.args[1] is attend.args[8]
    assert combine.args[2] is runner.output.out and combine.args[3] is runner.output.lse
    assert combine.overlaps and not attend.overlaps
    assert attend.shared_bytes == (16 + 128 + 128 + 16) * 160 + 9 * 16 * 4
