"""The roundings that it declares, as the reference executes them."""

from __future__ import annotations

import torch

from impls.contract import Inputs, Problem, Rounding
from impls.nvfp4 import NVFP4Tensor, dequantize
from impls.reference import reference_attention, round_operand
from impls.smem_unpack import SmemUnpack


def test_a_row_is_rounded_relative_to_a_power_of_two_so_that_nothing_saturates_or_is_lost() -> None:
    q = torch.tensor([[1.0, 1.0625, 1.1875, 0.0], [1e30, -1.0625e30, 1.9e30, 3e24], [0.0, 0.0, 0.0, 0.0]])
    q = torch.cat([q, q[:1] * 448, q[:1] * 2.0**-130]).double()  # 448 * 1.1875 is beyond 448
    got = round_operand(q, Rounding("float8_e4m3_by_row"))
    assert got[0].tolist() == [1.0, 1.0, 1.25, 0.0], "ties to even, 3 bits behind the point"
    assert ((got[1] - q[1]).abs()[:3] <= 2.0**-4 * q[1].abs()[:3]).all() and got[1, 2] > 1.7e30
    assert got[2].tolist() == [0.0] * 4
    assert got[3].tolist() == [448.0, 480.0, 512.0, 0.0], "448, 476 and 532 by their own exponents"
    assert torch.equal(got[4][:3] / 2.0**-130, torch.tensor([1.0, 1.0, 1.25])), "from 2^-126 on there is room below"


def test_k_and_v_are_rounded_relative_to_8_times_the_global_scale() -> None:
    """One key a query: out is V's value, lse K's. e2m1 * scale / 8 loses bits, is subnormal, or is the largest there is."""
    p = Problem(1, 1, 1, 1, 1, 16, 16, scale=1.0)
    codes = torch.tensor([[[[7, 3, 0, 0, 0, 0, 0, 0]]]], dtype=torch.uint8)  # 6 and 1.5 at dims 0 and 2
    for scale, want in ((448.0, (2560.0, 640.0)), (1.125, (7.0, 1.75)), (2.0**-9, (2.0**-6, 0.0))):
        t = NVFP4Tensor(codes, torch.full((1, 1, 1, 1), scale).to(torch.float8_e4m3fn), torch.tensor(0.3))
        q = torch.tensor([1.0] + 15 * [0.0], dtype=torch.bfloat16).view(1, 1, 1, 16)
        found = reference_attention(p, Inputs(q, t, t), rounds=SmemUnpack().rounds(p))
        unit = float(t.global_scale)
        wanted = torch.tensor([want[0], 0.0, want[1]], dtype=torch.float64) * unit
        torch.testing.assert_close(found.out[0, 0, 0, :3], wanted, rtol=1e-14, atol=0)
        torch.testing.assert_close(found.lse[0, 0, 0], wanted[0], rtol=1e-14, atol=0)
        assert scale == 2.0**-9 or not torch.equal(dequantize(t, torch.float64)[0, 0, 0, :3], wanted)
