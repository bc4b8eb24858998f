"""What the kernels compile to, for GPUs that are not here: registers, no local memory, shared memory within each limit."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from impls.a4q.attention import A4QPlan
from impls.arch import find
from impls.contract import Cache, Paged, Problem
from impls.nvfp4 import NVFP4Tensor
from impls.registry import implementation
from tests.cuda.needs import needs_nvrtc

DECODE = Problem(1, 32, 8, 1, 131072, 128, 128)
REGISTERS_OF_AN_SM = 65536
OPTIONS: list[dict[str, Any]] = [
    {},
    {"window": 4096},
    {"layout": Paged(64, "NHD"), "ragged": True},
    {"layout": Paged(16), "ragged": True, "window": 4096},
]
FEW = [
    ("a4q", "sm_90a", replace(DECODE)),
    ("a4q", "sm_120a", replace(DECODE, head_dim=512, v_head_dim=512)),
    ("a4q-q16", "sm_80", replace(DECODE, layout=Paged(16), ragged=True)),
    ("a4q-q16", "sm_90a", replace(DECODE, head_dim=256, v_head_dim=256, v_block_axis=-2)),
]


def check(impl: str, arch: str, problem: Problem) -> None:
    target = find(arch)
    plan = implementation(impl).plan(problem, target)
    assert isinstance(plan, A4QPlan)
    tile = plan.schedule.tile
    decode, *combine = plan.kernels()
    for kernel in (decode, *combine):
        assert kernel.facts.local_bytes == 0, (impl, arch, problem, kernel.entry, kernel.facts)
        assert f".target {arch}" in kernel.ptx
    assert decode.facts.registers * 32 * tile.warps * tile.blocks_per_sm <= REGISTERS_OF_AN_SM
    assert decode.facts.shared_bytes + plan.schedule.shared_bytes <= target.shared_per_block


@needs_nvrtc
@pytest.mark.parametrize(("impl", "arch", "problem"), FEW, ids=lambda x: x if isinstance(x, str) else "")
def test_nothing_spills_and_blocks_fit(impl: str, arch: str, problem: Problem) -> None:
    check(impl, arch, problem)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "dim"), [("sm_80", 128), ("sm_90a", 128), ("sm_90a", 256), ("sm_90a", 512), ("sm_120a", 128), ("sm_120a", 512)]
)
def test_nothing_spills_whatever_the_options(arch: str, dim: int) -> None:
    shape = replace(DECODE, head_dim=dim, v_head_dim=dim)
    for impl, axis, options in itertools.product(("a4q", "a4q-q16"), (-1, -2), OPTIONS):
        check(impl, arch, replace(shape, v_block_axis=axis, **options))


@needs_nvrtc
def test_a_call_is_one_kernel_or_two_and_its_arguments_are_the_kernels() -> None:
    """`Kernel.launch` compares sizes; here are the places of what a kernel would misread without noticing."""
    p = replace(DECODE, kv_len=4096)
    plan = implementation("a4q").plan(p, find("sm_90a"))
    codes = torch.empty(1, 8, 4096, 64, dtype=torch.uint8, device="meta")
    scales = torch.empty(1, 8, 4096, 8, dtype=torch.float8_e4m3fn, device="meta")
    k4, v4 = (NVFP4Tensor(codes.clone(), scales.clone(), torch.empty((), device="meta")) for _ in range(2))
    q = torch.empty(1, 32, 1, 128, dtype=torch.bfloat16, device="meta")
    runner = plan.bind(q, Cache(k4, v4))
    decode, combine = runner.launches
    assert decode.args[0] is q and decode.args[1] is k4.codes and decode.args[4] is v4.codes
    assert decode.args[3] is k4.global_scale and decode.args[6] is v4.global_scale
    assert decode.args[9] is decode.args[10] is None  # kv_lens, block_table
    assert combine.args[0] is decode.args[7] and combine.args[1] is decode.args[8]
    assert combine.args[2] is runner.output.out and combine.args[3] is runner.output.lse
    assert combine.overlaps and not decode.overlaps


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_e4m3_is_converted_by_the_gpu_where_it_can(arch: str) -> None:
    (ptx, _) = (kernel.ptx for kernel in implementation("a4q").plan(DECODE, find(arch)).kernels())  # type: ignore[attr-defined]
    assert ("cvt.rn.f16x2.e4m3x2" in ptx) == (arch != "sm_80")
