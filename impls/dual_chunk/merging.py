"""How partial results are merged and lengths are taken: by our kernels, or by torch on a CPU that does not interpret Triton."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from impls.arch import CPU, Arch
from impls.contract import Output, Problem
from impls.triton import availability

Call = Callable[[], None]


@dataclass(frozen=True)
class State:
    """What is merged so far of B sequences, Hq heads and Sq queries; see `kernels`."""

    acc: torch.Tensor
    """[B, Hq, Sq, Dv] float32."""
    top: torch.Tensor
    """[B, Hq, Sq] float32."""
    total: torch.Tensor
    """[B, Hq, Sq] float32."""


@dataclass(frozen=True)
class Fold:
    """One merge."""

    state: State
    new: State
    """What it becomes: the same `acc`, and another `top` and `total`."""
    first: Output | None
    """Result of the first pass, if that is all there is so far; its lse is `state.top`."""
    part: Output
    """What is merged into it."""
    into: Output | None
    """Where the result goes, if this is the last merge."""


@dataclass(frozen=True)
class Lengths:
    """What `take_lengths` works on."""

    kv_lens: torch.Tensor
    """[B] int32."""
    rules: torch.Tensor
    """[passes, 5] int32."""
    lengths: torch.Tensor
    """[passes, B] int32."""


class Merging(ABC):
    """Makes calls that allocate nothing on a GPU."""

    name: str

    @abstractmethod
    def prepare(self, most_passes: int) -> None:
        """Do what needs no data, for tiles of at most so many passes."""

    @abstractmethod
    def fold(self, fold: Fold) -> Any:
        """A call, with `launches` where there are kernels."""

    @abstractmethod
    def take_lengths(self, given: Lengths) -> Any:
        """A call, as `fold`."""


def merging(problem: Problem, arch: Arch, out_dtype: str, partial_dtype: str) -> Merging:
    """Our kernels wherever Triton runs; on a CPU where it does not, torch."""
    if arch.is_gpu or availability.why_not(CPU) is None:
        from impls.dual_chunk.launching import TritonMerging

        return TritonMerging(problem, arch, out_dtype, partial_dtype)
    return TorchMerging(problem)


class TorchMerging(Merging):
    name = "torch"

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def prepare(self, most_passes: int) -> None:
        pass

    def fold(self, fold: Fold) -> Call:
        return lambda: _fold(fold)

    def take_lengths(self, given: Lengths) -> Call:
        kv_len = self._problem.kv_len

        def call() -> None:
            start, length, delay, at_least, below = given.rules[..., None].unbind(1)  # [passes, 1]
            seen = given.kv_lens.clamp(0, kv_len) - delay  # [passes, B]
            taken = torch.minimum((seen - start).clamp(min=0), length)
            given.lengths.copy_(torch.where((seen >= at_least) & (seen < below), taken, 0))

        return call


def _fold(fold: Fold) -> None:
    """As `kernels.fold`."""
    state, part, into = fold.state, fold.part, fold.into
    new_top = torch.maximum(state.top, part.lse)
    shift = new_top.masked_fill(new_top == -torch.inf, 0.0)
    keep, weight = torch.exp(state.top - shift), torch.exp(part.lse - shift)
    old_out, old_total = (state.acc, state.total) if fold.first is None else (fold.first.out.float(), 1.0)
    total = old_total * keep + weight
    acc = old_out * keep.unsqueeze(-1) + part.out.float() * weight.unsqueeze(-1)
    if into is None:
        fold.new.acc.copy_(acc)
        fold.new.top.copy_(new_top)
        fold.new.total.copy_(total)
        return
    divisor = total.masked_fill(total == 0, 1.0)
    into.out.copy_(acc / divisor.unsqueeze(-1))
    into.lse.copy_(new_top + torch.log(total))
