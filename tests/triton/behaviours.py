"""What no single comparison with the reference shows. Each function takes a device and raises AssertionError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from impls.contract import DTYPES, Inputs, Output, Paged
from impls.nvfp4 import BLOCK, E2M1_VALUES, NVFP4Tensor
from tests.triton.cases import Case, bind, compare, make_inputs, on_cpu

ONE_HEAD = {"batch": 1, "q_heads": 1, "kv_heads": 1, "q_len": 1, "kv_len": 17, "head_dim": BLOCK, "v_head_dim": BLOCK}
PAGES = {"batch": 5, "q_heads": 2, "kv_heads": 1, "kv_len": 150, "layout": Paged(16)}
RAGGED_PAGES = Case("ragged-pages", PAGES, lens=(0, 150, 37, 64, 149), schedule={"splits": 2})

CODES = torch.arange(0, 16, 2, dtype=torch.uint8) | torch.arange(1, 16, 2, dtype=torch.uint8) << 4
SCALES = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
VALUES = SCALES.double()[:, None] * torch.tensor(E2M1_VALUES, dtype=torch.float64)
"""[256, 16]."""


def every_scale_and_code_of_k_decodes_exactly(device: torch.device) -> None:
    """All 256 scale bytes x 16 codes: query i sees key i alone and is a single 1, so lse is the value. NaN stays NaN."""
    fields = {"batch": BLOCK, "q_len": 256, "kv_len": 256, "head_dim": BLOCK, "v_head_dim": BLOCK, "window": 1, "scale": 1.0}
    for dtype in DTYPES:
        case = Case("k-table", {**ONE_HEAD, **fields, "dtype": dtype})
        inputs = make_inputs(case, device)
        codes = CODES.expand(BLOCK, 1, 256, 8)
        scales = SCALES.view(1, 1, 256, 1).expand(BLOCK, -1, -1, -1)
        k4 = NVFP4Tensor(codes, scales, torch.ones(())).to(device)
        queries = torch.eye(BLOCK, dtype=getattr(torch, dtype), device=device)[:, None, None]
        runner = bind(case, replace(inputs, q=queries.expand(-1, 1, 256, -1), k4=k4), device)
        runner()
        lse = runner.output.lse.cpu().double()[:, 0]  # [code, scale]
        torch.testing.assert_close(lse, VALUES.T, rtol=2.0**-21, atol=2.0**-20, equal_nan=True)


def every_scale_and_code_of_v_decodes_exactly(device: torch.device) -> None:
    """All 256 scale bytes x 16 codes: one key a sequence, so out is its value, whose 6 bits fit. NaN stays NaN."""
    for dtype in DTYPES:
        case = Case("v-table", {**ONE_HEAD, "batch": 8, "kv_len": 1, "v_head_dim": 32 * BLOCK, "dtype": dtype})
        inputs = make_inputs(case, device)
        v4 = NVFP4Tensor(CODES.repeat(32).expand(8, 1, 1, -1), SCALES.view(8, 1, 1, 32), torch.ones(())).to(device)
        runner = bind(case, replace(inputs, v4=v4), device)
        runner()
        out = runner.output.out.cpu().double().reshape(256, BLOCK)
        assert torch.equal(out.isnan(), VALUES.isnan())
        assert torch.equal(out[~out.isnan()], VALUES[~VALUES.isnan()])


def a_runner_reads_contents_when_it_runs(device: torch.device) -> None:
    """Queries, lengths, pages and the cache all change under a bound runner (on a GPU: under a captured graph)."""
    inputs = make_inputs(RAGGED_PAGES, device)
    runner = bind(RAGGED_PAGES, inputs, device)
    run = captured(runner) if device.type == "cuda" else runner
    run()
    _check(RAGGED_PAGES, inputs, runner.output)
    for seed, lens in ((1, (150, 0, 100, 17, 65)), (2, (0, 1, 2, 3, 0))):
        changed = replace(RAGGED_PAGES, lens=lens)
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


def offsets_of_pages_take_64_bits(device: torch.device) -> None:
    _far(Case("far-pages", {**ONE_HEAD, "layout": Paged(16)}, lens=(17,)), axis=0, stride=2**30, device=device)


def offsets_of_tokens_take_64_bits(device: torch.device) -> None:
    _far(Case("far-tokens", ONE_HEAD), axis=2, stride=2**27, device=device)


def offsets_of_lines_of_v_take_64_bits(device: torch.device) -> None:
    _far(Case("far-lines", {**ONE_HEAD, "v_block_axis": -2}), axis=2, stride=9 * 2**24, device=device)


BEHAVIOURS: dict[str, Callable[[torch.device], None]] = {
    function.__name__: function
    for function in (
        every_scale_and_code_of_k_decodes_exactly,
        every_scale_and_code_of_v_decodes_exactly,
        a_runner_reads_contents_when_it_runs,
        lengths_are_clamped_to_the_cache,
        offsets_of_pages_take_64_bits,
        offsets_of_tokens_take_64_bits,
        offsets_of_lines_of_v_take_64_bits,
    )
}


def _far(case: Case, axis: int, stride: int, device: torch.device) -> None:
    """Spread the cache along `axis` by `stride` bytes, so that its end lies beyond 2^31, and compare as ever.

    Four tensors share one buffer, which is hardly touched. Page 2 is in use: 2 * 2^30 is the first offset beyond int32.
    """
    inputs = make_inputs(case, torch.device("cpu"))
    if isinstance(case.problem.layout, Paged):
        assert inputs.block_table is not None
        assert int(inputs.block_table.max()) > 1
    buffer = torch.empty(stride * inputs.k4.codes.shape[axis], dtype=torch.uint8, device=device)

    def spread(x: torch.Tensor, at: int) -> torch.Tensor:
        strides = [stride if number == axis else max(x.stride(number), 1) for number in range(x.ndim)]
        strides[-1] = 1
        view = buffer.as_strided(x.shape, strides, at)
        view.copy_(x)
        return view

    def spread_cache(t: NVFP4Tensor, at: int) -> NVFP4Tensor:
        scales = spread(t.scales.view(torch.uint8), at + 2**12).view(torch.float8_e4m3fn)
        return NVFP4Tensor(spread(t.codes, at), scales, t.global_scale.to(device), t.block_axis, t.length)

    others = [x if x is None else x.to(device) for x in (inputs.kv_lens, inputs.block_table)]
    far = Inputs(inputs.q.to(device), spread_cache(inputs.k4, 0), spread_cache(inputs.v4, 2**13), *others)
    runner = bind(case, far, device)
    runner()
    _check(case, inputs, runner.output)


def captured(runner: Callable[[], None]) -> Callable[[], None]:
    """Replay of a CUDA graph that was captured around one call."""
    runner()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        runner()
    return graph.replay


def overwrite(old: Inputs, new: Inputs) -> None:
    """Put the contents of `new` into the tensors of `old`; the new pool of pages may be smaller."""
    old.q.copy_(new.q)
    for a, b in ((old.kv_lens, new.kv_lens), (old.block_table, new.block_table)):
        assert a is not None
        a.copy_(b)
    for cache, changed in ((old.k4, new.k4), (old.v4, new.v4)):
        pages = min(len(cache.codes), len(changed.codes))
        cache.codes[:pages].copy_(changed.codes[:pages])
        cache.scales.view(torch.uint8)[:pages].copy_(changed.scales.view(torch.uint8)[:pages])
        cache.global_scale.copy_(changed.global_scale)


def _check(case: Case, inputs: Inputs, output: Output) -> None:
    found = compare(case.problem, on_cpu(inputs), output, max(case.problem.kv_len, 1))
    assert found["bad_empty_rows"] == 0, found
    assert found["out_over_bound"] <= 1, found
    assert found["lse_over_bound"] <= 1, found
