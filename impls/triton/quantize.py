"""Quantisation to NVFP4 by Triton kernels: the same bits as the torch operations of `impls.nvfp4`, at the speed of memory.

    quantizer = Quantizer(x, block_axis=-1)      kernels compiled, results allocated: no launch
    quantizer()                                  one launch, or two where the global scale has to be found: no
                                                 allocation, no synchronisation, CUDA-graph capturable
    quantizer.result                             the NVFP4Tensor that calls write

A call reads `x` and a given global scale anew. Importing this module imports neither torch nor triton.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from impls.arch import Arch
from impls.host import arch_of
from impls.nvfp4 import BLOCK, NVFP4Tensor
from impls.planning import VECTOR_BYTES
from impls.triton import availability
from impls.triton.quantize_layouts import (
    FORMATS,
    columns,
    in_memory_order,
    is_columns,
    rows,
    why_not_rows,
)

if TYPE_CHECKING:
    import torch

    from impls.contract import Launch
    from impls.triton.attention import Step
    from impls.triton.compiler import Compiled

POINTERS = {"torch.int16": "*i16", "torch.int32": "*i32", "torch.int64": "*i64", "torch.float32": "*fp32", "torch.uint8": "*u8"}
SINCE_INTERPRETED = (3, 9)
"""The oldest Triton whose interpreter was seen to round tl.fma once, as every GPU does; that of 3.7 rounds twice."""
WARPS = 4
PARTS = 1024
"""Programs that look for the largest magnitude, at most: 8 on each SM of an H200, each of which leaves one result."""
MOST_PROGRAMS = 4096
"""Programs that round, at most; each then takes several tiles. Every one of them reads all PARTS results."""


def why_not(x: torch.Tensor, block_axis: int) -> str | None:
    """None if the kernels can round `x` along `block_axis` in this process, else one sentence."""
    if str(x.dtype) not in FORMATS:
        return f"the Triton quantiser takes bfloat16, float16 and float32, not {str(x.dtype).removeprefix('torch.')}."
    moved = x.movedim(block_axis, -1)
    reason = (None if is_columns(moved) else why_not_rows(moved)) or why_not_rows(in_memory_order(x))
    if reason:
        return reason
    try:
        arch = arch_of(x.device)
    except ValueError as unknown_device:
        return str(unknown_device)
    return availability.why_not(arch) or (None if arch.is_gpu else why_not_interpreted())


def why_not_interpreted() -> str | None:
    """None if the installed Triton interprets what `rounding` is made of, else one sentence."""
    version = availability.installed_version()
    if version is None or version >= SINCE_INTERPRETED:
        return None
    have, need = (".".join(map(str, each)) for each in (version, SINCE_INTERPRETED))
    return f"the interpreter of triton {have} rounds a fused multiplication and addition twice; install triton {need} or newer."


class Quantizer:
    """The quantisation of one tensor, ready to be repeated. Called only where `why_not` is None."""

    def __init__(
        self,
        x: torch.Tensor,
        *,
        block_axis: int = -1,
        global_scale: torch.Tensor | None = None,
        arch: Arch | None = None,
    ) -> None:
        """Prepare to round `x` [any shape; bfloat16, float16 or float32] with blocks along `block_axis`, which is negative.

        `global_scale` is a 0-d float32 tensor on the device of `x`; without one, a call finds max|x| / 2688.
        `arch` is the device's unless kernels for another are to be inspected, which then cannot be launched.
        """
        import torch

        self._device = x.device
        self._arch = arch or arch_of(x.device)
        moved = x.movedim(block_axis, -1)
        length = moved.shape[-1]
        blocks = -(-length // BLOCK)
        codes = torch.empty((*moved.shape[:-1], blocks * BLOCK // 2), dtype=torch.uint8, device=x.device)
        scales = torch.empty((*moved.shape[:-1], blocks), dtype=torch.uint8, device=x.device)
        scale = torch.empty((), dtype=torch.float32, device=x.device) if global_scale is None else global_scale
        self.result = NVFP4Tensor(codes, scales.view(torch.float8_e4m3fn), scale, block_axis, length)
        self._parts = None
        work = []
        if x.numel():
            if global_scale is None:
                self._parts = torch.zeros(PARTS, dtype=torch.int32, device=x.device)
                work.append(_search(x, self._parts))
            work.append(_rounding(moved, codes, scales, scale, self._parts))
        elif global_scale is None:
            scale.fill_(1.0)  # as for a tensor of zeros; no kernel ever changes it
        self._steps: list[Step] = [each.step() for each in work]
        self._launches: tuple[Launch, ...] = ()
        self._program = None
        if self._arch.is_gpu:
            from impls.cuda.driver import Program
            from impls.triton.attention import launch_of

            self._launches = tuple(
                launch_of(each.compiled(self._arch), step) for each, step in zip(work, self._steps, strict=True)
            )
            self._program = Program(self._launches, x.device) if x.is_cuda else None

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernels a call launches, in order; empty where they are interpreted."""
        return self._launches

    def __call__(self) -> None:
        """Round, on torch's current stream."""
        import torch

        if self._program is not None:
            self._program.launch(torch.cuda.current_stream(self._device).cuda_stream)
        elif self._arch.is_gpu:
            raise ValueError(f"kernels for {self._arch.name} cannot run on tensors on the CPU; give tensors on that GPU.")
        else:
            for step in self._steps:
                step.interpret()


