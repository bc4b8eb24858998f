"""Where the entries of tensors lie: whether some share memory, by address and strides alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def why_not_written(tensor: torch.Tensor) -> str | None:
    """None if each entry of `tensor` has memory of its own, else what follows its name in a sentence.

    Exact where strides nest, each at least as long as all that the shorter ones span; others are refused, though a few of
    them share nothing.
    """
    if tensor.is_contiguous():  # most are, and one call says so
        return None
    span = 1
    for stride, size in _axes(tensor):
        if stride == 0:
            return "is an expanded tensor whose entries share memory; pass one with memory for each entry."
        if stride < span:
            lies = f"shape {list(tensor.shape)}, strides {list(tensor.stride())}"
            return f"has entries that may share memory ({lies}); pass one with memory for each entry."
        span += (size - 1) * stride
    return None


def may_share(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether an entry of `a` may lie where one of `b` does. Exact where their bytes lie apart or each is one run of bytes,
    and for parts of the lines of one matrix; where strides have little in common, tensors that interleave count as sharing.
    """
    if a.device != b.device or a.device.type == "meta" or not a.numel() or not b.numel():
        return False
    first, second = a.data_ptr(), b.data_ptr()
    if first + _span(a) <= second or second + _span(b) <= first:
        return False
    (run, steps), (other_run, other_steps) = _runs(a), _runs(b)
    period = math.gcd(*steps, *other_steps)  # all runs begin at these two addresses, but for multiples of it
    if not period:
        return True
    later = (second - first) % period
    return later < run or later + other_run > period


def check_written(written: dict[str, torch.Tensor], read: dict[str, torch.Tensor]) -> None:
    """Raises ValueError where entries that are written share memory with each other, or with those that are read."""
    others = dict(read)
    for name, tensor in written.items():
        if reason := why_not_written(tensor):
            raise ValueError(f"{name} {reason}")
        for other, given in others.items():
            if may_share(tensor, given):
                raise ValueError(f"{name} may share memory with {other}; pass one with memory of its own.")
        others[name] = tensor


def _axes(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """(stride, size) of the axes with more than one entry, from the shortest stride on."""
    return sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first entry to the end of the last."""
    if tensor.is_contiguous():
        return tensor.numel() * tensor.element_size()
    return (1 + sum((size - 1) * stride for stride, size in _axes(tensor))) * tensor.element_size()


def _runs(tensor: torch.Tensor) -> tuple[int, list[int]]:
    """(bytes in a run of entries without a gap, strides in bytes between runs)."""
    width = tensor.element_size()
    run = width
    steps: list[int] = []
    for stride, size in _axes(tensor):
        if stride * width == run and not steps:
            run *= size
        else:
            steps.append(stride * width)
    return run, steps
