"""The CUDA kernel of `w4a16-cuda`, as far as a machine without a GPU can tell: what it became, and what it is launched with."""

from __future__ import annotations

import pytest
import torch

from impls.arch import find
from impls.contract import Scalar
from impls.cuda import nvrtc
from impls.nvfp4 import quantize
from impls.weights.contract import Projection
from impls.weights.few_rows import FewRowsPlan
from impls.weights.registry import projection
from tests.cuda.needs import needs_nvrtc

ARCHES = ("sm_80", "sm_90a", "sm_120a")
SM_90A = find("sm_90a")


def fits(arch: str, *shape: int, dtype: str = "bfloat16", x_alignment: int = 16) -> None:
    """The kernel spills nothing, and as many blocks reside as the planner counts on."""
    plan = FewRowsPlan(Projection(*shape, dtype), find(arch))
    facts = plan.compiled(x_alignment).facts
    assert facts.local_bytes == 0
    assert facts.registers * 32 * plan.cut.warps * plan.cut.blocks_per_sm <= 65536


@needs_nvrtc
def test_whole_tiles_are_fast_and_spill_nothing():
    fits("sm_90a", 8, 14336, 4096)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("arch", ARCHES)
def test_every_shape_fits_everywhere(arch, dtype):
    for shape in ((1, 14336, 4096), (8, 4096, 14336), (3, 1024, 4100), (3, 33, 137), (3, 28672, 8192)):
        fits(arch, *shape, dtype=dtype)
        fits(arch, *shape, dtype=dtype, x_alignment=2)


@needs_nvrtc
def test_a_launch_has_all_lines_and_what_the_kernel_asks_for():
    x = torch.randn(3, 80).bfloat16()[:, :72]
    plan = projection("w4a16-cuda").plan(Projection(3, 72, 72), SM_90A)
    packed = plan.pack(quantize(torch.randn(72, 72)))
    runner = plan.bind(x, packed)
    (launch,) = runner.launches
    cut = plan.describe()
    assert launch.grid == (-(-72 // int(cut["lines"])), 1, 1)
    assert launch.block == (32 * int(cut["warps"]), 1, 1)
    assert [arg.data_ptr() for arg in launch.args if isinstance(arg, torch.Tensor)] == [
        tensor.data_ptr() for tensor in (x, *(packed.tensors[name] for name in ("codes", "scales", "global_scale")), runner.out)
    ]
    assert [int(arg.value) for arg in launch.args if isinstance(arg, Scalar)] == [80, 72, 3, 72, 72, 1]
    with pytest.raises(ValueError, match="cannot run on tensors on the CPU"):
        runner()


def test_what_it_cannot_do_it_says(monkeypatch):
    chosen = projection("w4a16-cuda")
    assert chosen.why_not(Projection(9, 64, 64), SM_90A) == "w4a16-cuda takes up to 8 rows of x, not 9."
    monkeypatch.setattr(nvrtc, "why_not", lambda arch: "there is no NVRTC of CUDA 13 here.")
    assert chosen.why_not(Projection(1, 64, 64), SM_90A) == "there is no NVRTC of CUDA 13 here."
