"""Where the block scales of a [rows, columns] matrix lie in the swizzled buffers of other libraries.

A column is a block of 16 values. Each layout is a formula for the byte offset of scale [r, c]; `swizzle` and `unswizzle`
follow it, on [..., rows, columns] with any leading axes. Tiles never reach across leading axes: a library that
sees [B, H, S, columns] as one matrix wants `scales.flatten(0, -2)`.

Formulas: cuBLAS documentation, "1D block scaling factors layout" (128x4); FlashInfer `nvfp4_quantize_paged_kv_cache`
(V of trtllm-gen); SageAttention3 `fp4_quantization_4d.cu` (64-row tiles).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class ScaleLayout(Enum):
    """A layout of scales. The numbers are the rows and columns that its buffers come in multiples of."""

    LINEAR = (1, 1)
    """Row after row."""

    TILE_128X4 = (128, 4)
    """cuBLAS, CUTLASS, Transformer Engine, FlashInfer: tiles of 128 rows x 4 columns, 512 bytes.

    Four quarters of 32 rows lie side by side, so 16 bytes hold rows r, r + 32, r + 64 and r + 96:

        byte      0         4         8         12        15
        0         r0 c0-3   r32 c0-3  r64 c0-3  r96 c0-3
        16        r1 c0-3   r33 c0-3  r65 c0-3  r97 c0-3
        ...
        496       r31 c0-3  r63 c0-3  r95 c0-3  r127 c0-3       then columns 4 to 7 of the same rows

        offset = (r / 128) * 128 * C  +  (c / 4) * 512  +  (r % 32) * 16  +  (r % 128) / 32 * 4  +  c % 4

    Rows are padded to 128 and columns to C, a multiple of 4. The padding is zero on the way out and ignored on the way in.
    """

    TILE_64 = (64, 4)
    """SageAttention3 and FlashInfer's sm_120 attention: tiles of 64 rows x 4 columns, 256 bytes.

        byte      0         4         8         12        15
        0         r0 c0-3   r16 c0-3  r32 c0-3  r48 c0-3
        16        r1 c0-3   r17 c0-3  r33 c0-3  r49 c0-3
        ...
        240       r15 c0-3  r31 c0-3  r47 c0-3  r63 c0-3        then columns 4 to 7 of the same rows

        offset = (r / 64) * 64 * C  +  (c / 4) * 256  +  (r % 16) * 16  +  (r % 64) / 16 * 4  +  c % 4

    Rows are padded to 64 and columns to C, a multiple of 4, as above. Rows are tokens for Q and K, and head dims for V,
    whose blocks run along the tokens. These libraries also reorder the tokens of K within groups of 32, codes and scales
    alike; that is a permutation of rows, and no part of this layout.
    """

    TOKEN_4 = (4, 4)
    """V scales of trtllm-gen pages (FlashInfer, vLLM, TensorRT-LLM): 4 tokens interleaved byte by byte.

        byte      0      1      2      3      4      5
        0         t0 s0  t1 s0  t2 s0  t3 s0  t0 s1  t1 s1 ...
        4 * S     t4 s0  t5 s0  t6 s0  t7 s0  t4 s1  t5 s1 ...

        offset = (t / 4) * 4 * S  +  s * 4  +  t % 4            t: token of the page, s: block of the head dim, S of them

    Rows are the tokens of one page and head: [pages, Hkv, page_size, S], so NHD pages are transposed first. Not padded:
    page_size and S must be multiples of 4 (a head dim that is a multiple of 64).
    """


def padded_shape(layout: ScaleLayout, rows: int, columns: int) -> tuple[int, int]:
    """(rows, columns) that a buffer in `layout` has room for. Raises ValueError where the layout cannot be padded."""
    if layout is ScaleLayout.TOKEN_4 and (rows % 4 or columns % 4):
        raise ValueError(f"TOKEN_4 scales need multiples of 4 tokens x 4 blocks, not {rows} x {columns}.")
    tile_rows, tile_columns = layout.value
    return -(-rows // tile_rows) * tile_rows, -(-columns // tile_columns) * tile_columns


def offsets(layout: ScaleLayout, rows: int, columns: int, device: torch.device | None = None) -> torch.Tensor:
    """[rows, columns] int64: the byte offset of each scale, by the formula of `layout`."""
    import torch

    _, width = padded_shape(layout, rows, columns)
    r = torch.arange(rows, device=device)[:, None]
    c = torch.arange(columns, device=device)
    if layout is ScaleLayout.TILE_128X4:
        return r // 128 * 128 * width + c // 4 * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4
    if layout is ScaleLayout.TILE_64:
        return r // 64 * 64 * width + c // 4 * 256 + r % 16 * 16 + r % 64 // 16 * 4 + c % 4
    if layout is ScaleLayout.TOKEN_4:
        return r // 4 * 4 * width + c * 4 + r % 4
    return r * width + c


def swizzle(scales: torch.Tensor, layout: ScaleLayout) -> torch.Tensor:
    """Linear `scales` [..., rows, columns] as a buffer [..., bytes] in `layout`, dtype kept, padding zero."""
    import torch

    if scales.ndim < 2 or scales.element_size() != 1:
        raise ValueError(f"scales must be [..., rows, columns] of an 8-bit type, not {list(scales.shape)} {scales.dtype}.")
    rows, columns = scales.shape[-2:]
    padded_rows, width = padded_shape(layout, rows, columns)
    buffer = torch.zeros(*scales.shape[:-2], padded_rows * width, dtype=torch.uint8, device=scales.device)
    at = offsets(layout, rows, columns, scales.device).flatten()
    buffer[..., at] = scales.view(torch.uint8).flatten(-2)
    return buffer.view(scales.dtype)


def unswizzle(buffer: torch.Tensor, layout: ScaleLayout, rows: int, columns: int) -> torch.Tensor:
    """The linear scales [..., rows, columns] of a `buffer` [..., bytes] in `layout`; padding is not looked at.

    Raises ValueError when the buffer is not as long as `layout` makes it.
    """
    import torch

    padded_rows, width = padded_shape(layout, rows, columns)
    if buffer.ndim < 1 or buffer.element_size() != 1 or buffer.shape[-1] != padded_rows * width:
        wanted = f"[..., {padded_rows} * {width}] of an 8-bit type"
        raise ValueError(
            f"{layout.name} scales of {rows} rows x {columns} columns must be {wanted}, "
            f"not {list(buffer.shape)} {buffer.dtype}; flatten their last axes."
        )
    at = offsets(layout, rows, columns, buffer.device)
    return buffer.view(torch.uint8)[..., at].view(buffer.dtype)
