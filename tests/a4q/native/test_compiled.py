"""What the native kernels become for GPUs that are not here: the static report's facts."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.inspection import Wanted, rows_of
from impls.a4q.native.attention import NativePlan
from impls.arch import find
from impls.contract import Paged, Problem
from impls.cuda.compiler import CompileError
from impls.occupancy import resident_warps
from impls.registry import implementation
from tests.a4q.issue_slots import instructions
from tests.cuda.needs import needs_nvrtc

PRODUCT = "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"
ARCHES = ("sm_120a", "sm_121a")
DIMS = (64, 128, 192, 256, 512)
KINDS = ("decode", "extend", "prefill")
FEW = [("sm_120a", 128, "decode"), ("sm_121a", 256, "prefill"), ("sm_120a", 512, "extend")]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"causal": False, "dtype": "float16"},
    {"window": 4096},
    {"layout": Paged(64, "NHD"), "ragged": True},
    {"layout": Paged(16), "ragged": True, "window": 4096},
]


def check_report(arch: str, dim: int, kind: str) -> None:
    attend, *_ = rows_of(Wanted("a4q", "a4q", arch, dim, kind))
    assert attend.name == "a4q_native"
    assert attend.spill_bytes == attend.local_bytes == 0, attend
    assert attend.shared_bytes <= (50_176 if dim <= 128 else 101_376)
    assert attend.warps_per_sm >= 8, attend
    assert attend.threads == (128 if dim <= 128 else 256)
    assert attend.opcodes[PRODUCT] > 0, attend.opcodes
    assert attend.opcodes["HMMA.16816.F32"] > 0


@needs_nvrtc
@pytest.mark.parametrize(("arch", "dim", "kind"), FEW)
def test_the_report_shows_nvfp4_products_and_no_spills(arch: str, dim: int, kind: str) -> None:
    check_report(arch, dim, kind)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "dim", "kind"),
    [*itertools.product(("sm_120a",), DIMS, KINDS), *(("sm_121a", dim, "decode") for dim in (128, 512))],
)
def test_the_report_shows_nvfp4_products_and_no_spills_at_every_head_dim(arch: str, dim: int, kind: str) -> None:
    check_report(arch, dim, kind)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 32])
@pytest.mark.parametrize(
    ("dim", "v_dim"), [(64, 64), (128, 128), (192, 192), (192, 128), (256, 64), (256, 256), (128, 512), (512, 128), (512, 512)]
)
def test_nothing_spills_whatever_the_options(dim: int, v_dim: int, rows: int) -> None:
    """Every option with some of the head dims: all of them with all would compile for a quarter of an hour."""
    shape = Problem(1, 32, 8, rows, 131072, dim, v_dim)
    for axis, options in ((-1, OPTIONS[(dim // 64 + rows) % 4]), (-2, OPTIONS[(v_dim // 64 + rows + 1) % 4])):
        plan = NativePlan(replace(shape, v_block_axis=axis, **options), find("sm_120a"))
        attend, s = plan.kernels()[0], plan.schedule
        told = (plan.problem, s.tile, attend.facts)
        assert attend.facts.local_bytes == 0, told
        assert not any(re.match(r"(?:@\S+ )?(?:LDL|STL)\b", one) for one in instructions(attend.cubin)[0]), told
        shared = attend.facts.shared_bytes + s.shared_bytes
        assert resident_warps(plan.arch, threads=s.threads, registers=attend.facts.registers, shared_bytes=shared) >= 8, told


@needs_nvrtc
def test_the_plan_says_which_kernel_it_has() -> None:
    problem = Problem(1, 4, 1, 1, 512, 64, 64)
    kernels = {
        (name, arch): implementation(name).plan(problem, find(arch)).describe()["kernel"]
        for name, arch in (("a4q", "sm_120a"), ("a4q-q16", "sm_120a"), ("a4q", "sm_80"))
    }
    assert kernels == {("a4q", "sm_120a"): "native", ("a4q-q16", "sm_120a"): "decode", ("a4q", "sm_80"): "decode"}


@needs_nvrtc
def test_a_planner_that_counts_other_shared_memory_than_the_kernel_is_refused() -> None:
    plan = NativePlan(Problem(1, 4, 1, 1, 512, 64, 64), find("sm_120a"))
    plan.schedule = replace(plan.schedule, shared_bytes=plan.schedule.shared_bytes + 16)
    with pytest.raises(CompileError, match="static assertion"):
        plan.kernels()
