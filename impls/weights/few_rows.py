"""The plan of `w4a16-cuda`: one CUDA kernel, `kernels/few_rows.cu`, for up to 8 rows of x."""

from __future__ import annotations

from pathlib import Path

import torch

from impls.arch import Arch
from impls.contract import Scalar
from impls.cuda.compiler import FORMATS, Kernel, compile_kernel
from impls.planning import VECTOR_BYTES
from impls.triton.arguments import alignment_of
from impls.weights.contract import Packed, Projection, ProjectionRunner
from impls.weights.few_rows_planner import LINES, cut_for
from impls.weights.planner import TILE, tile_count
from impls.weights.tiled import CompiledRunner, TiledPlan

SOURCE = Path(__file__).with_name("kernels") / "few_rows.cu"


class FewRowsPlan(TiledPlan):
    """Compiles for an x whose rows start at multiples of 16 bytes; `bind` compiles again for others."""

    def __init__(self, problem: Projection, arch: Arch) -> None:
        super().__init__(problem, arch)
        self.cut = cut_for(problem)
        self.compiled()

    def describe(self) -> dict[str, int | str]:
        cut = self.cut
        return {
            "way": "fused",
            "lines": LINES,
            "warps": cut.warps,
            "stages": cut.stages,
            "blocks_per_sm": cut.blocks_per_sm,
        }

    def compiled(self, x_alignment: int = VECTOR_BYTES) -> Kernel:
        """The kernel, for an x whose rows start at multiples of so many bytes."""
        p, cut = self.problem, self.cut
        packed_rows = p.rows == 1 or 2 * p.inputs % VECTOR_BYTES == 0
        defines: dict[str, int | str] = {
            "TYPE": FORMATS[p.dtype],
            "RAGGED": int(p.inputs % TILE != 0),
            "RAGGED_LINES": int(p.outputs % LINES != 0),
            "X_ALIGNED": int(x_alignment >= VECTOR_BYTES and packed_rows),
            "WARPS": cut.warps,
            "STAGES": cut.stages,
            "BLOCKS_PER_SM": cut.blocks_per_sm,
        }
        return compile_kernel(SOURCE, "w4a16_few_rows", self.arch, defines)

    def bind(self, x: torch.Tensor, packed: Packed, *, out: torch.Tensor | None = None) -> ProjectionRunner:
        p = self.problem
        out = self.output(x, packed, out)
        tensors = (x, packed.tensors["codes"], packed.tensors["scales"], packed.tensors["global_scale"], out)
        strides = (Scalar("i64", x.stride(0)), Scalar("i64", out.stride(0)))
        sizes = (p.rows, p.outputs, p.inputs, tile_count(p.inputs))
        launch = self.compiled(alignment_of(x)).launch(
            grid=(-(-p.outputs // LINES), 1, 1),
            block=(32 * self.cut.warps, 1, 1),
            shared_bytes=0,
            args=(*tensors, *strides, *(Scalar("i32", size) for size in sizes)),
        )
        return CompiledRunner(out, launch, self.arch)
