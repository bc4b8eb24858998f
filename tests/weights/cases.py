"""Projections that would show a fault of a kernel of ours, with their data, run on any device and held against the reference.

What lies beyond K in the weights is poisoned (codes 0xFF), as is the output before the call, and what surrounds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from impls.host import arch_of
from impls.nvfp4 import NVFP4Tensor, quantize
from impls.weights.contract import Projection
from impls.weights.few_rows_planner import ROWS
from impls.weights.reference import over_bound, reference_projection
from impls.weights.registry import projection

POISON = 1234.0
CHECKED_ROWS = 16
"""Rows held against float64, which a GPU computes slowly."""


def random_weights(p: Projection, g: torch.Generator) -> NVFP4Tensor:
    return quantize(torch.randn(p.outputs, p.inputs, generator=g), backend="torch")


def every_code_and_scale(p: Projection, g: torch.Generator) -> NVFP4Tensor:
    """Line i has scale byte i % 127 throughout, and all codes: 0 times 0x7E, -6 times 1, ..."""
    lines, blocks = p.outputs, p.inputs // 16
    codes = torch.randint(0, 256, (lines, blocks * 8), generator=g, dtype=torch.uint8)
    codes[:, :8] = torch.arange(0x10, 0x100, 0x22, dtype=torch.uint8)[:8]
    codes[:, -8:] = torch.arange(8, dtype=torch.uint8) * 0x11 + 0x80
    scales = (torch.arange(lines) % 127).to(torch.uint8)[:, None].expand(lines, blocks).contiguous()
    return NVFP4Tensor(codes, scales.view(torch.float8_e4m3fn), torch.tensor(0.01))


def all_positive(p: Projection, g: torch.Generator) -> NVFP4Tensor:
    """Sums of one sign: truncation in an accumulator adds up."""
    return quantize(torch.rand(p.outputs, p.inputs, generator=g) + 0.5, backend="torch")


@dataclass(frozen=True)
class Case:
    problem: Projection
    weights: Callable[[Projection, torch.Generator], NVFP4Tensor] = random_weights
    global_scale: float | None = None
    """In place of the weights' own."""
    x_scale: float = 1.0
    apart: int = 0
    """Elements between the rows of x and of out."""


def _sizes() -> dict[str, Case]:
    """Around every number of rows where the tile changes, with lines and elements that fill no tile."""
    found = {}
    for rows in (1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 130):
        found[f"rows-{rows}"] = Case(Projection(rows, 72, 272))
    return found


CASES: dict[str, Case] = {
    **_sizes(),
    "one-of-all": Case(Projection(1, 1, 1)),
    "one-line": Case(Projection(1, 1, 400)),
    "one-element-of-a-block": Case(Projection(3, 20, 129)),
    "half-a-block": Case(Projection(5, 33, 136)),
    "whole-tiles": Case(Projection(4, 128, 256)),
    "one-tile-of-k": Case(Projection(4, 150, 128)),
    "second-half-of-a-tile": Case(Projection(2, 16, 80)),
    "float16": Case(Projection(6, 70, 272, "float16")),
    "float16-many-rows": Case(Projection(70, 70, 144, "float16")),
    "every-code-and-scale": Case(Projection(3, 127, 256), every_code_and_scale),
    "every-code-and-scale-float16": Case(Projection(3, 127, 256, "float16"), every_code_and_scale, x_scale=0.01),
    "every-code-and-scale-many-rows": Case(Projection(66, 127, 128), every_code_and_scale),
    "global-1e-30": Case(Projection(2, 40, 160), global_scale=1e-30),
    "global-1e30": Case(Projection(2, 40, 160), global_scale=1e30),
    "global-2^-126": Case(Projection(2, 40, 160), global_scale=2.0**-126, x_scale=1e30),
    "one-sign": Case(Projection(4, 32, 2048), all_positive),
    "rows-apart-by-1": Case(Projection(5, 33, 137), apart=1),
    "rows-apart-by-4": Case(Projection(20, 64, 128), apart=4),
    "many-rows-apart-by-1": Case(Projection(70, 64, 128), apart=1),
}

