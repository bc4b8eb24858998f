"""What no single comparison shows. Each function takes a device and raises AssertionError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from impls.arch import CPU
from impls.contract import DTYPES, Inputs, Paged, Problem
from impls.host import arch_of
from impls.hybrid import HybridBf16, HybridFp8
from impls.nvfp4 import NVFP4Tensor
from tests.hybrid.conversions import KINDS, assert_converted, converter
from tests.triton.behaviours import CODES, SCALES
from tests.triton.cases import Case, bind, compare, make_inputs

PAGES = {"batch": 3, "q_heads": 2, "kv_heads": 1, "q_len": 1, "kv_len": 70, "layout": Paged(16)}
ALL_SCALES = Problem(1, 1, 1, 1, 256, 16, 256, v_block_axis=-2)


def every_scale_and_code_is_converted_exactly(device: torch.device) -> None:
    """All 256 scale bytes x 16 codes, in rows and in columns, in each type. NaN stays NaN, and -0 stays -0."""
    rows = NVFP4Tensor(CODES.expand(1, 1, 256, 8), SCALES.view(1, 1, 256, 1), torch.tensor(0.7)).to(device)
    # 256 tokens of 256 head dims: all scales on 16 lines of 16 blocks each, and again
    scales = SCALES.view(1, 1, 16, 16).repeat_interleave(16, 2)
    lines = NVFP4Tensor(CODES.repeat(16).expand(1, 1, 256, -1), scales, torch.tensor(3e30), block_axis=-2).to(device)
    assert lines.shape == (1, 1, 256, 256)
    for dtype in DTYPES:
        for kind in KINDS:
            if kind == "folded" and dtype == "float16":
                continue
            p = replace(ALL_SCALES, dtype=dtype)
            assert_converted(p, Inputs(torch.empty(0), rows, lines), converter(p, kind, device)(rows, lines), kind)


def heads_have_units_of_their_own(device: torch.device) -> None:
    """A head of scales 2^-9 beside one of 448: relative to one unit, the small one would be lost. Poison raises no unit."""
    scales = torch.tensor([0x01, 0x7E], dtype=torch.uint8).view(1, 2, 1, 1).repeat(1, 1, 48, 1)
    scales[:, :, 40:] = 0x7F
    t = NVFP4Tensor(CODES.expand(1, 2, 48, 8), scales.view(torch.float8_e4m3fn), torch.ones(())).to(device)
    p = Problem(1, 2, 2, 1, 48, 16, 16, ragged=True)
    packed = converter(p, "e4m3", device)(t, t)
    assert packed.extra["k_peaks"].tolist() == [[0x01, 0x7E]]
    values = packed.extra["k"].float().cpu()[0, :, :40]
    assert [float(head.abs().max()) for head in values] == [384.0, 320.0]  # 6 * 2^-9 / 2^-15; 2688 / 8 is a tie
    assert_converted(p, Inputs(torch.empty(0), t, t), packed, "e4m3")


def a_pool_has_one_unit(device: torch.device) -> None:
    """Of all its pages, whatever their signs; NaN, with either sign, is none. Read in words, and between gaps in bytes."""
    for found, peak in (
        ((0x21, 0x7F, 0xFF), 0x21),
        ((0x21, 0xFE, 0x7F), 0x7E),
        ((0x7F, 0xFF, 0x7F), 0),
        ((0x80, 0x01, 0x81), 1),
    ):
        for gap in (0, 1):
            scales = torch.tensor(found, dtype=torch.uint8).view(3, 1, 1, 1).repeat(1, 1, 16, 1 + gap)[..., :1]
            codes = CODES.expand(3, 1, 16, 8)
            t = NVFP4Tensor(codes, scales.view(torch.float8_e4m3fn), torch.ones(())).to(device)
            p = Problem(1, 1, 1, 1, 48, 16, 16, layout=Paged(16), ragged=True)
            packed = converter(p, "e4m3", device)(t, t)
            assert packed.extra["k_peaks"].tolist() == packed.extra["v_peaks"].tolist() == [[peak]]
            assert_converted(p, Inputs(torch.empty(0), t, t), packed, "e4m3")


def packing_again_reads_the_cache_anew(device: torch.device) -> None:
    """Into tensors of its own: an earlier cache stays as it is."""
    for chosen in (HybridBf16(), HybridFp8()):
        case = Case("anew", {"kv_len": 40})
        inputs = make_inputs(case, device)
        plan = chosen.plan(case.problem, CPU if device.type == "cpu" else arch_of(device))
        first = plan.pack(inputs.k4, inputs.v4)
        kept = first.extra["k"].float().clone()
        inputs.k4.codes.bitwise_xor_(0x88)
        second = plan.pack(inputs.k4, inputs.v4)
        assert torch.equal(first.extra["k"].float(), kept)
        assert torch.equal(second.extra["k"].float(), -kept)
        assert first.nbytes == sum(t.numel() * t.element_size() for t in first.extra.values())


def a_runner_reads_contents_when_it_runs(device: torch.device) -> None:
    """Queries, lengths and pages all change under a bound runner (on a GPU: under a captured graph)."""
    case = Case("ragged-pages", PAGES, lens=(70, 37, 64), schedule={"splits": 2})
    for chosen in (HybridBf16(), HybridFp8()):
        inputs = make_inputs(case, device)
        assert inputs.kv_lens is not None and inputs.block_table is not None
        runner = bind(case, inputs, device, chosen)
        replay: Callable[[], object] = runner
        runner()
        if device.type == "cuda":
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                runner()
            replay = graph.replay
        inputs.q.mul_(-1)
        inputs.kv_lens.copy_(torch.tensor([64, 0, 17], dtype=torch.int32))
        inputs.block_table[[0, 2]] = inputs.block_table[[2, 0]]
        runner.output.out.fill_(torch.nan)
        replay()
        found = compare(case.problem, inputs, runner.output, case.problem.kv_len, chosen.rounds(case.problem))
        assert found["out_over_bound"] <= 1 and found["lse_over_bound"] <= 1 and found["bad_empty_rows"] == 0, found


def offsets_take_64_bits(device: torch.device) -> None:
    """NVFP4 pages 2^30 bytes apart: the third begins beyond what 32 bits hold."""
    p = Problem(1, 1, 1, 1, 48, 16, 16, layout=Paged(16), ragged=True)
    room = torch.empty(2 * 2**30 + 4096, dtype=torch.uint8, device=device)
    codes = room.as_strided((3, 1, 16, 8), (2**30, 8 * 16, 8, 1))
    scales = room.as_strided((3, 1, 16, 1), (2**30, 16, 1, 1), 2048)
    codes.copy_(torch.arange(3 * 16 * 8, device=device).view(3, 1, 16, 8) % 251)
    scales.copy_(torch.arange(3 * 16, device=device).view(3, 1, 16, 1) + 0x30)
    t = NVFP4Tensor(codes, scales.view(torch.float8_e4m3fn), torch.ones((), device=device))
    for kind in KINDS:
        assert_converted(p, Inputs(torch.empty(0), t, t), converter(p, kind, device)(t, t), kind)


BEHAVIOURS: dict[str, Callable[[torch.device], None]] = {
    function.__name__: function
    for function in (
        every_scale_and_code_is_converted_exactly,
        heads_have_units_of_their_own,
        a_pool_has_one_unit,
        packing_again_reads_the_cache_anew,
        a_runner_reads_contents_when_it_runs,
        offsets_take_64_bits,
    )
}
