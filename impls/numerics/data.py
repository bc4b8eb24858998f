"""A case's data in memory: poison where contents do not matter, pages, strides, and the way to another device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from impls.contract import Inputs, Paged, Problem
from impls.numerics import values
from impls.numerics.cases import Case
from impls.numerics.values import Source, Values
from impls.nvfp4 import NVFP4Tensor

POISON_CODES = 0xFF  # -6, -6
POISON_SCALE = 0x7F  # NaN
NO_PAGE = -1
FAR = 2**31 + 2**12
"""Bytes between two pages: a signed 32-bit offset does not reach. Only the pages themselves are touched."""


@dataclass(frozen=True)
class Data:
    """What one case is run on."""

    inputs: Inputs
    original: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None
    """Dense float q, k, v that the inputs were quantised from, for the quantisation error."""


def build(case: Case) -> Data:
    """The data of `case` on the CPU, the same bits each time and everywhere."""
    p = case.problem
    source = Source(case.name)
    made: Values = getattr(values, case.values)(case, source)
    lens = case.kv_lens or (p.kv_len,) * p.batch
    k4, v4 = poisoned(made.k4, lens), poisoned(made.v4, lens)
    kv_lens = torch.tensor(lens, dtype=torch.int32) if p.ragged else None
    table = None
    if isinstance(p.layout, Paged):
        table, count = _block_table(p, lens, source)
        k4, v4 = (_paged(t, table, count, p.layout) for t in (k4, v4))
    q = made.q
    if case.placement == "strided":
        q, k4, v4 = _token_major(q), _spread(k4), _spread(v4)
    elif case.placement == "fused":
        k4, v4 = _fused(k4), _fused(v4)
    elif case.placement == "far":
        k4, v4 = _far(k4), _far(v4)
    original = None if made.k is None or made.v is None else (made.q, made.k, made.v)
    return Data(Inputs(q, k4, v4, kv_lens, table), original)


def to_device(inputs: Inputs, device: torch.device) -> Inputs:
    """The same data with the same strides on `device`, in memory of their own."""

    def cache(t: NVFP4Tensor) -> NVFP4Tensor:
        return replace(t, codes=like(t.codes, device), scales=like(t.scales, device), global_scale=like(t.global_scale, device))

    return Inputs(
        like(inputs.q, device),
        cache(inputs.k4),
        cache(inputs.v4),
        None if inputs.kv_lens is None else like(inputs.kv_lens, device),
        None if inputs.block_table is None else like(inputs.block_table, device),
    )


def like(t: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """A copy with the strides of `t`, gaps included."""
    return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device or t.device).copy_(t)


def poisoned(t: NVFP4Tensor, lens: Sequence[int]) -> NVFP4Tensor:
    """Dense `t` [B, H, S, D] with the tokens from `lens` on overwritten: NaN scales, codes 0xF."""
    codes, scales = t.codes.clone(), t.scales.clone()
    scale_bytes = scales.view(torch.uint8)
    for sequence, tokens in enumerate(lens):
        if t.block_axis == -1:  # stored [B, H, S, D / 2]
            codes[sequence, :, tokens:] = POISON_CODES
            scale_bytes[sequence, :, tokens:] = POISON_SCALE
        else:  # stored [B, H, D, S / 2]: two tokens a byte, sixteen a scale
            if tokens % 2:
                codes[sequence, :, :, tokens // 2] |= 0xF0
            codes[sequence, :, :, -(-tokens // 2) :] = POISON_CODES
            scale_bytes[sequence, :, :, -(-tokens // 16) :] = POISON_SCALE
    return replace(t, codes=codes, scales=scales)


def _block_table(p: Problem, lens: Sequence[int], source: Source) -> tuple[torch.Tensor, int]:
    """(table [B, max_pages] in shuffled order, number of pages, one of them unused)."""
    assert isinstance(p.layout, Paged)
    size = p.layout.page_size
    used = [-(-tokens // size) for tokens in lens]
    count = sum(used) + 1
    order = iter(source.permutation(count))
    table = torch.full((p.batch, p.kv_len // size), NO_PAGE, dtype=torch.int32)
    for sequence, pages in enumerate(used):
        table[sequence, :pages] = torch.tensor([next(order) for _ in range(pages)], dtype=torch.int32)
    return table, count


def _paged(t: NVFP4Tensor, table: torch.Tensor, count: int, layout: Paged) -> NVFP4Tensor:
    """Dense `t` cut into `count` pages; what no table entry names is poison."""
    along_tokens = t.block_axis != -1
    parts = []
    for stored, poison, tokens_per_entry in (
        (t.codes, POISON_CODES, 2),
        (t.scales.view(torch.uint8), POISON_SCALE, 16),
    ):
        size = layout.page_size // tokens_per_entry if along_tokens else layout.page_size
        axis = -1 if along_tokens else -2
        shape = list(stored.shape)
        shape[0], shape[axis] = count, size
        pages = torch.full(shape, poison, dtype=torch.uint8)
        for sequence, row in enumerate(table.tolist()):
            for position, page in enumerate(row):
                if page != NO_PAGE:
                    piece = stored[sequence].narrow(axis, position * size, min(size, stored.shape[axis] - position * size))
                    pages[page].narrow(axis, 0, piece.shape[axis]).copy_(piece)
        if layout.order == "NHD" and not along_tokens:
            pages = pages.transpose(1, 2).contiguous()
        parts.append(pages)
    block_axis = (-3 if layout.order == "NHD" else -2) if along_tokens else -1
    length = layout.page_size if along_tokens else t.length
    return NVFP4Tensor(parts[0], parts[1].view(torch.float8_e4m3fn), t.global_scale, block_axis, length)


def _token_major(t: torch.Tensor) -> torch.Tensor:
    """[B, H, S, D] out of memory in the order [B, S, H, D], with a gap after each head of as many entries."""
    batch, heads, tokens, dim = t.shape
    wide = torch.full((batch, tokens, heads, 2 * dim), torch.nan, dtype=t.dtype)
    wide[..., :dim] = t.transpose(1, 2)
    return wide[..., :dim].transpose(1, 2)


def _spread(t: NVFP4Tensor) -> NVFP4Tensor:
    """Codes and scales in memory in the order [B, S, H, D], with poison in the gaps."""
    parts = []
    for stored, poison in ((t.codes, POISON_CODES), (t.scales.view(torch.uint8), POISON_SCALE)):
        batch, heads, lines, entries = stored.shape
        wide = torch.full((batch, lines, heads, 2 * entries), poison, dtype=torch.uint8)
        wide[..., :entries] = stored.transpose(1, 2)
        parts.append(wide[..., :entries].transpose(1, 2))
    return replace(t, codes=parts[0], scales=parts[1].view(torch.float8_e4m3fn))


def _fused(t: NVFP4Tensor) -> NVFP4Tensor:
    """A line's codes and scales one after the other: rows of D / 2 + D / 16 bytes, as vLLM's pages have them."""
    both = torch.cat((t.codes, t.scales.view(torch.uint8)), dim=-1)
    width = t.codes.shape[-1]
    return replace(t, codes=both[..., :width], scales=both[..., width:].view(torch.float8_e4m3fn))


def _far(t: NVFP4Tensor) -> NVFP4Tensor:
    """Pages `FAR` bytes apart, in memory that is reserved and, but for the pages, never touched."""
    codes = torch.empty_strided(t.codes.shape, (FAR, *t.codes.stride()[1:]), dtype=torch.uint8).copy_(t.codes)
    return replace(t, codes=codes)
