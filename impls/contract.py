"""The contract between the operation and whoever implements it.

Four steps, the same for every implementation and timed apart:

    plan   = implementation.plan(problem, arch)      kernels compiled, tiles, splits, workspace: no data, no GPU
    cache  = plan.pack(k4, v4)                       optional re-layout of the NVFP4 tensors
    runner = plan.bind(q, cache, out=out, lse=lse)   pointers and workspace fixed: no launch
    runner()                                         launches on torch's current stream: no allocation, no synchronisation

`runner()` does everything that depends on the contents of q, `kv_lens` or `block_table`, so it stays right when these
change between replays of a captured graph.

Shapes, with B sequences, Hq query heads, Hkv key-value heads, Sq queries, Sk cached tokens, D and Dv head dims:

    q    [B, Hq, Sq, D]  bfloat16 or float16         out  [B, Hq, Sq, Dv]  as q
    k4   of [B, Hkv, Sk, D]                          lse  [B, Hq, Sq]      float32, natural log, -inf where no key is seen
    v4   of [B, Hkv, Sk, Dv]                         kv_lens [B] int32     tokens of each sequence, at most Sk

A paged cache holds pages of `page_size` tokens in place of sequences: `HND` pages are k4 of [pages, Hkv, page_size, D],
`NHD` pages are k4 of [pages, page_size, Hkv, D]; block_table [B, max_pages] int32 names the pages of each sequence in order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

    from impls.arch import Arch
    from impls.nvfp4 import NVFP4Tensor

DTYPES = ("bfloat16", "float16")
FLOAT32_MIN, FLOAT32_MAX = 2.0**-126, 2.0**128 - 2.0**104  # normal numbers


class Unsupported(ValueError):
    """An implementation cannot do a problem on an architecture; the message is the sentence `why_not` gives.

    Raises TypeError in its place where that is no sentence: who gives it is broken, and has refused nothing.
    """

    def __init__(self, sentence: str) -> None:
        if not isinstance(sentence, str) or not sentence.strip() or sentence.splitlines() != [sentence]:
            raise TypeError(f"why_not gives one line that says why not, or None, and not {sentence!r:.80}.")
        super().__init__(sentence)


@dataclass(frozen=True)
class Dense:
    """K and V are [B, Hkv, Sk, D], any strides on the outer axes."""


@dataclass(frozen=True)
class Paged:
    """K and V are pages of `page_size` tokens, found through a block table."""

    page_size: int
    order: Literal["HND", "NHD"] = "HND"

    def __post_init__(self) -> None:
        if not is_whole(self.page_size) or self.page_size < 16 or self.page_size % 16:
            raise ValueError(f"page_size must be a positive multiple of 16, not {self.page_size!r}.")
        if self.order not in ("HND", "NHD"):
            raise ValueError(f"the order of a page is HND or NHD, not {self.order!r}.")


@dataclass(frozen=True)
class Problem:
    """One attention problem, without its data. Raises ValueError with one sentence when it makes no sense."""

    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    """Cached tokens per sequence; with `kv_lens` or pages, the largest number there may be."""
    head_dim: int
    v_head_dim: int
    causal: bool = True
    """Query i sees keys j <= i + (tokens of its sequence) - q_len."""
    window: int | None = None
    """Only the last `window` visible keys are seen."""
    scale: float | None = None
    """Multiplies q @ k; 1 / sqrt(head_dim) where left out."""
    dtype: str = "bfloat16"
    v_block_axis: int = -1
    """Axis that V's blocks run along: -1 head dim, -2 tokens."""
    layout: Dense | Paged = Dense()
    ragged: bool = False
    """Sequences have lengths of their own, given by `kv_lens` at run time."""

    def __post_init__(self) -> None:
        for name in ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim", "v_head_dim"):
            _require(is_whole(getattr(self, name)), f"{name} must be a whole number below 2^31, not {getattr(self, name)!r}")
        for name in ("batch", "q_heads", "kv_heads", "q_len", "head_dim", "v_head_dim"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        _require(self.kv_len >= 0, f"kv_len must not be negative, and is {self.kv_len}")
        for name in ("head_dim", "v_head_dim"):
            _require(
                getattr(self, name) % 16 == 0,
                f"{name} must be a multiple of 16 (an NVFP4 block), not {getattr(self, name)}",
            )
        _require(
            self.q_heads % self.kv_heads == 0,
            f"q_heads must be a multiple of kv_heads, and {self.q_heads} is not one of {self.kv_heads}",
        )
        _require(
            self.window is None or (is_whole(self.window) and self.window >= 1),
            f"window must be a whole number of at least 1, not {self.window!r}",
        )
        if self.scale is not None:
            object.__setattr__(self, "scale", _scale(self.scale))
        for name in ("causal", "ragged"):
            _require(isinstance(getattr(self, name), bool), f"{name} must be True or False, not {getattr(self, name)!r}")
        _require(self.dtype in DTYPES, f"q must be one of {', '.join(DTYPES)}, not {self.dtype}")
        _require(self.v_block_axis in (-1, -2), f"v_block_axis is -1 (head dim) or -2 (tokens), not {self.v_block_axis}")
        _require(isinstance(self.layout, (Dense, Paged)), f"layout must be Dense() or Paged(page_size), not {self.layout!r}")

    @property
    def softmax_scale(self) -> float:
        return self.head_dim**-0.5 if self.scale is None else self.scale

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.q_heads // self.kv_heads

    @property
    def kv_bytes(self) -> int:
        """Bytes of NVFP4 K and V that a full pass over the cache reads: 9 bytes per block of 16 values."""
        return self.batch * self.kv_heads * self.kv_len * (self.head_dim + self.v_head_dim) * 9 // 16


def is_whole(value: object) -> bool:
    """Whether `value` is an int (a bool is none) that int32, the type of kv_lens and of kernel arguments, can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31


def _scale(given: object) -> float:
    """`given` as a float. Raises ValueError unless it is a number (a bool is none), and a normal one of float32."""
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise ValueError(f"scale must be a positive finite number, not {given!r}.")
    try:
        scale = float(given)
    except OverflowError:
        raise ValueError("scale must be a positive finite number, not a whole number beyond every float.") from None
    _require(0 < scale < math.inf, f"scale must be a positive finite number, not {scale!r}")
    normal = FLOAT32_MIN <= scale <= FLOAT32_MAX
    _require(normal, f"scale must be a normal number of float32, which kernels take it as, not {scale!r}")
    return scale


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(f"{sentence}.")


@dataclass(frozen=True)
class Inputs:
    """The data of one problem, checked against it by `impls.validation`."""

    q: torch.Tensor
    k4: NVFP4Tensor
    v4: NVFP4Tensor
    kv_lens: torch.Tensor | None = None
    block_table: torch.Tensor | None = None


@dataclass(frozen=True)
class Output:
    """What a runner writes."""

    out: torch.Tensor
    """[B, Hq, Sq, Dv], q's dtype."""
    lse: torch.Tensor
    """[B, Hq, Sq] float32, natural log of the sum of exp(scale * q @ k)."""


@dataclass(frozen=True)
class Rounding:
    """A rounding that an implementation adds to the exact operation on one operand.

    `name` is "exact", "float32", "bfloat16", "float16", "float8_e4m3", "float8_e4m3_by_head", "float8_e4m3_by_tensor",
    "float8_e4m3_by_row" or "nvfp4". The reference executes it for q, k and v ("by_head" and "by_tensor" for k and v alone,
    "by_row" for q, see `impls.reference`); for p, the softmax numerators relative to some running maximum, it enters the error
    bound as `unit_roundoff`, and so it does for "partial", results over parts of the keys that are written out and merged once
    more than a kernel does by itself. Where p is rounded to float16 without a bias, which loses what is below 2^-25 of the
    largest, it is "float16_unbiased".
    """

    name: str = "exact"

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of one rounding to nearest: 2^-p for p significant bits."""
        return {
            "exact": 0.0,
            "float32": 2.0**-24,
            "bfloat16": 2.0**-8,
            "float16": 2.0**-11,
            "float16_unbiased": 2.0**-11,
            "float8_e4m3": 2.0**-4,
            "float8_e4m3_by_head": 2.0**-4,
            "float8_e4m3_by_tensor": 2.0**-4,
            "float8_e4m3_by_row": 2.0**-4,
            "nvfp4": 2.0**-2,
        }[self.name]


EXACT = Rounding()
Rounds = Mapping[Literal["q", "k", "v", "p", "partial"], Rounding]
"""Operands left out are exact."""


@dataclass(frozen=True)
class Scalar:
    """A kernel argument passed by value."""

    kind: Literal["i32", "i64", "f32"]
    value: float


@dataclass(frozen=True)
class Launch:
    """One kernel launch: the artefact that is timed, inspected and emulated."""

    ptx: str
    cubin: bytes
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    args: tuple[torch.Tensor | Scalar | None, ...]
    """In the order of the entry's parameters; None is a null pointer."""
    cluster: tuple[int, int, int] = (1, 1, 1)
    overlaps: bool = False
    """May start before the launch before it has ended; the kernel itself waits for what that one writes (programmatic
    dependent launch, compute capability 9.0 and newer)."""


@dataclass(frozen=True)
class Cache:
    """K and V as a plan wants them; by default the NVFP4 tensors themselves."""

    k4: NVFP4Tensor
    v4: NVFP4Tensor
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """What `pack` added."""
    layout: str = "nvfp4"
    """How K and V lie in memory, in words."""

    @property
    def nbytes(self) -> int:
        """Bytes that stay on the device for this cache."""
        return self.k4.nbytes + self.v4.nbytes + sum(t.numel() * t.element_size() for t in self.extra.values())


class Runner(ABC):
    """A bound problem: call it as often as you like, also under graph capture."""

    output: Output

    @abstractmethod
    def __call__(self) -> None:
        """Launch on torch's current stream; allocates nothing, waits for nothing."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernels a call launches, in order; empty for implementations made of torch calls."""
        return ()


class Plan(ABC):
    """A problem prepared for one architecture."""

    problem: Problem
    arch: Arch
    shares_workspace: bool = False
    """Its runners take turns with one workspace, until `new_workspace` is called: a matter of `plan_partial` alone."""

    @property
    def workspace_bytes(self) -> int:
        """Device memory that `bind` allocates besides the outputs; where `shares_workspace`, the first one."""
        return 0

    def describe(self) -> dict[str, int | str]:
        """Tiles, splits and whatever else the planner decided, for records and pages."""
        return {}

    def pack(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
        """Re-lay the cache out; at most 1.1 x the NVFP4 bytes unless the implementation declares more."""
        from impls.validation import check_operands

        check_operands(k4, v4)
        return Cache(k4, v4)

    def new_workspace(self) -> None:
        """What is bound from now on shares no workspace with what was bound before."""
        return

    @abstractmethod
    def bind(
        self,
        q: torch.Tensor,
        cache: Cache,
        *,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        kv_lens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
    ) -> Runner:
        """Fix the tensors. Outputs not given are allocated here. Raises ValueError on tensors that are not the problem's."""


class Implementation(ABC):
    """One way to compute NVFP4 attention. Importing its module imports neither torch nor triton."""

    name: str
    summary: str
    """One line for tables."""
    lists_launches: bool = False
    """Its runners list their kernels in `launches`, also where tensors without a GPU are bound: then `nvfp4bench kernels`
    inspects them for any architecture."""
    repacks: bool = False
    """`pack` turns the cache into another format, of which slices of tokens cannot be taken."""

    @abstractmethod
    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        """None if it can do `problem` on `arch`, else one sentence that says why not."""

    @abstractmethod
    def plan(self, problem: Problem, arch: Arch) -> Plan:
        """Prepare `problem`. Called only where `why_not` is None."""

    def using(self, inner: str) -> Implementation:
        """The same way with the implementation called `inner` inside. Raises ValueError where none can be."""
        raise ValueError(f"{self.name} has no other implementation inside, so {self.name}:{inner} means nothing.")

    def partial_dtype(self, problem: Problem) -> str:
        """What `plan_partial` writes out as: q's dtype, or float32 where it can."""
        return problem.dtype

    def plan_partial(self, problem: Problem, arch: Arch) -> Plan:
        """As `plan`, for results that are merged with others: out is of `partial_dtype`.

        Its runners are called one after the other, and may share one workspace: then the plan `shares_workspace`.
        """
        return self.plan(problem, arch)

    def rounds(self, problem: Problem) -> Rounds:
        """What it rounds beyond the exact operation on the dequantised values."""
        return {}

    def accumulator_chain(self, problem: Problem) -> int:
        """Tokens that one float32 accumulator of P @ V sums before it is merged: n_acc of the error bound."""
        return max(problem.kv_len, 1)
