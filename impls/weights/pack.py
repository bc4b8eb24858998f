"""NVFP4 weights into the order that `decode` describes: whole tiles of 128 elements of K, a tile of all lines after another.

    codes   uint8 [tiles, N, 64]      scales  uint8 [tiles, N, 8]      zeros beyond K

A step of the kernel reads one run of memory for all its lines. The order does not depend on the number of rows of x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from impls.weights.planner import TILE, tile_count

if TYPE_CHECKING:
    import torch

    from impls.nvfp4 import NVFP4Tensor

_LOWEST_BIT = 6, 3, 0
"""Of the three bits that E2M1 has besides its sign, for the pairs a, b and c; their signs are 9 bits above."""


def pack(w4: NVFP4Tensor) -> dict[str, torch.Tensor]:
    """{"codes", "scales", "global_scale"} of w4 [N, K]. What lies beyond K is left out."""
    import torch

    lines, inputs = w4.shape
    tiles = tile_count(inputs)
    blocks = w4.scales.shape[-1]
    padding = tiles * TILE // 16 - blocks
    scales = torch.nn.functional.pad(w4.scales.view(torch.uint8), (0, padding))
    scales = scales.view(lines, tiles, TILE // 16).transpose(0, 1).contiguous()

    codes = torch.nn.functional.pad(w4.codes, (0, 8 * padding)).view(lines, tiles, 2, 16, 2)  # half, word, byte
    codes = codes.transpose(0, 1)
    first, second = codes & 0xF, codes >> 4  # elements 0, 2 and 1, 3 of a word
    halves = torch.stack((_half(first), _half(second)), dim=-1)  # [tiles, N, 16 words, half]
    packed = torch.stack((halves & 0xFF, halves >> 8), dim=-1).to(torch.uint8)
    return {"codes": packed.flatten(2), "scales": scales, "global_scale": w4.global_scale}


def _half(codes: torch.Tensor) -> torch.Tensor:
    """int32 [tiles, N, 16]: half a word of the codes [tiles, N, half of the tile, word, pair], one of each pair."""
    import torch

    wide = codes.to(torch.int32)
    pairs = [wide[..., half, :, pair] for half in range(2) for pair in range(2)]
    word = torch.zeros_like(pairs[0])
    for code, lowest in zip(pairs[:3], _LOWEST_BIT, strict=True):
        word |= (code & 0x7) << lowest | (code & 0x8) >> 3 << lowest + 9
    d = pairs[3]
    return word | (d & 0x8) << 11 | (d & 0x4) << 11 | (d & 0x3) << 10
