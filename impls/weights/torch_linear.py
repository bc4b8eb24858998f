"""`torch-bf16-linear`: the weights decoded once to bfloat16, and multiplied by torch.matmul. What to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from impls.arch import Arch
from impls.contract import Rounding
from impls.weights.contract import (
    Packed,
    Part,
    Projection,
    ProjectionImplementation,
    ProjectionPlan,
    ProjectionRounds,
    ProjectionRunner,
    check_packed,
    check_rows,
    check_weights,
)

if TYPE_CHECKING:
    import torch

    from impls.nvfp4 import NVFP4Tensor


class TorchBf16Linear(ProjectionImplementation):
    name = "torch-bf16-linear"
    summary = "torch.matmul on weights that were decoded to bfloat16"

    def why_not(self, problem: Projection, arch: Arch) -> str | None:
        if problem.dtype != "bfloat16":
            return f"torch-bf16-linear takes bfloat16, not {problem.dtype}."
        return None

    def rounds(self, problem: Projection) -> ProjectionRounds:
        """Weights, and parts of sums: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction."""
        return ProjectionRounds(weights=Rounding("bfloat16"), parts=Rounding("bfloat16"))

    def plan(self, problem: Projection, arch: Arch) -> ProjectionPlan:
        return _Plan(problem, arch)


class _Plan(ProjectionPlan):
    def __init__(self, problem: Projection, arch: Arch) -> None:
        self.problem = problem
        self.arch = arch

    def pack(self, w4: NVFP4Tensor) -> Packed:
        import torch

        from impls.nvfp4 import dequantize

        check_weights(self.problem, w4)
        return Packed({"weights": dequantize(w4, torch.bfloat16)}, "bfloat16 [N, K]")

    def bind(self, x: torch.Tensor, packed: Packed, *, out: torch.Tensor | None = None) -> ProjectionRunner:
        out = check_rows(self.problem, x, out)
        check_packed(packed, x, {"weights": Part("bfloat16", (self.problem.outputs, self.problem.inputs))})
        return _Runner(x, packed.tensors["weights"], out)


class _Runner(ProjectionRunner):
    def __init__(self, x: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        self._x = x.detach()  # results carry no graph
        self._transposed = weights.t()
        self.out = out

    def __call__(self) -> None:
        import torch

        torch.matmul(self._x, self._transposed, out=self.out)
