"""The plan of `hybrid-bf16` and `hybrid-fp8`: that of `triton`, over a cache that `pack` converts."""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Cache, Inputs, Output, Problem, Runner
from impls.hybrid import arguments, kernels, tiles
from impls.hybrid.conversion import Converter
from impls.hybrid.formats import Format
from impls.nvfp4 import NVFP4Tensor
from impls.triton.arguments import Alignment
from impls.triton.attention import Step, TritonPlan
from impls.triton.compiler import Compiled, compile_kernel
from impls.triton.planner import Schedule
from impls.validation import check_operands


class HybridPlan(TritonPlan):
    """Compiles for tensors with packed lines; `pack` and `bind` compile again for tensors that are aligned less."""

    def __init__(self, problem: Problem, arch: Arch, to: Format) -> None:
        self.to = to
        self.converter = Converter(problem, arch, to)
        super().__init__(problem, arch)

    def describe(self) -> dict[str, int | str]:
        return {**super().describe(), "cache": self.converter.layout}

    def pack(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
        """K and V converted, in 3.6 x the NVFP4 bytes (16 bits) or 1.8 x (E4M3); no call reads the NVFP4 tensors."""
        check_operands(k4, v4)
        return self.converter(k4, v4)

    def _runner(self, inputs: Inputs, cache: Cache, output: Output) -> Runner:
        if cache.layout != self.converter.layout or not {"k", "v"} <= cache.extra.keys():
            raise ValueError("the cache is not one that this plan packed; bind what plan.pack(k4, v4) returns.")
        return super()._runner(inputs, cache, output)

    def _schedule(self) -> Schedule:
        return tiles.schedule(self.problem, self.arch)

    def _compile_attend(self, alignment: Alignment) -> Compiled:
        p, s = self.problem, self.schedule
        types = arguments.types(p, s, self.to.e4m3)
        options = {"num_warps": s.num_warps, "num_stages": s.num_stages, "maxnreg": s.max_registers}
        divisors = arguments.divisors(types, alignment)
        return compile_kernel(kernels.attend, types, arguments.constants(p, s), divisors, self.arch, options)

    def _attend(self, inputs: Inputs, cache: Cache, result: Output, alignment: Alignment) -> Step:
        p, s = self.problem, self.schedule
        grid = (s.programs, s.splits, s.parts)
        return Step(kernels.attend, grid, arguments.values(p, s, inputs, cache, result), arguments.constants(p, s))