@dataclass(frozen=True)
class _Work:
    """One kernel of `quantize_kernels`, with its arguments."""

    kernel: str
    programs: int
    tensors: Mapping[str, torch.Tensor | None]
    numbers: Mapping[str, int]
    """Arguments of 32 bits, and of 64 bits where their name ends in `stride` or is `blocks` or `length`."""
    constants: Mapping[str, Any]
    divisors: Mapping[str, int]
    """Powers of two that divide an argument. Few are told apart, since each combination is compiled."""

    def step(self) -> Step:
        from impls.triton.attention import Step

        return Step(_kernel(self.kernel), (self.programs, 1, 1), {**self.tensors, **self.numbers}, self.constants)

    def compiled(self, arch: Arch) -> Compiled:
        from impls.triton.compiler import compile_kernel

        types = {name: POINTERS[str(tensor.dtype)] for name, tensor in self.tensors.items() if tensor is not None}
        for name in self.numbers:
            types[name] = "i64" if name.endswith("stride") or name in ("blocks", "length") else "i32"
        return compile_kernel(_kernel(self.kernel), types, self.constants, self.divisors, arch, {"num_warps": WARPS})


def _kernel(name: str) -> Any:
    from impls.triton import quantize_kernels

    return getattr(quantize_kernels, name)


def _search(x: torch.Tensor, parts: torch.Tensor) -> _Work:
    """The search for max|x|. The order in which it looks at elements does not matter, so the nearest ones come last."""
    layout = rows(in_memory_order(x), across_rows=True)
    tensors = {"x": layout.elements, "parts": parts}
    programs = min(layout.numbers["tiles"], PARTS)  # the results of the others stay 0
    return _Work("largest", programs, tensors, layout.numbers, layout.constants, {**layout.divisors, "parts": VECTOR_BYTES})


def _rounding(
    moved: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, scale: torch.Tensor, parts: torch.Tensor | None
) -> _Work:
    """The rounding of `moved` [..., n] with blocks along its last axis."""
    tensors = {"codes": codes, "scales": scales, "global_scale": scale, "parts": parts}
    constants = {"CORRECTIONS": 2 if moved.element_size() == 4 else 1, "PARTS": 0 if parts is None else PARTS}
    divisors = dict.fromkeys(("codes", "scales", *(() if parts is None else ("parts",))), VECTOR_BYTES)
    kernel, layout = ("quantize_columns", columns(moved)) if is_columns(moved) else ("quantize_rows", rows(moved))
    return _Work(
        kernel,
        min(layout.numbers["tiles"], MOST_PROGRAMS),
        {"x": layout.elements, **tensors},
        layout.numbers,
        {**layout.constants, **constants},
        {**layout.divisors, **divisors},
    )
