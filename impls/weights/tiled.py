"""What the ways to multiply by packed tiles share: their packing, what they are bound to, and how kernels are launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from impls.arch import Arch
from impls.contract import Launch
from impls.cuda.runner import Launcher
from impls.host import require_arch
from impls.nvfp4 import NVFP4Tensor
from impls.weights.contract import (
    Packed,
    Part,
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
        bytes_a_line = {"codes": TILE // 2, "scales": TILE // 16}
        parts = {name: Part("uint8", (tiles, p.outputs, width)) for name, width in bytes_a_line.items()}
        check_packed(packed, x, {**parts, "global_scale": Part("float32", ())})
        if self.arch.is_gpu:
            require_arch(x.device, self.arch)
        return out


class InterpretedRunner(ProjectionRunner):
    """Runs a kernel in Triton's interpreter, on the CPU."""

    def __init__(self, out: torch.Tensor, step: Step) -> None:
        self.out = out
        self._step = step

    def __call__(self) -> None:
        self._step.interpret()


class CompiledRunner(ProjectionRunner):
    """A projection by one compiled kernel."""

    def __init__(self, out: torch.Tensor, launch: Launch, arch: Arch) -> None:
        self.out = out
        self._launcher = Launcher([launch], out.device, arch)

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self._launcher.launches

    def __call__(self) -> None:
        self._launcher()