CONVERTED: dict[str, Case] = {
    **{name: CASES[name] for name in ("rows-1", "rows-9", "rows-130", "one-of-all", "one-element-of-a-block", "half-a-block")},
    **{name: CASES[name] for name in ("whole-tiles", "float16", "every-code-and-scale", "every-code-and-scale-float16")},
    **{name: CASES[name] for name in ("global-1e-30", "global-1e30", "one-sign", "rows-apart-by-1", "rows-apart-by-4")},
    "rows-256": Case(Projection(256, 72, 272)),
}
"""For `w4a16:convert`, whose product is torch's. The last is the first that `w4a16` converts."""

ON_GPU: dict[str, Case] = {
    **CASES,
    **CONVERTED,
    **{f"llama-{m}": Case(Projection(m, 14336, 4096)) for m in (1, 3, 8, 16, 32, 64, 100, 512, 4096)},
    **{f"few-rows-{m}": Case(Projection(m, 88, 1168)) for m in range(1, 9)},
    **{f"few-whole-rows-{m}": Case(Projection(m, 2176, 1024)) for m in (1, 8)},
    "few-lines": Case(Projection(3, 5, 6000)),
    "few-whole-lines-apart": Case(Projection(7, 4096, 2048), apart=8),
    "few-lines-apart-by-1": Case(Projection(7, 4100, 2048), apart=1),
    "few-float16": Case(Projection(8, 2208, 640, "float16")),
    **{f"llama-down-{m}": Case(Projection(m, 4096, 14336)) for m in (1, 8, 64, 4096)},
    "llama-float16": Case(Projection(1, 14336, 4096, "float16")),
    "one-sign-long": Case(Projection(1, 512, 28672), all_positive),
}
"""Those that are too large for the interpreter as well."""


def on_gpu() -> list[tuple[str, str]]:
    """(implementation, name in ON_GPU) of all that is checked there."""
    few = [name for name, case in ON_GPU.items() if case.problem.rows <= ROWS]
    converted = [*CONVERTED, *(name for name in ON_GPU if name.startswith("llama"))]
    return [
        *(("w4a16-cuda", name) for name in few),
        *(("w4a16:convert", name) for name in converted),
        *(("w4a16:fused", name) for name in ON_GPU),
        *(("w4a16", name) for name in ("llama-1", "llama-512", "llama-down-4096")),
    ]


@cache
def _weights(made: Callable[[Projection, torch.Generator], NVFP4Tensor], problem: Projection) -> NVFP4Tensor:
    """The same for every number of rows: those of a model take seconds."""
    return made(problem, torch.Generator().manual_seed(2))


def make(case: Case, device: torch.device) -> tuple[torch.Tensor, NVFP4Tensor]:
    """(x, w4) of a case, the same on every device."""
    p = case.problem
    w4 = _weights(case.weights, replace(p, rows=1))
    codes = w4.codes.clone()
    for place in range(p.inputs, 2 * codes.shape[1]):  # beyond K
        byte = codes[:, place // 2]
        byte |= 0xF0 if place % 2 else 0x0F
    scale = w4.global_scale if case.global_scale is None else torch.tensor(case.global_scale, dtype=torch.float32)
    x = torch.randn(p.rows, p.inputs, generator=torch.Generator().manual_seed(1)) * case.x_scale
    whole = torch.full((p.rows, p.inputs + case.apart), torch.nan, dtype=getattr(torch, p.dtype), device=device)
    whole[:, : p.inputs] = (x.abs() if case.weights is all_positive else x).to(whole)
    return whole[:, : p.inputs], replace(w4, codes=codes, global_scale=scale).to(device)


def run(case: Case, device: torch.device, impl: str = "w4a16:fused") -> dict[str, Any]:
    """{"over_bound", "same_again", "spilt"}: the error over its bound, whether a second call gives the same bits, and how many
    elements around the output were written."""
    p = case.problem
    x, w4 = make(case, device)
    chosen = projection(impl)
    plan = chosen.plan(p, arch_of(device))
    out = torch.full((p.rows, p.outputs + case.apart), POISON, dtype=x.dtype, device=device)
    around = out[:, p.outputs :]
    runner = plan.bind(x, plan.pack(w4), out=out[:, : p.outputs])
    runner()
    first = runner.out.clone()
    runner()
    rows = torch.linspace(0, p.rows - 1, min(p.rows, CHECKED_ROWS)).round().long().to(device)
    reference = reference_projection(x[rows], w4, chosen.rounds(p))
    return {
        "over_bound": over_bound(first[rows], reference),
        "same_again": torch.equal(first.view(torch.int16), runner.out.view(torch.int16)),
        "spilt": int((around != POISON).sum()),
    }
