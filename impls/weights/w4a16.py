"""`w4a16`: NVFP4 weights decoded in a Triton kernel, 16-bit activations."""

from __future__ import annotations

from impls.arch import Arch
from impls.triton import availability
from impls.weights import planner
from impls.weights.contract import Projection, ProjectionImplementation, ProjectionPlan


class W4A16(ProjectionImplementation):
    name = "w4a16"
    summary = "Triton: NVFP4 weights decoded in the loop, 16-bit tensor cores; sm_80 and newer, or interpreted on a CPU"

    def why_not(self, problem: Projection, arch: Arch) -> str | None:
        return planner.why_not(problem) or availability.why_not(arch)

    def plan(self, problem: Projection, arch: Arch) -> ProjectionPlan:
        from impls.weights.plan import W4A16Plan

        return W4A16Plan(problem, arch)
