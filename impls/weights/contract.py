"""The contract between a projection by NVFP4 weights and whoever implements it; the steps of `impls.contract`.

plan   = projection.plan(problem, arch)     kernels compiled, tiles, splits: no data, no GPU
packed = plan.pack(w4)                      optional re-layout, once for every number of rows
runner = plan.bind(x, packed, out=out)      pointers and workspace fixed: no launch
runner()                                    launches on torch's current stream: no allocation, no synchronisation

x [M, K] bfloat16 or float16, any stride between rows         out [M, N] as x: x @ deq(w4)^T, summed in float32
w4 of [N, K], blocks along K
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from impls.contract import DTYPES, EXACT, Launch, Rounding, is_whole
from impls.memory import check_written

if TYPE_CHECKING:
    import torch

    from impls.arch import Arch
    from impls.nvfp4 import NVFP4Tensor


@dataclass(frozen=True)
class Projection:
    """One product with NVFP4 weights, without its data. Raises ValueError with one sentence when it makes no sense."""

    rows: int
    """M: rows of x, the tokens of all sequences."""
    outputs: int
    """N: rows of the weights."""
    inputs: int
    """K: what a product sums over."""
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        for name in ("rows", "outputs", "inputs"):
            value = getattr(self, name)
            if not is_whole(value) or value < 1:
                raise ValueError(f"{name} must be a whole number from 1 to 2^31 - 1, not {value!r}.")
        if self.dtype not in DTYPES:
            raise ValueError(f"x must be one of {', '.join(DTYPES)}, not {self.dtype}.")

    @property
    def flops(self) -> int:
        """A multiplication and an addition for every weight and row."""
        return 2 * self.rows * self.outputs * self.inputs

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in NVFP4: 9 per block of 16."""
        return self.outputs * -(-self.inputs // 16) * 9


@dataclass(frozen=True)
class Packed:
    """Weights as a plan wants them."""

    tensors: Mapping[str, torch.Tensor]
    layout: str
    """How they lie in memory, in words."""

    @property
    def nbytes(self) -> int:
        """Bytes that stay on the device."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


PACKED_ALIGNMENT = 16
"""Bytes that divide the addresses of packed weights, as kernels read so many at once; torch's own memory begins at more."""


class Part(NamedTuple):
    """A tensor of packed weights."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class ProjectionRunner(ABC):
    """A bound projection: call it as often as you like, also under graph capture."""

    out: torch.Tensor

    @abstractmethod
    def __call__(self) -> None:
        """Launch on torch's current stream; allocates nothing, waits for nothing."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernels a call launches, in order, without those that torch launches."""
        return ()


class ProjectionPlan(ABC):
    """A projection prepared for one architecture."""

    problem: Projection
    arch: Arch

    @property
    def workspace_bytes(self) -> int:
        """Device memory that `bind` allocates besides the output."""
        return 0

    def describe(self) -> dict[str, int | str]:
        """Tiles, splits and whatever else the planner decided."""
        return {}

    @abstractmethod
    def pack(self, w4: NVFP4Tensor) -> Packed:
        """Re-lay the weights out. The result serves the plans of every number of rows. Raises ValueError on other weights."""

    @abstractmethod
    def bind(self, x: torch.Tensor, packed: Packed, *, out: torch.Tensor | None = None) -> ProjectionRunner:
        """Fix the tensors; `out` is allocated where it is not given. Raises ValueError on tensors of another problem."""


@dataclass(frozen=True)
class ProjectionRounds:
    """What is rounded on the way from x and the weights to the output."""

    weights: Rounding = EXACT
    """What decoding the weights costs; the reference rounds them so, too."""
    parts: Rounding = EXACT
    """What parts of a sum may be rounded to before they are added."""


class ProjectionImplementation(ABC):
    """One way to multiply by NVFP4 weights. Importing its module imports neither torch nor triton."""

    name: str
    summary: str
    """One line for tables."""

    def rounds(self, problem: Projection) -> ProjectionRounds:
        """What it rounds beyond the output; left out: nothing."""
        return ProjectionRounds()

    @abstractmethod
    def why_not(self, problem: Projection, arch: Arch) -> str | None:
        """None if it can do `problem` on `arch`, else one sentence that says why not."""

    @abstractmethod
    def plan(self, problem: Projection, arch: Arch) -> ProjectionPlan:
        """Prepare `problem`. Called only where `why_not` is None."""


def check_weights(problem: Projection, w4: NVFP4Tensor) -> None:
    """Raises ValueError where `w4` is not [N, K] with blocks along K."""
    from impls.nvfp4 import NVFP4Tensor

    if not isinstance(w4, NVFP4Tensor):
        raise ValueError(f"w4 must be an NVFP4Tensor, not {type(w4).__name__}.")
    wanted = (problem.outputs, problem.inputs)
    if tuple(w4.shape) != wanted:
        raise ValueError(f"w4 must have shape [N, K] = {list(wanted)}, not {list(w4.shape)}.")
    if w4.block_axis != -1:
        raise ValueError(f"w4's blocks must run along K, axis -1, not along axis {w4.block_axis}.")


def check_rows(problem: Projection, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """The output for `x`: `out`, or a new one. Raises ValueError where either is not the problem's."""
    import torch

    from impls.nvfp4 import why_not_plain

    given = {"x": (x, ("M", "K"), (problem.rows, problem.inputs))}
    if out is not None:
        given["out"] = (out, ("M", "N"), (problem.rows, problem.outputs))
    for name, (tensor, letters, wanted) in given.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name} must be a tensor, not {type(tensor).__name__}.")
        if reason := why_not_plain(tensor):
            raise ValueError(f"{name} {reason}")
        if tuple(tensor.shape) != wanted:
            raise ValueError(f"{name} must have shape [{', '.join(letters)}] = {list(wanted)}, not {list(tensor.shape)}.")
        if str(tensor.dtype) != f"torch.{problem.dtype}":
            raise ValueError(f"{name} must be {problem.dtype}, not {str(tensor.dtype).removeprefix('torch.')}.")
        if wanted[1] > 1 and tensor.stride(1) != 1:
            raise ValueError(f"the rows of {name} must be contiguous; theirs has a stride of {tensor.stride(1)}.")
        if tensor.device != x.device:
            raise ValueError(f"{name} must be on {x.device}, as x is, not on {tensor.device}.")
    if out is None:
        return x.new_empty(problem.rows, problem.outputs)
    check_written({"out": out}, {"x": x})
    return out


def check_packed(packed: Packed, x: torch.Tensor, wanted: Mapping[str, Part]) -> None:
    """Raises ValueError where `packed` is not what the plan's `pack` gives on the device of `x`."""
    import torch

    from impls.nvfp4 import why_not_plain

    if not isinstance(packed, Packed):
        raise ValueError(f"packed must be what plan.pack(w4) returns, not {type(packed).__name__}.")
    other = [name for name, tensor in packed.tensors.items() if not isinstance(tensor, torch.Tensor)]
    if other:
        raise ValueError(f"the packed weights must be tensors, and {', '.join(other)} is none; pack them with this plan.")
    found = {name: Part(str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in packed.tensors.items()}
    if found != dict(wanted):
        given, taken = (", ".join(f"{name} {part}" for name, part in one.items()) or "none" for one in (found, wanted))
        raise ValueError(f"the packed weights are {given}, and this plan takes {taken}; pack them with this plan.")
    for name, tensor in packed.tensors.items():
        if reason := why_not_plain(tensor):
            raise ValueError(f"the packed {name} {reason}")
        if not tensor.is_contiguous():
            strides = list(tensor.stride())
            raise ValueError(f"the packed {name} must be contiguous, as pack leaves them; their strides are {strides}.")
        if tensor.device != x.device:
            raise ValueError(f"the packed {name} must be on {x.device}, as x is, not on {tensor.device}.")
        if tensor.ndim and tensor.device.type != "meta" and tensor.data_ptr() % PACKED_ALIGNMENT:
            raise ValueError(f"the packed {name} must begin at a multiple of {PACKED_ALIGNMENT} bytes, as pack leaves them.")
