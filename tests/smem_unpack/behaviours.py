"""What no single comparison with the reference shows. Each function takes a device and raises AssertionError.

The bound of a comparison is as wide as rounding the numerators makes it, and would hide a fault in how Q, K or V are rounded.
Here one key is seen, so that its numerator is exact, and results are those of one operand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from impls.contract import DTYPES, Inputs, Output, Rounding
from impls.nvfp4 import NVFP4Tensor
from impls.reference import TENSOR_UNIT, round_operand
from tests.a4q.behaviours import LEGAL, ONE_HEAD, PAGES
from tests.a4q.cases import assert_holds
from tests.smem_unpack.cases import IMPL, bind
from tests.triton.behaviours import CODES, SCALES, VALUES, captured, overwrite
from tests.triton.cases import Case, compare, make_inputs

ROUNDED = round_operand(VALUES / TENSOR_UNIT, Rounding("float8_e4m3")) * TENSOR_UNIT
"""[256 scale bytes, 16 codes], with a global scale of 1."""
ONE = 0x22, 0x38
"""Two codes, and a scale, that are 1."""


def every_scale_and_code_of_k_is_rounded_as_declared(device: torch.device) -> None:
    """Query i sees key i alone, whose blocks are all alike, and is a single 1 in one of them: lse is the value."""
    for dtype in DTYPES:
        fields = {"batch": 16, "q_len": LEGAL, "kv_len": LEGAL, "window": 1, "scale": 1.0, "dtype": dtype}
        case = Case("k-table", {**ONE_HEAD, **fields})
        codes = CODES.repeat(4).expand(16, 1, LEGAL, -1)
        scales = SCALES[:LEGAL].view(1, 1, LEGAL, 1).expand(16, -1, -1, 4)
        k4 = NVFP4Tensor(codes, scales.contiguous(), torch.ones(())).to(device)
        for block in range(4):
            queries = torch.zeros(16, 1, LEGAL, 64, dtype=getattr(torch, dtype), device=device)
            for code in range(16):
                queries[code, :, :, 16 * block + code] = 1.0
            runner = bind(case, replace(make_inputs(case, device), q=queries, k4=k4), device)
            runner()
            lse = runner.output.lse.cpu().double()[:, 0]  # [code, scale]
            torch.testing.assert_close(lse, ROUNDED[:LEGAL].T, rtol=2.0**-21, atol=2.0**-19)


def every_scale_and_code_of_v_is_rounded_as_declared(device: torch.device) -> None:
    """One key a sequence, so out is its value, whose 4 bits fit."""
    for dtype in DTYPES:
        case = Case("v-table", {**ONE_HEAD, "batch": 16, "v_head_dim": 256, "dtype": dtype})
        v4 = NVFP4Tensor(CODES.repeat(16).expand(16, 1, 1, -1), SCALES.view(16, 1, 1, 16), torch.ones(())).to(device)
        runner = bind(case, replace(make_inputs(case, device), v4=v4), device)
        runner()
        out = runner.output.out.cpu().double().reshape(256, 16)
        assert torch.equal(out[:LEGAL], ROUNDED[:LEGAL])


def q_is_rounded_as_declared(device: torch.device) -> None:
    """Key i is a single 1 at dim i, and alone in its sequence, so lse is element i of the rounded query.

    Rows of many magnitudes, some of them at the edge of a power of two, with ties and zeros.
    """
    generator = torch.Generator().manual_seed(0)
    rows, dim = 256, 64
    codes = torch.zeros(dim, 1, 1, dim // 2, dtype=torch.uint8)
    for i in range(dim):
        codes[i, 0, 0, i // 2] = ONE[0] & (0xF0 if i % 2 else 0x0F)
    scales = torch.full((dim, 1, 1, dim // 16), ONE[1], dtype=torch.uint8).view(torch.float8_e4m3fn)
    k4 = NVFP4Tensor(codes, scales, torch.ones(())).to(device)
    for dtype in DTYPES:
        case = Case("q", {**ONE_HEAD, "batch": dim, "q_len": rows, "causal": False, "scale": 1.0, "dtype": dtype})
        q = torch.randn(rows, dim, generator=generator)
        q[:100] = q[:100].mul(16).round().div(16)
        q[50:150] *= torch.tensor([1.0, 2.0**-6, 2.0**-12, 0.0]).repeat_interleave(16)
        q *= 2.0 ** torch.randint(-6, 8, (rows, 1), generator=generator)
        q[200:210] = q[200:210].clamp(-1, 1)
        q[200:210, 3] = torch.tensor([7.0, 6.96875, 3.5, 448.0, 450.0, 446.0, 0.875, 1.75, 14.0, 28.0])  # near 448 / 2^n
        q = q.to(getattr(torch, dtype))
        inputs = replace(make_inputs(case, device), k4=k4, q=q.expand(dim, 1, -1, -1).contiguous().to(device))
        runner = bind(case, inputs, device)
        runner()
        wanted = round_operand(q, Rounding("float8_e4m3_by_row"))
        torch.testing.assert_close(runner.output.lse.cpu().double()[:, 0].T, wanted, rtol=2.0**-20, atol=2.0**-19)


def a_replay_reads_contents_when_it_runs(device: torch.device) -> None:
    """Queries, lengths, pages and the cache all change under a captured graph, whose replay allocates nothing."""
    case = Case("pages", PAGES, lens=(0, 1500, 37, 640, 1499))
    inputs = make_inputs(case, device)
    runner = bind(case, inputs, device)
    before = torch.cuda.memory_allocated(device)
    runner()
    assert torch.cuda.memory_allocated(device) == before
    run = captured(runner)
    for seed, lens in ((0, case.lens), (1, (1500, 0, 100, 17, 65)), (2, (0, 1, 2, 3, 0))):
        changed = replace(case, lens=lens)
        overwrite(inputs, make_inputs(changed, device, seed))
        run()
        _check(changed, inputs, runner.output)


def lengths_are_clamped_to_the_cache(device: torch.device) -> None:
    """A length that a scheduler got wrong must not lead outside the cache: it counts as the nearest possible one."""
    case = Case("clamp", {"batch": 2, "kv_len": 90}, lens=(90, 0))
    inputs = make_inputs(case, device)
    runner = bind(case, inputs, device)
    assert inputs.kv_lens is not None
    inputs.kv_lens.copy_(torch.tensor([2**30, -7]))
    runner()
    inputs.kv_lens.copy_(torch.tensor([90, 0]))
    _check(case, inputs, runner.output)


def what_a_window_hides_is_not_read(device: torch.device) -> None:
    """NaN before the window's first key, in the tile that it begins in."""
    for axis in (-1, -2):
        case = Case("hidden", {**ONE_HEAD, "kv_len": 200, "window": 35, "v_block_axis": axis})
        inputs = make_inputs(case, device)
        found = bind(case, inputs, device)
        found()
        wanted = found.output.out.clone()
        assert bool(wanted.isfinite().all())
        k_scales, v_scales = (t.scales.view(torch.uint8) for t in (inputs.k4, inputs.v4))
        k_scales[:, :, :165] = 0x7F
        (v_scales[:, :, :165] if axis == -1 else v_scales[..., : 165 // 16]).fill_(0x7F)
        found()
        assert torch.equal(found.output.out, wanted)


BEHAVIOURS: dict[str, Callable[[torch.device], None]] = {
    function.__name__: function
    for function in (
        every_scale_and_code_of_k_is_rounded_as_declared,
        every_scale_and_code_of_v_is_rounded_as_declared,
        q_is_rounded_as_declared,
        a_replay_reads_contents_when_it_runs,
        lengths_are_clamped_to_the_cache,
        what_a_window_hides_is_not_read,
    )
}


def _check(case: Case, inputs: Inputs, output: Output) -> None:
    assert_holds(compare(case.problem, inputs, output, max(case.problem.kv_len, 1), IMPL.rounds(case.problem)))
