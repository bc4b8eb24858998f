"""The plan of `hybrid-bf16:sdpa`: that of the `sdpa-*` implementations with another conversion."""

from __future__ import annotations

from impls.arch import Arch
from impls.contract import Cache, Problem
from impls.hybrid.conversion import Converter
from impls.hybrid.formats import format_for
from impls.nvfp4 import NVFP4Tensor
from impls.peers.sdpa import Backend
from impls.peers.sdpa_runner import SdpaPlan
from impls.validation import check_operands


class HybridSdpaPlan(SdpaPlan):
    def __init__(self, problem: Problem, arch: Arch, backend: Backend) -> None:
        super().__init__(problem, arch, backend)
        self.converter = Converter(problem, arch, format_for(problem, "folded"))

    def pack(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
        """K and V converted, in 3.6 x the NVFP4 bytes; no call reads the NVFP4 tensors."""
        check_operands(k4, v4)
        return self.converter(k4, v4)
