"""The kernels of the quantiser: `largest` finds max|x|, `quantize_rows` and `quantize_columns` round to NVFP4.

A block is 16 elements along a row (the block axis). Where a row's elements are adjacent in memory, a thread reads a whole
block, two elements to a word; a column kernel reads rows of memory across 64 blocks' lines and turns its bytes around on
the way out. A bfloat16 element costs 2 bytes in, 9/16 out and, on sm_90a, 19 instructions by rows and 22 by columns.

The axes are [outer, inner, rows, elements]: a plane is what one (outer, inner) holds. FLAT data have no gaps, so that their
blocks are numbered through. PAIRED data are read as words, so strides count words; else they count elements.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from impls.triton.rounding import default_global_scale, magnitude_bits, round_blocks


@triton.jit
def as_float(bits, FORMAT: tl.constexpr):
    """float32 of the bits of one element, int16 or int32."""
    if FORMAT == "bf16":
        return (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    elif FORMAT == "fp16":  # noqa: RET505 - Triton would compile both returns
        return bits.to(tl.float16, bitcast=True).to(tl.float32)
    else:
        return bits.to(tl.float32, bitcast=True)


@triton.jit
def _halves(words, FORMAT: tl.constexpr):
    """The two elements of each word, the one at the lower address first: int32 words of 16-bit elements, else int64."""
    if FORMAT == "bf16":
        return (words << 16).to(tl.float32, bitcast=True), (words & -0x10000).to(tl.float32, bitcast=True)
    elif FORMAT == "fp16":  # noqa: RET505 - Triton would compile both returns
        return as_float(words.to(tl.int16), FORMAT), as_float((words >> 16).to(tl.int16), FORMAT)
    else:
        return as_float(words.to(tl.int32), FORMAT), as_float((words >> 32).to(tl.int32), FORMAT)


@triton.jit
def _load_blocks(
    x,
    tile,
    blocks,
    row_blocks,
    length,
    inner,
    tiles_per_plane,
    outer_stride,
    inner_stride,
    row_stride,
    element_stride,
    FORMAT: tl.constexpr,
    PAIRED: tl.constexpr,
    FLAT: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """(even elements, odd elements [BLOCKS, 8], number of each block [BLOCKS], whether there is such a block)."""
    pair = tl.arange(0, 8)
    if FLAT:
        number = tl.cast(tile, tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
        exists = number < blocks
        block = number
        start = number * 0
    else:
        plane = tile // tiles_per_plane
        in_plane = tile % tiles_per_plane * BLOCKS + tl.arange(0, BLOCKS)
        exists = in_plane < blocks
        number = plane.to(tl.int64) * blocks + in_plane
        block = (in_plane % row_blocks).to(tl.int64)
        start = (plane // inner).to(tl.int64) * outer_stride + (plane % inner).to(tl.int64) * inner_stride
        start += (in_plane // row_blocks).to(tl.int64) * row_stride
    if PAIRED:
        offset = (start + block * 8)[:, None] + pair[None, :]
        needed = exists[:, None]
        if not WHOLE:
            needed = needed & (block[:, None] * 16 + pair[None, :] * 2 < length)
        even, odd = _halves(tl.load(x + offset, mask=needed, other=0), FORMAT)
    else:
        element = block[:, None] * 16 + pair[None, :] * 2
        address = x + start[:, None] + element * element_stride
        needed = exists[:, None]
        even = as_float(tl.load(address, mask=needed & (element < length), other=0), FORMAT)
        odd = as_float(tl.load(address + element_stride, mask=needed & (element + 1 < length), other=0), FORMAT)
    return even, odd, number, exists


@triton.jit
def _global_scale(given, parts, PARTS: tl.constexpr):
    """The global scale: what is given, or what follows from the largest magnitudes in `parts`; then it is written down."""
    if PARTS == 0:
        return tl.load(given)
    else:  # noqa: RET505 - Triton would compile both returns
        amax = tl.max(tl.load(parts + tl.arange(0, PARTS)), 0).to(tl.float32, bitcast=True)
        scale = default_global_scale(amax)
        if tl.program_id(0) == 0:
            tl.store(given, scale)
        return scale


@triton.jit
def largest(
    x,
    parts,  # int32 [programs]: bits of the largest magnitude that each program has seen
    blocks,
    row_blocks,
    length,
    inner,
    tiles_per_plane,
    tiles,
    outer_stride,
    inner_stride,
    row_stride,
    element_stride,
    FORMAT: tl.constexpr,
    PAIRED: tl.constexpr,
    FLAT: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """max|x|, one result a program; NaN if there is one, else Inf if there is one."""
    most = tl.zeros([BLOCKS, 8], tl.int32)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        even, odd, _, _ = _load_blocks(
            x, tile, blocks, row_blocks, length, inner, tiles_per_plane, outer_stride, inner_stride, row_stride,
            element_stride, FORMAT, PAIRED, FLAT, WHOLE, BLOCKS,
        )  # fmt: skip
        most = tl.maximum(most, tl.maximum(magnitude_bits(even), magnitude_bits(odd)))
    tl.store(parts + tl.program_id(0), tl.max(tl.max(most, 1), 0))


@triton.jit
def quantize_rows(
    x,
    codes,  # uint8 [blocks, 8]
    scales,  # uint8 [blocks]
    global_scale,
    parts,
    blocks,
    row_blocks,
    length,
    inner,
    tiles_per_plane,
    tiles,
    outer_stride,
    inner_stride,
    row_stride,
    element_stride,
    FORMAT: tl.constexpr,
    PAIRED: tl.constexpr,
    FLAT: tl.constexpr,
    WHOLE: tl.constexpr,
    CORRECTIONS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Blocks along the rows."""
    scale = _global_scale(global_scale, parts, PARTS)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        even, odd, number, exists = _load_blocks(
            x, tile, blocks, row_blocks, length, inner, tiles_per_plane, outer_stride, inner_stride, row_stride,
            element_stride, FORMAT, PAIRED, FLAT, WHOLE, BLOCKS,
        )  # fmt: skip
        code, scale_byte = round_blocks(even, odd, scale, 1, CORRECTIONS)
        tl.store(codes + number[:, None] * 8 + tl.arange(0, 8)[None, :], code.to(tl.uint8), mask=exists[:, None])
        tl.store(scales + number, scale_byte.to(tl.uint8), mask=exists)


