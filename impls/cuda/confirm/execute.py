"""Executes a program: on a GPU through the driver, or in the emulator."""

from __future__ import annotations

import numpy as np

from impls.cuda.confirm.probe import BLOCK, Program, Words
from impls.cuda.emulator.emulate import Kernel, emulate


def in_emulator(program: Program, inputs: Words) -> Words:
    """Outputs [threads, words] of its PTX. Raises EmulationError."""
    outputs = np.zeros((len(inputs), program.outputs), np.uint32)
    kernel = program.kernel
    grid = (len(inputs) // BLOCK, 1, 1)
    emulate([Kernel(kernel.ptx, kernel.entry, grid, (BLOCK, 1, 1), (inputs, outputs))], schedules=("forward",))
    return outputs


def on_gpu(program: Program, inputs: Words) -> Words:
    """Outputs [threads, words] of its cubin, on GPU 0. Raises RuntimeError."""
    import torch

    from impls.cuda.driver import Program as Loaded

    device = torch.device("cuda", 0)
    given = torch.from_numpy(inputs.view(np.int32)).to(device)
    outputs = torch.zeros((len(inputs), program.outputs), dtype=torch.int32, device=device)
    grid = (len(inputs) // BLOCK, 1, 1)
    launch = program.kernel.launch(grid=grid, block=(BLOCK, 1, 1), shared_bytes=0, args=(given, outputs))
    Loaded([launch], device).launch(torch.cuda.current_stream(device).cuda_stream)
    torch.cuda.synchronize(device)
    return outputs.cpu().numpy().view(np.uint32)
