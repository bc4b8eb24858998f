"""What launches compiled kernels, and the runner of attention that is made of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from impls.arch import Arch
from impls.contract import Launch, Output, Runner
from impls.cuda.driver import Program


class Launcher:
    """Launches compiled kernels on the GPU that holds their tensors, on torch's current stream. With tensors elsewhere it only
    states its launches, and a call raises ValueError."""

    def __init__(self, launches: Sequence[Launch], device: torch.device, arch: Arch) -> None:
        self.launches = tuple(launches)
        self._arch = arch
        self._device = device
        self._program = Program(launches, device) if device.type == "cuda" else None

    def __call__(self) -> None:
        if self._program is None:
            raise ValueError(f"kernels for {self._arch.name} cannot run on tensors on the CPU; bind tensors on that GPU.")
        self._program.launch(torch.cuda.current_stream(self._device).cuda_stream)


class CompiledRunner(Runner):
    """Attention by compiled kernels."""

    def __init__(self, output: Output, launches: Sequence[Launch], arch: Arch) -> None:
        self.output = output
        self._launcher = Launcher(launches, output.out.device, arch)

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self._launcher.launches

    def __call__(self) -> None:
        self._launcher()
