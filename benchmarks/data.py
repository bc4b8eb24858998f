"""Random data, made where it is used and in slices: the same for every implementation.

A cache of 32 sequences of 32768 tokens at head dim 512 would take 17 GiB in float32, and quantising it about ten times that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from impls.contract import Inputs, Problem

if TYPE_CHECKING:
    import torch

    from impls.nvfp4 import NVFP4Tensor

SLICE = 1 << 26
"""Values that are quantised at a time: with ten float32 temporaries, 2.5 GiB."""


def device_inputs(problem: Problem, device: torch.device | str) -> Inputs:
    """Standard normal q, k4 and v4 of `problem`; a device gives the same data each time, two kinds of device do not."""
    import torch

    p = problem
    q = torch.empty(p.batch, p.q_heads, p.q_len, p.head_dim, dtype=getattr(torch, p.dtype), device=device)
    heads = q.flatten(0, 1)
    start = 0
    for piece in _normal(len(heads), p.q_len, p.head_dim, 0, device):
        heads[start : start + len(piece)] = piece
        start += len(piece)
    k4 = _quantised_normal(p, p.head_dim, -1, 1, device)
    v4 = _quantised_normal(p, p.v_head_dim, p.v_block_axis, 2, device)
    return Inputs(q, k4, v4)


def largest_value(cache: NVFP4Tensor) -> float:
    """Largest |value| of a cache [B, H, ...], decoded a slice at a time."""
    from impls.nvfp4 import NVFP4Tensor, decode

    codes, scales = cache.codes.flatten(0, 1), cache.scales.flatten(0, 1)
    step = _heads_in_a_slice(2 * codes[0].numel())
    largest = 0.0
    for start in range(0, len(codes), step):
        part = slice(start, start + step)
        piece = NVFP4Tensor(codes[part], scales[part], cache.global_scale, cache.block_axis, cache.length)
        largest = max(largest, float(decode(piece).abs().max()))
    return largest * float(cache.global_scale)


def normal_weights(outputs: int, inputs: int, seed: int, device: torch.device | str) -> NVFP4Tensor:
    """Standard normal [outputs, inputs], blocks along the inputs."""
    from impls.nvfp4 import NVFP4Tensor

    drawn = _quantised_slices((1, outputs, inputs, seed, device), -1)
    return NVFP4Tensor(drawn.codes[0], drawn.scales[0], drawn.global_scale, -1, drawn.length)


def _quantised_normal(problem: Problem, dim: int, block_axis: int, seed: int, device: torch.device | str) -> NVFP4Tensor:
    """[B, Hkv, Sk, dim]"""
    from impls.nvfp4 import NVFP4Tensor

    p = problem
    drawn = _quantised_slices((p.batch * p.kv_heads, p.kv_len, dim, seed, device), block_axis)
    codes, scales = (part.unflatten(0, (p.batch, p.kv_heads)) for part in (drawn.codes, drawn.scales))
    return NVFP4Tensor(codes, scales, drawn.global_scale, drawn.block_axis, drawn.length)


def _quantised_slices(drawn: tuple[int, int, int, int, torch.device | str], block_axis: int) -> NVFP4Tensor:
    """What `_normal` draws, as `quantize` makes it of the whole: drawn twice, first for the global scale alone."""
    import torch

    from impls.nvfp4 import NVFP4Tensor, default_global_scale, quantize

    scale = default_global_scale(torch.stack([piece.abs().amax() for piece in _normal(*drawn)]))
    pieces = [quantize(piece, block_axis=block_axis, global_scale=scale, check=False) for piece in _normal(*drawn)]
    codes = torch.cat([piece.codes for piece in pieces])
    # not every torch joins float8 tensors
    scales = torch.cat([piece.scales.view(torch.uint8) for piece in pieces])
    return NVFP4Tensor(codes, scales.view(torch.float8_e4m3fn), scale, pieces[0].block_axis, pieces[0].length)


def _normal(heads: int, tokens: int, dim: int, seed: int, device: torch.device | str) -> Iterator[torch.Tensor]:
    """Float32 [n, tokens, dim], slice after slice until there are `heads` of them."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    step = _heads_in_a_slice(tokens * dim)
    for start in range(0, heads, step):
        yield torch.randn(min(step, heads - start), tokens, dim, generator=generator, device=device)


def _heads_in_a_slice(values: int) -> int:
    return max(SLICE // values, 1)
