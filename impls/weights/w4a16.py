"""`w4a16`, `w4a16-cuda`: NVFP4 weights, 16-bit activations.

    w4a16              whichever of the two Triton ways is faster for the number of rows
    w4a16:fused        Triton: weights decoded in the loop of the product
    w4a16:convert      weights decoded to 16 bits in memory in every call, by Triton, and multiplied by torch
    w4a16-cuda         CUDA, for up to 8 rows: weights decoded where they were loaded

What one of them packs serves the others.
"""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Rounding
from impls.triton import availability
from impls.weights import few_rows_planner, planner
from impls.weights.contract import Projection, ProjectionImplementation, ProjectionPlan, ProjectionRounds


class W4A16Fused(ProjectionImplementation):
    name = "w4a16:fused"
    summary = "Triton: NVFP4 weights decoded in the loop, 16-bit tensor cores; sm_80 and newer, or interpreted on a CPU"

    def why_not(self, problem: Projection, arch: Arch) -> str | None:
        return planner.why_not(problem) or availability.why_not(arch)

    def plan(self, problem: Projection, arch: Arch) -> ProjectionPlan:
        from impls.weights.fused import FusedPlan

        return FusedPlan(problem, arch)


class W4A16Convert(ProjectionImplementation):
    name = "w4a16:convert"
    summary = "Triton decodes NVFP4 weights to 16 bits in every call, the global scale multiplied in, and torch multiplies"

    def why_not(self, problem: Projection, arch: Arch) -> str | None:
        return planner.why_not(problem) or availability.why_not(arch)

    def rounds(self, problem: Projection) -> ProjectionRounds:
        """Weights once, by the global scale. cuBLAS may round parts of sums to the dtype as torch allows it by default."""
        return ProjectionRounds(weights=Rounding(problem.dtype), parts=Rounding(problem.dtype))

    def plan(self, problem: Projection, arch: Arch) -> ProjectionPlan:
        from impls.weights.converting import ConvertingPlan

        return ConvertingPlan(problem, arch)


class W4A16(ProjectionImplementation):
    name = "w4a16"
    summary = f"w4a16:fused, and from {planner.CONVERTED_FROM} rows on w4a16:convert"

    def why_not(self, problem: Projection, arch: Arch) -> str | None:
        return _way(problem).why_not(problem, arch)

    def rounds(self, problem: Projection) -> ProjectionRounds:
        return _way(problem).rounds(problem)

    def plan(self, problem: Projection, arch: Arch) -> ProjectionPlan:
        return _way(problem).plan(problem, arch)


class W4A16Cuda(ProjectionImplementation):
    name = "w4a16-cuda"
    summary = f"CUDA: NVFP4 weights decoded in the registers they were loaded to; up to {few_rows_planner.ROWS} rows"

    def why_not(self, problem: Projection, arch: Arch) -> str | None:
        from impls.cuda import nvrtc

        return planner.why_not(problem) or few_rows_planner.why_not(problem) or nvrtc.why_not(arch)

    def plan(self, problem: Projection, arch: Arch) -> ProjectionPlan:
        from impls.weights.few_rows import FewRowsPlan

        return FewRowsPlan(problem, arch)


def _way(problem: Projection) -> ProjectionImplementation:
    return W4A16Convert() if planner.converts(problem) else W4A16Fused()
