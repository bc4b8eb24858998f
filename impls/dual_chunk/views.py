"""The part of an attention problem's tensors that a pass is about, as views: nothing is copied."""

from __future__ import annotations

import torch

from impls.contract import Inputs, Output, Paged, Problem
from impls.dual_chunk.planner import Pass, Tile
from impls.nvfp4 import BLOCK, NVFP4Tensor


def part(problem: Problem, inputs: Inputs, tile: Tile, one: Pass, lengths: torch.Tensor | None) -> Inputs:
    """What pass `one` of `tile` reads. `lengths` [B] takes the place of `kv_lens`.

    A paged cache stays as it is, and its block table begins later.
    """
    q = inputs.q[:, :, tile.start : tile.stop]
    if isinstance(problem.layout, Paged):
        assert inputs.block_table is not None
        size = problem.layout.page_size
        pages = inputs.block_table[:, one.start // size : -(-one.stop // size)]
        return Inputs(q, inputs.k4, inputs.v4, lengths, pages)
    return Inputs(q, tokens(inputs.k4, one.start, one.stop), tokens(inputs.v4, one.start, one.stop), lengths)


def rows(output: Output, tile: Tile) -> Output:
    """The rows of `tile`."""
    return Output(output.out[:, :, tile.start : tile.stop], output.lse[:, :, tile.start : tile.stop])


def tokens(cache: NVFP4Tensor, start: int, stop: int) -> NVFP4Tensor:
    """Tokens start <= t < stop of a dense cache [B, H, S, D]; `start` is that of a block where blocks run along tokens."""
    if cache.block_axis == -1:
        codes, scales = cache.codes[:, :, start:stop], cache.scales[:, :, start:stop]
        return NVFP4Tensor(codes, scales, cache.global_scale, length=cache.length)
    first, end = start // BLOCK, -(-stop // BLOCK)
    codes = cache.codes[..., first * BLOCK // 2 : end * BLOCK // 2]
    return NVFP4Tensor(codes, cache.scales[..., first:end], cache.global_scale, cache.block_axis, stop - start)