@triton.jit
def quantize_columns(
    x,
    codes,  # uint8 [planes, lines, line_blocks, 8]
    scales,  # uint8 [planes, lines, line_blocks]
    global_scale,
    parts,
    lines,
    line_blocks,
    tokens,
    inner,
    tiles,
    outer_stride,
    inner_stride,
    token_stride,
    FORMAT: tl.constexpr,
    PAIRED: tl.constexpr,
    CORRECTIONS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    LINES: tl.constexpr,
):
    """Blocks along the tokens of [outer, inner, tokens, lines], whose lines are adjacent in memory."""
    scale = _global_scale(global_scale, parts, PARTS)
    line_tiles = tl.cdiv(lines, LINES)
    block_tiles = tl.cdiv(line_blocks, BLOCKS)
    # Blocks and lines of a tile are one axis, so that a thread holds all the elements of its blocks, which are four: with
    # more of them they do not fit its registers.
    WIDE: tl.constexpr = LINES // 2 if PAIRED else LINES
    place = tl.arange(0, BLOCKS * WIDE)
    pair_token = tl.arange(0, 8) * 2
    pair_offset = pair_token.to(tl.int64) * token_stride
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        first_line = tile % line_tiles * LINES
        first_block = tile // line_tiles % block_tiles * BLOCKS
        plane = tile // line_tiles // block_tiles
        start = (plane // inner).to(tl.int64) * outer_stride + (plane % inner).to(tl.int64) * inner_stride
        token = (first_block + place // WIDE) * 16
        column = place % WIDE + (first_line // 2 if PAIRED else first_line)
        start += token.to(tl.int64) * token_stride + column  # [BLOCKS * WIDE]
        offset = start[None, :] + pair_offset[:, None]
        offset = tl.max_contiguous(offset, [1, 2 if PAIRED else 4])
        there = (column < (lines // 2 if PAIRED else lines))[None, :]
        token = token[None, :] + pair_token[:, None]
        even = tl.load(x + offset, mask=there & (token < tokens), other=0)  # [8, BLOCKS * WIDE]
        odd = tl.load(x + offset + token_stride, mask=there & (token + 1 < tokens), other=0)
        if PAIRED:  # a word holds two lines
            even, even_2 = _halves(even, FORMAT)
            odd, odd_2 = _halves(odd, FORMAT)
            code, scale_byte = round_blocks(even, odd, scale, 0, CORRECTIONS)
            code_2, scale_byte_2 = round_blocks(even_2, odd_2, scale, 0, CORRECTIONS)
            code, scale_byte = tl.join(code, code_2), tl.join(scale_byte, scale_byte_2)
        else:
            code, scale_byte = round_blocks(as_float(even, FORMAT), as_float(odd, FORMAT), scale, 0, CORRECTIONS)
        code = tl.permute(code.to(tl.uint8).reshape(8, BLOCKS, LINES), (2, 1, 0)).reshape(LINES, BLOCKS * 8)
        scale_byte = tl.trans(scale_byte.to(tl.uint8).reshape(BLOCKS, LINES))

        line = first_line + tl.arange(0, LINES)
        block = first_block + tl.arange(0, BLOCKS)
        byte = first_block * 8 + tl.arange(0, BLOCKS * 8)
        row = (plane.to(tl.int64) * lines + line) * line_blocks
        written = (line < lines)[:, None]
        tl.store(codes + (row * 8)[:, None] + byte[None, :], code, mask=written & (byte < line_blocks * 8)[None, :])
        tl.store(scales + row[:, None] + block[None, :], scale_byte, mask=written & (block < line_blocks)[None, :])
