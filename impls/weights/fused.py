"""The plan that multiplies where weights are decoded: one kernel, `impls.weights.fused_kernel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from impls.arch import Arch
from impls.triton.arguments import TYPES, alignment_of
from impls.triton.attention import Step, launch_of
from impls.triton.compiler import Compiled, compile_kernel
from impls.weights import fused_kernel
from impls.weights.contract import Packed, Projection, ProjectionRunner
from impls.weights.planner import TILE, Schedule, schedule
from impls.weights.tiled import CompiledRunner, InterpretedRunner, TiledPlan

if TYPE_CHECKING:
    from impls.triton.arguments import Value

ALIGNED = 16
"""Bytes that divide the address and row stride of most x and out; for others `bind` compiles again."""


class FusedPlan(TiledPlan):
    """Compiles for rows that start at multiples of 16 bytes; `bind` compiles again for others."""

    def __init__(self, problem: Projection, arch: Arch) -> None:
        super().__init__(problem, arch)
        self.schedule = schedule(problem, arch)
        if arch.is_gpu:
            self.compiled()

    @property
    def workspace_bytes(self) -> int:
        return self.schedule.workspace_bytes

    def describe(self) -> dict[str, int | str]:
        tile = self.schedule.tile
        return {
            "way": "fused",
            "block_m": tile.block_m,
            "block_n": tile.block_n,
            "num_warps": tile.num_warps,
            "num_stages": tile.num_stages,
            "weights_first": int(tile.weights_first),
            "splits": self.schedule.splits,
        }

    def compiled(self, x_alignment: int = ALIGNED, out_alignment: int = ALIGNED) -> Compiled:
        """The kernel, for an x and an out whose rows start at multiples of so many bytes."""
        row_bytes = 2 * self.problem.inputs, 2 * self.problem.outputs  # packed rows may start at less
        x_alignment, out_alignment = (
            min(given, bytes_ & -bytes_) for given, bytes_ in zip((x_alignment, out_alignment), row_bytes, strict=True)
        )
        return _compile(self.problem, self.arch, self.schedule, x_alignment, out_alignment)

    def bind(self, x: torch.Tensor, packed: Packed, *, out: torch.Tensor | None = None) -> ProjectionRunner:
        p, s = self.problem, self.schedule
        out = self.output(x, packed, out)
        partial = counters = None
        if s.splits > 1:
            partial = x.new_empty(s.splits, p.rows, p.outputs, dtype=torch.float32)
            counters = torch.zeros(s.programs, dtype=torch.int32, device=x.device)
        values: dict[str, Value] = {
            "x": x,
            **packed.tensors,
            "out": out,
            "partial": partial,
            "counters": counters,
            "x_row_stride": x.stride(0),
            "out_row_stride": out.stride(0),
            "rows": p.rows,
            "n": p.outputs,
            "k": p.inputs,
            "tiles": s.tiles,
            "splits": s.splits,
        }
        step = Step(fused_kernel.project, (s.programs, s.splits, 1), values, _constants(p, s))
        if not self.arch.is_gpu:
            return InterpretedRunner(out, step)
        return CompiledRunner(out, launch_of(self.compiled(alignment_of(x), alignment_of(out)), step), self.arch)


def _constants(problem: Projection, schedule: Schedule) -> dict[str, int | bool]:
    """{parameter: value} that the kernel is compiled for."""
    tile = schedule.tile
    return {
        "RAGGED": problem.inputs % TILE != 0,
        "HAS_E4M3": schedule.has_e4m3,
        "WEIGHTS_FIRST": tile.weights_first,
        "SPLIT": schedule.splits > 1,
        "WARPS": tile.num_warps,
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
    }


def _compile(problem: Projection, arch: Arch, schedule: Schedule, x_alignment: int, out_alignment: int) -> Compiled:
    short = TYPES[problem.dtype]
    types = {
        "x": f"*{short}",
        **dict.fromkeys(("codes", "scales"), "*u8"),
        "global_scale": "*fp32",
        "out": f"*{short}",
        **({"partial": "*fp32", "counters": "*i32"} if schedule.splits > 1 else {}),
        **dict.fromkeys(("x_row_stride", "out_row_stride"), "i64"),
        **dict.fromkeys(("rows", "n", "k", "tiles", "splits"), "i32"),
    }
    divisors = {
        **dict.fromkeys(("codes", "scales"), 16),
        **({"partial": 16} if schedule.splits > 1 else {}),
        "x": x_alignment,
        "x_row_stride": max(x_alignment // 2, 1),
        "out": out_alignment,
        "out_row_stride": max(out_alignment // 2, 1),
    }
    options = {"num_warps": schedule.tile.num_warps, "num_stages": schedule.tile.num_stages}
    return compile_kernel(fused_kernel.project, types, _constants(problem, schedule), divisors, arch, options)
