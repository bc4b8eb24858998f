"""What the ways to multiply by packed tiles share: their packing, what they are bound to, and how kernels are launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from impls.arch import Arch
from impls.contract import Launch
from impls.cuda.driver import Program
from impls.host import arch_of
from impls.nvfp4 import NVFP4Tensor
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
from impls.weights.planner import TILE, tile_count

if TYPE_CHECKING:
    from impls.triton.attention import Step


class TiledPlan(ProjectionPlan):
    """A plan that takes weights as `pack` leaves them: what one of these plans packs serves all others."""

    def __init__(self, problem: Projection, arch: Arch) -> None:
        self.problem = problem
        self.arch = arch

    def pack(self, w4: NVFP4Tensor) -> Packed:
        """Whole tiles of 128 elements of K: as many bytes as NVFP4 takes, and up to 72 a line more for the last tile."""
        check_weights(self.problem, w4)
        return Packed(pack(w4), "tiles of 128 elements, codes in the order of impls/weights/decode.py")

    def output(self, x: torch.Tensor, packed: Packed, out: torch.Tensor | None) -> torch.Tensor:
        """The output for `x`: `out`, or a new one. Raises ValueError on tensors of another problem or architecture."""
        p = self.problem
        out = check_rows(p, x, out)
        tiles = tile_count(p.inputs)
        shapes = {"codes": (tiles, p.outputs, TILE // 2), "scales": (tiles, p.outputs, TILE // 16), "global_scale": ()}
        check_packed(packed, x, shapes)
        if self.arch.is_gpu and x.device.type == "cuda" and arch_of(x.device) != self.arch:
            here = arch_of(x.device).name
            raise ValueError(f"the tensors are on a GPU of {here} and the plan is for {self.arch.name}; plan for {here}.")
        return out


class InterpretedRunner(ProjectionRunner):
    """Runs a kernel in Triton's interpreter, on the CPU."""

    def __init__(self, out: torch.Tensor, step: Step) -> None:
        self.out = out
        self._step = step

    def __call__(self) -> None:
        step = self._step
        step.kernel[step.grid](**step.values, **step.constants)


class CompiledRunner(ProjectionRunner):
    """Launches a compiled kernel on the GPU that holds the tensors. Bound to CPU tensors, it only states its launch."""

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
