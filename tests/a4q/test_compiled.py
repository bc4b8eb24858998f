"""What the kernels compile to, for GPUs that are not here: registers, no local memory, shared memory within each limit."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from impls.a4q.attention import A4QPlan, TiledPlan
from impls.a4q.planner import Tile, scattered
from impls.arch import find
from impls.contract import Cache, Paged, Plan, Problem
from impls.cuda.compiler import CompileError
from impls.nvfp4 import NVFP4Tensor
from impls.occupancy import resident_warps
from impls.registry import implementation
from tests.a4q.issue_slots import instructions
from tests.cuda.needs import needs_nvrtc

DECODE = Problem(1, 32, 8, 1, 131072, 128, 128)
EXTEND = replace(DECODE, q_len=16)
PREFILL = Problem(1, 16, 16, 32768, 32768, 128, 128)
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
    ("a4q", "sm_90a", EXTEND),
    ("a4q", "sm_90a", replace(EXTEND, head_dim=192, v_head_dim=192)),
    ("a4q", "sm_90a", replace(EXTEND, head_dim=64, v_head_dim=256)),
    ("a4q", "sm_90a", replace(PREFILL, head_dim=512, v_head_dim=512)),
    ("a4q-q16", "sm_90a", replace(PREFILL, head_dim=256, v_head_dim=256, v_block_axis=-2)),
]


def check(impl: str, arch: str, problem: Problem) -> None:
    hold(implementation(impl).plan(problem, find(arch)), (impl, arch, problem))


def hold(plan: Plan, what: object) -> None:
    assert isinstance(plan, TiledPlan)
    target, s = plan.arch, plan.schedule
    attend, *combine = plan.kernels()
    for kernel in (attend, *combine):
        told = (what, kernel.entry, kernel.facts, kernel.log)
        assert kernel.facts.local_bytes == 0, told
        assert "serialized" not in kernel.log, told  # products that wait for registers
        assert f".target {target.name}" in kernel.ptx
    shared = attend.facts.shared_bytes + s.shared_bytes
    assert shared <= target.shared_per_block
    staged = isinstance(s.tile, Tile) and s.tile.stages  # else an SM may hold fewer blocks, for want of shared memory
    held = resident_warps(target, threads=s.threads, registers=attend.facts.registers, shared_bytes=shared if staged else 0)
    assert held >= s.tile.blocks_per_sm * s.threads // 32


@needs_nvrtc
@pytest.mark.parametrize(("impl", "arch", "problem"), FEW, ids=lambda x: x if isinstance(x, str) else "")
def test_nothing_spills_and_blocks_fit(impl: str, arch: str, problem: Problem) -> None:
    check(impl, arch, problem)


@needs_nvrtc
@pytest.mark.parametrize(
    ("impl", "arch", "problem"), [FEW[0], FEW[4], *FEW[-2:]], ids=lambda x: x if isinstance(x, str) else ""
)
def test_kernels_of_partial_results_are_others_and_nothing_spills_for_that(impl: str, arch: str, problem: Problem) -> None:
    """Other stores, the same loop. That what they store is float32 is executed by `tests/dual_chunk/test_emulated.py`."""
    plan = implementation(impl).plan_partial(problem, find(arch))
    hold(plan, (impl, arch, problem))
    whole = implementation(impl).plan(problem, find(arch))
    assert isinstance(plan, TiledPlan) and isinstance(whole, TiledPlan)
    assert plan.schedule == whole.schedule
    *_, last = plan.kernels()
    *_, rounded = whole.kernels()
    assert last.cubin != rounded.cubin


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "dim"), [("sm_80", 128), ("sm_90a", 128), ("sm_90a", 256), ("sm_90a", 512), ("sm_120a", 128), ("sm_120a", 512)]
)
def test_nothing_spills_whatever_the_options(arch: str, dim: int) -> None:
    """Every option with some of the head dims: all with all would compile for minutes."""
    shape = replace(DECODE, head_dim=dim, v_head_dim=dim)
    for number, (impl, axis) in enumerate(itertools.product(("a4q", "a4q-q16"), (-1, -2))):
        check(impl, arch, replace(shape, v_block_axis=axis, **OPTIONS[(number + dim // 128) % 4]))


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("impl", ["a4q", "a4q-q16"])
@pytest.mark.parametrize(
    ("dim", "v_dim"),
    [(64, 64), (128, 128), (192, 192), (256, 256), (384, 384), (512, 512), (192, 128), (64, 256), (256, 128), (128, 512)],
)
def test_no_staged_kernel_spills_nor_what_stands_for_it(impl: str, dim: int, v_dim: int) -> None:
    """Short and long contexts, one and two tiles of rows, and caches that bulk copies cannot take."""
    shape = replace(DECODE, head_dim=dim, v_head_dim=v_dim)
    for p in (replace(shape, kv_len=8192), shape, replace(shape, q_heads=128, ragged=True)):
        check(impl, "sm_90a", p)
        plan = A4QPlan(p, find("sm_90a"), rounds_q=impl == "a4q")
        assert isinstance(plan.schedule.tile, Tile) and plan.schedule.tile.stages
        plan.schedule = scattered(p, plan.arch, plan.schedule)
        gaps = dict.fromkeys(("k_codes_token", "k_scales_token", "v_codes_line", "v_scales_line"), 0)
        assert plan._attend(plan.alignment, gaps).facts.local_bytes == 0


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "v_dim"), [(64, 64), (128, 128), (192, 192), (192, 128), (256, 64), (256, 256), (128, 512), (384, 512), (512, 512)]
)
def test_nothing_spills_or_waits_for_registers_where_rows_share_what_is_decoded(dim: int, v_dim: int) -> None:
    axes = (-1, -2) if dim == v_dim or max(dim, v_dim) <= 256 else (-1,)  # others have decode.cu
    for number, (shape, axis) in enumerate(itertools.product((EXTEND, PREFILL), axes)):
        impl, options = ("a4q", "a4q-q16")[number // len(axes)], OPTIONS[(number + (dim + v_dim) // 64) % 4]
        check(impl, "sm_90a", replace(shape, head_dim=dim, v_head_dim=v_dim, v_block_axis=axis, **options))


@needs_nvrtc
def test_decoded_tiles_are_multiplied_by_warp_groups_without_waiting_for_each_product() -> None:
    """A product that the compiler serialises waits for itself."""
    kernel = implementation("a4q").plan(PREFILL, find("sm_90a")).kernels()[0]  # type: ignore[attr-defined]
    code, _ = instructions(kernel.cubin)
    products = sum("HGMMA" in one for one in code)
    waits = sum("WARPGROUP.DEPBAR" in one for one in code)
    assert products == 4 * 8 and waits == 4  # S and P @ V, before the loop, in it and behind it


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
@pytest.mark.parametrize(
    ("cache", "staged"),
    [
        ("packed", True),
        ("sliced", True),  # heads of a longer cache
        ("odd heads", False),  # a head's scales begin at a multiple of 8 bytes
        ("gaps", False),
        ("shifted", False),
    ],
)
def test_only_caches_that_bulk_copies_can_take_are_staged(cache: str, staged: bool) -> None:
    room = {"sliced": 6000, "odd heads": 4097}.get(cache, 4096)
    line = 2 if cache == "gaps" else 1

    def empty(width: int, dtype: torch.dtype) -> torch.Tensor:
        whole = torch.empty(1 + 8 * room * line * width, dtype=dtype, device="meta")[int(cache == "shifted") :]
        strides = (8 * room * line * width, room * line * width, line * width, 1)
        return whole.as_strided((1, 8, 4096, width), strides, storage_offset=whole.storage_offset())

    p = replace(DECODE, kv_len=4096)
    k4, v4 = (
        NVFP4Tensor(empty(64, torch.uint8), empty(8, torch.float8_e4m3fn), torch.empty((), device="meta")) for _ in range(2)
    )
    plan = A4QPlan(p, find("sm_90a"), rounds_q=True)
    launch = plan.bind(torch.empty(1, 32, 1, 128, dtype=torch.bfloat16, device="meta"), Cache(k4, v4)).launches[0]
    planned = plan.schedule if staged else scattered(p, plan.arch, plan.schedule)
    assert (launch.shared_bytes, launch.block[0]) == (planned.shared_bytes, planned.threads)
    assert plan.schedule.threads != scattered(p, plan.arch, plan.schedule).threads


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_e4m3_is_converted_by_the_gpu_where_it_can(arch: str) -> None:
    (ptx, _) = (kernel.ptx for kernel in implementation("a4q").plan(DECODE, find(arch)).kernels())  # type: ignore[attr-defined]
    assert ("cvt.rn.f16x2.e4m3x2" in ptx) == (arch != "sm_80")


@needs_nvrtc
@pytest.mark.parametrize(("kernel", "problem"), [("decode", DECODE), ("many_rows", PREFILL)])
def test_a_planner_that_counts_other_shared_memory_than_the_kernel_is_refused(kernel: str, problem: Problem) -> None:
    plan = A4QPlan(problem, find("sm_90a"), rounds_q=True)
    assert plan.describe()["kernel"] == kernel
    plan.schedule = replace(plan.schedule, shared_bytes=plan.schedule.shared_bytes + 16)
    with pytest.raises(CompileError, match="static assertion"):
        plan.kernels()
