"""The plan and the runners of `w4a16`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

from impls.arch import Arch
from impls.contract import Launch
from impls.cuda.driver import Program
from impls.host import arch_of
from impls.nvfp4 import NVFP4Tensor
from impls.triton.arguments import TYPES, alignment_of
from impls.triton.attention import Step, launch_of
from impls.triton.compiler import Compiled, compile_kernel
from impls.weights import kernel
from impls.weights.contract import (
    Packed,
    Projection,
    ProjectionPlan,
    ProjectionRunner,
    check_packed,
    check_rows,
    check_weights,
)
from impls.weights.pack import pack
from impls.weights.planner import TILE, Schedule, schedule

if TYPE_CHECKING:
    from impls.triton.arguments import Value

ALIGNED = 16
"""Bytes that divide the address and row stride of most x and out; for others `bind` compiles again."""


class W4A16Plan(ProjectionPlan):
    """Compiles for rows that start at multiples of 16 bytes; `bind` compiles again for others."""

    def __init__(self, problem: Projection, arch: Arch) -> None:
        self.problem = problem
        self.arch = arch
        self.schedule = schedule(problem, arch)
        if arch.is_gpu:
            self.compiled()

    @property
    def workspace_bytes(self) -> int:
        return self.schedule.workspace_bytes

    def describe(self) -> dict[str, int | str]:
        tile = self.schedule.tile
        return {
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

    def pack(self, w4: NVFP4Tensor) -> Packed:
        """Whole tiles of 128 elements of K: as many bytes as NVFP4 takes, and up to 72 a line more for the last tile."""
        check_weights(self.problem, w4)
        return Packed(pack(w4), "tiles of 128 elements, codes in the order of impls/weights/decode.py")

    def bind(self, x: torch.Tensor, packed: Packed, *, out: torch.Tensor | None = None) -> ProjectionRunner:
        p, s = self.problem, self.schedule
        out = check_rows(p, x, out)
        shapes = {"codes": (s.tiles, p.outputs, TILE // 2), "scales": (s.tiles, p.outputs, TILE // 16), "global_scale": ()}
        check_packed(packed, x, shapes)
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
        step = Step(kernel.project, (s.programs, s.splits, 1), values, _constants(p, s))
        if not self.arch.is_gpu:
            return _InterpretedRunner(out, step)
        if x.device.type == "cuda" and arch_of(x.device) != self.arch:
            here = arch_of(x.device).name
            raise ValueError(f"the tensors are on a GPU of {here} and the plan is for {self.arch.name}; plan for {here}.")
        return _CompiledRunner(out, launch_of(self.compiled(alignment_of(x), alignment_of(out)), step), self.arch)


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


@cache
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
    return compile_kernel(kernel.project, types, _constants(problem, schedule), divisors, arch, options)


class _InterpretedRunner(ProjectionRunner):
    """Runs the kernel in Triton's interpreter, on the CPU."""

    def __init__(self, out: torch.Tensor, step: Step) -> None:
        self.out = out
        self._step = step

    def __call__(self) -> None:
        step = self._step
        step.kernel[step.grid](**step.values, **step.constants)


class _CompiledRunner(ProjectionRunner):
    """Launches the compiled kernel on the GPU that holds the tensors. Bound to CPU tensors, it only states its launch."""

    def __init__(self, out: torch.Tensor, launch: Launch, arch: Arch) -> None:
        self.out = out
        self._launch = launch
        self._arch = arch
        self._program = Program([launch], out.device) if out.device.type == "cuda" else None

    @property
    def launches(self) -> tuple[Launch, ...]:
        return (self._launch,)

    def __call__(self) -> None:
        if self._program is None:
            raise ValueError(f"kernels for {self._arch.name} cannot run on tensors on the CPU; bind tensors on that GPU.")
        self._program.launch(torch.cuda.current_stream(self.out.device).cuda_stream)
