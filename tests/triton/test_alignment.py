"""The alignment that kernels are promised: never more than the tensors have."""

from __future__ import annotations

import torch

from impls.contract import Inputs, Paged, Problem
from impls.nvfp4 import NVFP4Tensor, quantize
from impls.triton.arguments import Alignment


def tensors(head_dim: int, *, at: int = 0, gap: int = 0) -> tuple[Problem, Inputs, torch.Tensor]:
    """K codes start `at` bytes into their storage, with a gap after each token."""
    problem = Problem(2, 2, 2, 3, 32, head_dim, head_dim)
    cache = quantize(torch.randn(2, 2, 32, head_dim))
    width = head_dim // 2
    room = torch.zeros(at + 2 * 2 * 32 * (width + gap), dtype=torch.uint8)
    codes = room[at:].view(2, 2, 32, width + gap)[..., :width]
    codes.copy_(cache.codes)
    k4 = NVFP4Tensor(codes, cache.scales, cache.global_scale)
    q = torch.zeros(2, 2, 3, head_dim, dtype=torch.bfloat16)
    return problem, Inputs(q, k4, cache), q.clone()


def test_packed_tensors_have_what_is_expected():
    for head_dim in (16, 48, 64, 128, 256, 512):
        problem, inputs, out = tensors(head_dim)
        expected = Alignment.expected(problem)
        assert expected.and_also(Alignment.of(inputs, out)) == expected


def test_expected_is_what_the_lines_of_a_head_dim_allow():
    _, inputs, out = tensors(48)
    assert Alignment.of(inputs, out).k_codes == 8  # lines of 24 bytes
    problem, _, _ = tensors(128)
    assert Alignment.expected(problem) == Alignment(q=16, k_codes=16, k_scales=8, v_codes=16, v_scales=8, out=16)


def test_blocks_along_tokens_are_as_aligned_as_a_page():
    problem = Problem(1, 1, 1, 1, 4096, 128, 128, v_block_axis=-2, layout=Paged(48), ragged=True)
    assert (Alignment.expected(problem).v_codes, Alignment.expected(problem).v_scales) == (8, 1)


def test_an_odd_address_is_seen():
    problem, inputs, out = tensors(128, at=1)
    assert Alignment.of(inputs, out).k_codes == 1
    assert Alignment.expected(problem).and_also(Alignment.of(inputs, out)).k_codes == 1


def test_an_odd_stride_is_seen():
    _, inputs, out = tensors(128, gap=4)
    assert Alignment.of(inputs, out).k_codes == 4


def test_the_stride_of_an_axis_of_one_entry_means_nothing():
    _, inputs, out = tensors(128)
    one = inputs.q[:1, :1, :1].as_strided((1, 1, 1, 128), (3, 5, 7, 1))
    assert Alignment.of(Inputs(one, inputs.k4, inputs.v4), out).q == 16
