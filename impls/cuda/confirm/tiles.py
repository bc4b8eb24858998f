"""Small problems of a4q: kernels that ship, on the GPU and in the emulator.

Their softmax takes an approximate 2^x, so the results agree within a bound and not bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from impls.arch import Arch
from impls.contract import Inputs, Problem, Unsupported
from impls.cuda.emulation.launches import run_emulated
from impls.cuda.emulator.errors import EmulationError, NotExecuted
from impls.nvfp4 import quantize
from impls.reference import reference_attention
from impls.registry import implementation

BOUND = 2.0**-8
"""Of the norm of the difference over the norm of the result: the last bit of bfloat16."""
SHAPES = {"decode": (1, 200), "extend": (16, 144), "prefill": (96, 96)}
"""{name: (queries, cached tokens)}."""
HEAD_DIMS = (64, 128)


@dataclass(frozen=True)
class Tile:
    """What became of one."""

    name: str
    difference: float | None
    """Relative, None where there is none."""
    why_not: str = ""
    """Why it was not run."""
    fault: str = ""
    """What is wrong with a kernel that ships, or with its results."""

    @property
    def agrees(self) -> bool:
        """Whether nothing speaks against the emulator."""
        return not self.fault and (self.difference is None or self.difference <= BOUND)


def tiles(arch: Arch, *, on_gpu: bool) -> list[Tile]:
    """Every problem, on the GPU against the emulator; without one the emulator against the float64 reference."""
    return [_tile(f"{name} d{dim}", dim, *shape, arch, on_gpu) for name, shape in SHAPES.items() for dim in HEAD_DIMS]


def _tile(name: str, dim: int, q_len: int, kv_len: int, arch: Arch, on_gpu: bool) -> Tile:
    problem = Problem(1, 4, 2, q_len, kv_len, dim, dim, causal=q_len > 1)
    a4q = implementation("a4q")
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 4, q_len, dim, generator=generator).bfloat16()
    k4, v4 = (quantize(torch.randn(1, 2, kv_len, dim, generator=generator)) for _ in range(2))
    try:
        plan = a4q.plan(problem, arch)
        runner = plan.bind(q, plan.pack(k4, v4))
        run_emulated(runner.launches, arch, schedules=("forward",))
    except Unsupported as error:
        return Tile(name, None, why_not=str(error))
    except NotExecuted as error:
        return Tile(name, None, why_not=error.sentence)
    except EmulationError as error:
        return Tile(name, None, fault=error.sentence)
    emulated = runner.output.out.double()
    if on_gpu:
        cache = plan.pack(k4.to("cuda:0"), v4.to("cuda:0"))
        on_device = plan.bind(q.to("cuda:0"), cache)
        on_device()
        torch.cuda.synchronize()
        other = on_device.output.out
    else:
        inputs = Inputs(q, k4, v4)
        other = reference_attention(problem, inputs, rows=torch.arange(q_len), rounds=a4q.rounds(problem)).out
    wanted = other.cpu().double()
    difference = float((emulated - wanted).norm() / wanted.norm())
    if not math.isfinite(difference):
        return Tile(name, None, fault="one of the results is not finite.")
    return Tile(name, difference)
