"""The two Triton kernels: `attend`, a tile of query rows against a range of keys, and `merge`, which joins such ranges.

Query rows of one key-value head's group are packed: row r of a head's q_len * GROUP rows is query r // GROUP of head
r % GROUP, so a decode step fills a tensor-core tile with the heads that share its keys, and prefill reads a key tile once
for all of them. A program owns BLOCK_M rows and walks the keys that any of them sees, BLOCK_N at a time:

    grid = (row tiles * kv_heads * batch, splits)

With `splits` > 1 each program takes an even share of those keys and leaves a complete result of its share, out and lse, in
float32; `merge` weighs them by exp(lse). The share depends on the length that the kernel reads, not on the planned one.

Softmax runs on base-2 scores. Its numerators are exp2(s - max + P_BIAS) in float16: with the largest at 2^15, float16 keeps
all of its 11 bits down to 2^-29 of the largest and some of them to 2^-39, where bfloat16 would keep 8. The bias cancels in
out, and is taken off lse.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from impls.triton.dequantize import UNIT, dequantize, operand, rounded

LN_2 = tl.constexpr(0.6931471805599453)
LOG2_E = tl.constexpr(1.4426950408889634)
P_BIAS = tl.constexpr(15.0)  # 2^15 is the largest power of two in float16
_UNIT = tl.constexpr(UNIT)
_NO_KEY = tl.constexpr(float("-inf"))


@triton.jit
def _load_rows(rows, needed, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """uint8 [R, PADDED]: WIDTH bytes at each of the addresses `rows` [R] that is needed, zeros elsewhere."""
    byte = tl.arange(0, PADDED)
    return tl.load(rows[:, None] + byte[None, :], mask=needed[:, None] & (byte < WIDTH)[None, :], other=0)


@triton.jit
def _load_columns(columns, needed, line_stride, LINES: tl.constexpr, PADDED: tl.constexpr):
    """uint8 [PADDED, C]: the byte at each of the addresses `columns` [C] that is needed, on each of LINES lines."""
    line = tl.arange(0, PADDED)
    offset = line.to(tl.int64) * line_stride
    return tl.load(columns[None, :] + offset[:, None], mask=needed[None, :] & (line < LINES)[:, None], other=0)


@triton.jit
def _locate(entries, needed, pages, page_stride, PAGE_SIZE: tl.constexpr, TOKENS: tl.constexpr):
    """(page, slot in it) of each entry of TOKENS tokens, int64.

    `pages` is the sequence's block table, or its one page in a dense cache.
    """
    if PAGE_SIZE is None:
        return pages, entries.to(tl.int64)
    else:  # noqa: RET505 - Triton would compile both returns
        per_page: tl.constexpr = PAGE_SIZE // TOKENS
        page = tl.load(pages + (entries // per_page).to(tl.int64) * page_stride, mask=needed, other=0)
        return page.to(tl.int64), (entries % per_page).to(tl.int64)


@triton.jit
def attend(
    q,
    k_codes,
    k_scales,
    k_global,
    v_codes,
    v_scales,
    v_global,
    out,
    lse,
    kv_lens,
    block_table,
    scale_log2,  # the softmax scale times log2(e)
    q_batch_stride,
    q_head_stride,
    q_row_stride,
    k_codes_page_stride,  # a page of a dense cache is a sequence
    k_codes_head_stride,
    k_codes_token_stride,
    k_scales_page_stride,
    k_scales_head_stride,
    k_scales_token_stride,
    v_codes_page_stride,
    v_codes_head_stride,
    v_codes_line_stride,  # a line is a token, or a head dim where V's blocks run along the tokens
    v_scales_page_stride,
    v_scales_head_stride,
    v_scales_line_stride,
    out_split_stride,
    out_batch_stride,
    out_head_stride,
    out_row_stride,
    lse_split_stride,
    lse_batch_stride,
    lse_head_stride,
    lse_row_stride,
    kv_lens_batch_stride,
    block_table_batch_stride,
    block_table_page_stride,
    kv_heads,
    q_len,
    kv_len,
    window,
    splits,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    V_HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,  # None for a dense cache
    V_ALONG_TOKENS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    D: tl.constexpr,  # HEAD_DIM and V_HEAD_DIM, padded to powers of two
    DV: tl.constexpr,
):
    row_tiles = tl.cdiv(q_len * GROUP, BLOCK_M)
    kv_head = tl.program_id(0) // row_tiles % kv_heads
    batch = tl.program_id(0) // row_tiles // kv_heads
    split = tl.program_id(1)
    row_tile = (
        row_tiles - 1 - tl.program_id(0) % row_tiles
    )  # under a causal mask the last tiles have most keys: start them first

    tokens = kv_len
    if kv_lens is not None:
        tokens = tl.minimum(tl.maximum(tl.load(kv_lens + batch.to(tl.int64) * kv_lens_batch_stride), 0), kv_len)

    rows = row_tile * BLOCK_M + tl.arange(0, BLOCK_M)  # [M]
    row_exists = rows < q_len * GROUP
    query = rows // GROUP
    head = kv_head * GROUP + rows % GROUP

    # Keys that a row sees: first <= key <= last. Keys that any row of the tile sees: begin <= key < end.
    first_query = row_tile * BLOCK_M // GROUP
    last_query = (tl.minimum((row_tile + 1) * BLOCK_M, q_len * GROUP) - 1) // GROUP
    if CAUSAL:
        last = query + (tokens - q_len)
        first_last = first_query + (tokens - q_len)
        end = tl.maximum(last_query + (tokens - q_len) + 1, 0)
    else:
        last = query * 0 + (tokens - 1)
        first_last = tokens - 1
        end = tokens
    if WINDOWED:
        first = last + 1 - window
        begin = tl.maximum(first_last + 1 - window, 0)
    else:
        begin = 0

    first_tile = begin // BLOCK_N
    tiles = tl.cdiv(end, BLOCK_N) - first_tile
    tiles_each = tl.cdiv(tiles, splits)
    start = (first_tile + split * tiles_each) * BLOCK_N
    stop = tl.minimum(start + tiles_each * BLOCK_N, end)

    batch_64 = batch.to(tl.int64)
    head_64 = head.to(tl.int64)
    kv_head_64 = kv_head.to(tl.int64)
    query_64 = query.to(tl.int64)
    q_rows = q + batch_64 * q_batch_stride + head_64 * q_head_stride + query_64 * q_row_stride
    dim = tl.arange(0, D)
    DTYPE: tl.constexpr = q.dtype.element_ty
    q_tile = tl.load(q_rows[:, None] + dim[None, :], mask=row_exists[:, None] & (dim < HEAD_DIM)[None, :], other=0.0)
    q_tile = operand(q_tile, DTYPE)  # [M, D]
    scale = scale_log2 * _UNIT * tl.load(k_global)

    k_codes += kv_head_64 * k_codes_head_stride
    k_scales += kv_head_64 * k_scales_head_stride
    v_codes += kv_head_64 * v_codes_head_stride
    v_scales += kv_head_64 * v_scales_head_stride
    pages = batch_64
    if PAGE_SIZE is not None:
        pages = block_table + batch_64 * block_table_batch_stride

    top = tl.full([BLOCK_M], _NO_KEY, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DV], tl.float32)
    for key in tl.range(start, stop, BLOCK_N):
        keys = key + tl.arange(0, BLOCK_N)  # [N]
        needed = (keys >= begin) & (keys < end)
        page, slot = _locate(keys, needed, pages, block_table_page_stride, PAGE_SIZE, 1)
        k_tile = dequantize(
            _load_rows(k_codes + page * k_codes_page_stride + slot * k_codes_token_stride, needed, HEAD_DIM // 2, D // 2),
            _load_rows(k_scales + page * k_scales_page_stride + slot * k_scales_token_stride, needed, HEAD_DIM // 16, D // 16),
            DTYPE,
        )  # [N, D]
        s = tl.dot(q_tile, tl.trans(k_tile)) * scale  # [M, N]
        visible = needed[None, :] & (keys[None, :] <= last[:, None])
        if WINDOWED:
            visible = visible & (keys[None, :] >= first[:, None])
        s = tl.where(visible, s, _NO_KEY)

        new_top = tl.maximum(top, tl.max(s, 1))
        shift = tl.where(new_top == _NO_KEY, 0.0, new_top)  # a row that has seen no key yet: exp2(-inf - 0), not -inf + inf
        p = tl.exp2(s - (shift - P_BIAS)[:, None])
        keep = tl.exp2(top - shift)
        total = total * keep + tl.sum(p, 1)
        top = new_top

        if V_ALONG_TOKENS:
            # A block of 16 tokens is a scale and 8 bytes of codes, stored whole; p is 0 for those of its tokens that are not
            # seen. Its bytes are masked as one, and called a run of 8, so that one thread loads them and two or more share
            # a line. Where threads run across lines (Triton 3.6.0), or one holds a whole line (3.6.0, 3.7.1, 3.9.0), the
            # transposed tile does not compile for a warp group: "Illegal shared layout".
            byte = key // 2 + tl.arange(0, BLOCK_N // 2)
            byte_needed = (byte // 8 * 16 + 15 >= begin) & (byte // 8 * 16 < end)
            page, slot = _locate(byte, byte_needed, pages, block_table_page_stride, PAGE_SIZE, 2)
            codes = v_codes + tl.max_contiguous(page * v_codes_page_stride + slot, 8)
            block = key // 16 + tl.arange(0, BLOCK_N // 16)
            block_needed = (block * 16 + 15 >= begin) & (block * 16 < end)
            page, slot = _locate(block, block_needed, pages, block_table_page_stride, PAGE_SIZE, 16)
            scales = v_scales + page * v_scales_page_stride + slot
            v_tile = dequantize(
                _load_columns(codes, byte_needed, v_codes_line_stride, V_HEAD_DIM, DV),
                _load_columns(scales, block_needed, v_scales_line_stride, V_HEAD_DIM, DV),
                tl.float16,
            )
            v_tile = tl.trans(v_tile)  # [N, DV]
        else:
            codes = v_codes + page * v_codes_page_stride + slot * v_codes_line_stride
            scales = v_scales + page * v_scales_page_stride + slot * v_scales_line_stride
            v_tile = dequantize(
                _load_rows(codes, needed, V_HEAD_DIM // 2, DV // 2),
                _load_rows(scales, needed, V_HEAD_DIM // 16, DV // 16),
                tl.float16,
            )  # [N, DV]
        acc = tl.dot(p.to(tl.float16), v_tile, acc * keep[:, None])

    empty = total == 0.0
    divisor = tl.where(empty, 1.0, total)
    result = acc / divisor[:, None] * (tl.load(v_global) * _UNIT)
    row_lse = tl.where(empty, _NO_KEY, (top + tl.log2(divisor) - P_BIAS) * LN_2)

    split_64 = split.to(tl.int64)
    lse_rows = split_64 * lse_split_stride + batch_64 * lse_batch_stride + head_64 * lse_head_stride + query_64 * lse_row_stride
    out_rows = split_64 * out_split_stride + batch_64 * out_batch_stride + head_64 * out_head_stride + query_64 * out_row_stride
    tl.store(lse + lse_rows, row_lse, mask=row_exists)
    v_dim = tl.arange(0, DV)
    tl.store(
        out + out_rows[:, None] + v_dim[None, :],
        rounded(result, out.dtype.element_ty),
        mask=row_exists[:, None] & (v_dim < V_HEAD_DIM)[None, :],
    )


@triton.jit
def merge(
    partial_out,  # float32 [splits, B, Hq, Sq, Dv], contiguous
    partial_lse,  # float32 [splits, B, Hq, Sq], contiguous
    out,
    lse,
    out_batch_stride,
    out_head_stride,
    out_row_stride,
    lse_batch_stride,
    lse_head_stride,
    lse_row_stride,
    q_heads,
    q_len,
    splits,
    V_HEAD_DIM: tl.constexpr,
    CHUNK: tl.constexpr,
    DV: tl.constexpr,
):
    """out = sum_s exp(lse_s - lse) out_s of one row, lse = log sum_s exp(lse_s)."""
    row = tl.program_id(0)
    rows = tl.num_programs(0).to(tl.int64)
    dim = tl.arange(0, DV)
    top = float("-inf")
    total = 0.0
    acc = tl.zeros([DV], tl.float32)
    for start in tl.range(0, splits, CHUNK):
        part = start + tl.arange(0, CHUNK)
        exists = part < splits
        index = part.to(tl.int64) * rows + row
        part_lse = tl.load(partial_lse + index, mask=exists, other=_NO_KEY)
        part_out = tl.load(
            partial_out + index[:, None] * V_HEAD_DIM + dim[None, :],
            mask=exists[:, None] & (dim < V_HEAD_DIM)[None, :],
            other=0.0,
        )
        new_top = tl.maximum(top, tl.max(part_lse, 0))
        shift = tl.where(new_top == _NO_KEY, 0.0, new_top)
        weight = tl.exp2((part_lse - shift) * LOG2_E)
        keep = tl.exp2((top - shift) * LOG2_E)
        total = total * keep + tl.sum(weight, 0)
        acc = acc * keep + tl.sum(part_out * weight[:, None], 0)
        top = new_top
    empty = total == 0.0
    divisor = tl.where(empty, 1.0, total)
    result = acc / divisor
    row_lse = tl.where(empty, _NO_KEY, top + tl.log2(divisor) * LN_2)

    query = (row % q_len).to(tl.int64)
    head = (row // q_len % q_heads).to(tl.int64)
    batch = (row // q_len // q_heads).to(tl.int64)
    tl.store(lse + batch * lse_batch_stride + head * lse_head_stride + query * lse_row_stride, row_lse)
    out_row = out + batch * out_batch_stride + head * out_head_stride + query * out_row_stride
    tl.store(out_row + dim, rounded(result, out.dtype.element_ty), mask=dim < V_HEAD_DIM)
