"""The plan that decodes all weights to 16 bits in a workspace, in every call, and multiplies them there by torch's matmul."""

from __future__ import annotations

import torch

from impls.arch import Arch
from impls.contract import Launch
from impls.planning import has_e4m3
from impls.triton.arguments import TYPES
from impls.triton.attention import Step, launch_of
from impls.triton.compiler import Compiled, compile_kernel
from impls.weights import convert_kernel
from impls.weights.contract import Packed, Projection, ProjectionRunner
from impls.weights.planner import TILE, tile_count
from impls.weights.tiled import CompiledRunner, InterpretedRunner, TiledPlan

LINES, WARPS = 64, 4
"""Lines of the weights that a program of the kernel decodes a tile of, and its warps."""


class ConvertingPlan(TiledPlan):
    def __init__(self, problem: Projection, arch: Arch) -> None:
        super().__init__(problem, arch)
        if arch.is_gpu:
            self.compiled()

    @property
    def workspace_bytes(self) -> int:
        return 2 * self.problem.outputs * tile_count(self.problem.inputs) * TILE

    def describe(self) -> dict[str, int | str]:
        return {"way": "convert", "lines": LINES, "num_warps": WARPS}

    def compiled(self) -> Compiled:
        """The kernel that decodes."""
        types = {
            **dict.fromkeys(("codes", "scales"), "*u8"),
            "global_scale": "*fp32",
            "weights": f"*{TYPES[self.problem.dtype]}",
            **dict.fromkeys(("n", "tiles"), "i32"),
        }
        divisors = dict.fromkeys(("codes", "scales", "weights"), 16)
        return compile_kernel(convert_kernel.convert, types, _constants(self.arch), divisors, self.arch, {"num_warps": WARPS})

    def bind(self, x: torch.Tensor, packed: Packed, *, out: torch.Tensor | None = None) -> ProjectionRunner:
        p = self.problem
        out = self.output(x, packed, out)
        tiles = tile_count(p.inputs)
        weights = x.new_empty(p.outputs, tiles * TILE)
        step = Step(
            convert_kernel.convert,
            (tiles * -(-p.outputs // LINES), 1, 1),
            {**packed.tensors, "weights": weights, "n": p.outputs, "tiles": tiles},
            _constants(self.arch),
        )
        decoding: ProjectionRunner
        if self.arch.is_gpu:
            decoding = CompiledRunner(weights, launch_of(self.compiled(), step), self.arch)
        else:
            decoding = InterpretedRunner(weights, step)
        return _Runner(decoding, x, weights[:, : p.inputs], out)


def _constants(arch: Arch) -> dict[str, int | bool]:
    """{parameter: value} that the kernel is compiled for."""
    return {"HAS_E4M3": has_e4m3(arch), "LINES": LINES}


class _Runner(ProjectionRunner):
    """Decodes, then multiplies."""

    def __init__(self, decoding: ProjectionRunner, x: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        self._decoding = decoding
        self._x = x
        self._transposed = weights.t()
        self.out = out

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Our own kernel's; torch's follow it."""
        return self._decoding.launches

    def __call__(self) -> None:
        self._decoding()
        torch.mm(self._x, self._transposed, out=self.out)
