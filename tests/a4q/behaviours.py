"""What no single comparison with the reference shows. Each function takes a device and raises AssertionError."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import torch

from impls.contract import DTYPES, Dense, Inputs, Output, Paged
from impls.host import arch_of
from impls.nvfp4 import NVFP4Tensor, quantize, round_rows
from impls.registry import implementation
from tests.a4q.cases import IMPLS, assert_holds, bind, tiles
from tests.triton.behaviours import CODES, SCALES, VALUES, captured, overwrite
from tests.triton.cases import Case, compare, make_inputs

DIM = 64
LEGAL = 0x7F  # scale bytes 0x00 to 0x7E
ONE_HEAD = {"batch": 1, "q_heads": 1, "kv_heads": 1, "q_len": 1, "kv_len": 1, "head_dim": DIM, "v_head_dim": DIM}
PAGES = {"batch": 5, "q_heads": 4, "kv_heads": 1, "q_len": 1, "kv_len": 1500, "layout": Paged(16)}


def every_scale_and_code_of_v_decodes_exactly(device: torch.device) -> None:
    """All scale bytes x 16 codes: one key a sequence, so out is its value, whose 6 bits fit."""
    for dtype in DTYPES:
        case = Case("v-table", {**ONE_HEAD, "batch": 8, "v_head_dim": 512, "head_dim": 128, "dtype": dtype})
        v4 = NVFP4Tensor(CODES.repeat(32).expand(8, 1, 1, -1), SCALES.view(8, 1, 1, 32), torch.ones(())).to(device)
        for tile in tiles(implementation("a4q-q16"), case, arch_of(device)):
            runner = bind(implementation("a4q-q16"), case, replace(make_inputs(case, device), v4=v4), device, tile)
            runner()
            out = runner.output.out.cpu().double().reshape(256, 16)
            assert torch.equal(out[:LEGAL], VALUES[:LEGAL])


def every_scale_and_code_of_k_decodes_exactly(device: torch.device) -> None:
    """As for V: query i sees key i alone, whose blocks are all alike, and is a single 1 in one of them: lse is the value."""
    for dtype in DTYPES:
        fields = {"batch": 16, "q_len": LEGAL, "kv_len": LEGAL, "window": 1, "scale": 1.0, "dtype": dtype}
        case = Case("k-table", {**ONE_HEAD, **fields})
        codes = CODES.repeat(4).expand(16, 1, LEGAL, -1)
        scales = SCALES[:LEGAL].view(1, 1, LEGAL, 1).expand(16, -1, -1, 4)
        k4 = NVFP4Tensor(codes, scales.contiguous(), torch.ones(())).to(device)
        for block in range(4):
            queries = torch.zeros(16, 1, LEGAL, DIM, dtype=getattr(torch, dtype), device=device)
            for code in range(16):
                queries[code, :, :, 16 * block + code] = 1.0
            for tile in tiles(implementation("a4q-q16"), case, arch_of(device)):
                runner = bind(
                    implementation("a4q-q16"), case, replace(make_inputs(case, device), q=queries, k4=k4), device, tile
                )
                runner()
                lse = runner.output.lse.cpu().double()[:, 0]  # [code, scale]
                torch.testing.assert_close(lse, VALUES[:LEGAL].T, rtol=2.0**-21, atol=2.0**-19)


def q_is_rounded_as_quantize_rounds_it(device: torch.device) -> None:
    """Key i is a single 1 at dim i, and alone in its sequence, so lse is element i of the rounded query.

    Rows of many magnitudes, with blocks far below their row's largest, ties and zeros.
    """
    generator = torch.Generator().manual_seed(0)
    rows = 256
    for dtype in DTYPES:
        case = Case("q", {**ONE_HEAD, "batch": DIM, "q_len": rows, "causal": False, "scale": 1.0, "dtype": dtype})
        k4 = quantize(torch.eye(DIM).view(DIM, 1, 1, DIM))
        q = torch.randn(rows, DIM, generator=generator)
        q[:100] = q[:100].mul(4).round().div(4)
        q[50:150] *= torch.tensor([1.0, 2.0**-6, 2.0**-12, 0.0]).repeat_interleave(16)
        q *= 2.0 ** torch.randint(0, 8, (rows, 1), generator=generator)
        q = q.to(getattr(torch, dtype))
        inputs = replace(make_inputs(case, device), k4=k4.to(device), q=q.expand(DIM, 1, -1, -1).contiguous().to(device))
        values, factors = round_rows(q)
        wanted = values.double() * factors.double()
        for tile in tiles(implementation("a4q"), case, arch_of(device)):
            runner = bind(implementation("a4q"), case, inputs, device, tile)
            runner()
            torch.testing.assert_close(runner.output.lse.cpu().double()[:, 0].T, wanted, rtol=2.0**-20, atol=2.0**-19)


def a_runner_reads_contents_when_it_runs(device: torch.device) -> None:
    """Queries, lengths, pages and the cache all change under a captured graph, whose replay allocates nothing."""
    for chosen, q_len, dense in itertools.product(map(implementation, IMPLS), (1, 2, 12), (False, True)):
        shape = PAGES | {"q_len": q_len} | ({"layout": Dense(), "kv_len": 1500} if dense else {})
        case = Case("pages", shape, lens=(0, 1500, 37, 640, 1499))
        inputs = make_inputs(case, device)
        runner = bind(chosen, case, inputs, device)
        before = torch.cuda.memory_allocated(device)
        runner()
        assert torch.cuda.memory_allocated(device) == before
        run = captured(runner)
        for seed, lens in ((0, case.lens), (1, (1500, 0, 100, 17, 65)), (2, (0, 1, 2, 3, 0))):
            changed = replace(case, lens=lens)
            overwrite(inputs, make_inputs(changed, device, seed))
            run()
            _check(chosen.name, changed, inputs, runner.output)


def lengths_are_clamped_to_the_cache(device: torch.device) -> None:
    """A length that a scheduler got wrong must not lead outside the cache: it counts as the nearest possible one."""
    for kv_len, dim in ((90, 64), (1500, 128)):  # straight to registers, and staged
        case = Case("clamp", {"batch": 2, "kv_len": kv_len, "head_dim": dim, "v_head_dim": dim}, lens=(kv_len, 0))
        inputs = make_inputs(case, device)
        runner = bind(implementation("a4q"), case, inputs, device)
        assert inputs.kv_lens is not None
        inputs.kv_lens.copy_(torch.tensor([2**30, -7]))
        runner()
        inputs.kv_lens.copy_(torch.tensor([kv_len, 0]))
        _check("a4q", case, inputs, runner.output)


def what_a_window_hides_is_not_read(device: torch.device) -> None:
    """NaN before the window's first key, in the step that it begins in."""
    for axis in (-1, -2):
        case = Case("hidden", {**ONE_HEAD, "kv_len": 200, "window": 35, "v_block_axis": axis})
        inputs = make_inputs(case, device)
        chosen = implementation("a4q-q16")
        runners = [bind(chosen, case, inputs, device, tile) for tile in tiles(chosen, case, arch_of(device))]
        for runner in runners:
            runner()
        wanted = [runner.output.out.clone() for runner in runners]
        k_scales, v_scales = (t.scales.view(torch.uint8) for t in (inputs.k4, inputs.v4))
        k_scales[:, :, :165] = 0x7F
        (v_scales[:, :, :165] if axis == -1 else v_scales[..., : 165 // 16]).fill_(0x7F)
        for runner, out in zip(runners, wanted, strict=True):
            runner()
            assert torch.equal(runner.output.out, out)


BEHAVIOURS: dict[str, Callable[[torch.device], None]] = {
    function.__name__: function
    for function in (
        every_scale_and_code_of_k_decodes_exactly,
        every_scale_and_code_of_v_decodes_exactly,
        q_is_rounded_as_quantize_rounds_it,
        a_runner_reads_contents_when_it_runs,
        lengths_are_clamped_to_the_cache,
        what_a_window_hides_is_not_read,
    )
}


def _check(name: str, case: Case, inputs: Inputs, output: Output) -> None:
    rounds = implementation(name).rounds(case.problem)
    assert_holds(compare(case.problem, inputs, output, max(case.problem.kv_len, 1), rounds))
