"""The runner of implementations that are made of kernels of their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from impls.arch import Arch
from impls.contract import Launch, Output, Runner
from impls.cuda.driver import Program


class CompiledRunner(Runner):
    """Launches the compiled kernels on the GPU that holds the tensors. Bound to CPU tensors, it only states its launches."""

    def __init__(self, output: Output, launches: Sequence[Launch], arch: Arch) -> None:
        self.output = output
        self._launches = tuple(launches)
        self._arch = arch
        self._device = output.out.device
        self._program = Program(launches, self._device) if self._device.type == "cuda" else None

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self._launches

    def __call__(self) -> None:
        if self._program is None:
            raise ValueError(f"kernels for {self._arch.name} cannot run on tensors on the CPU; bind tensors on that GPU.")
        self._program.launch(torch.cuda.current_stream(self._device).cuda_stream)
