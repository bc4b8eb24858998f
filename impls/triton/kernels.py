"""The two Triton kernels: `attend`, a tile of query rows against a range of keys, and `merge`, which joins such ranges.

Query rows of one key-value head's group are packed: row r of a head's q_len * GROUP rows is query r // GROUP of head
r % GROUP, so a decode step fills a tensor-core tile with the heads that share its keys, and prefill reads a key tile once
for all of them. A program owns BLOCK_M rows and walks the keys that any of them sees, BLOCK_N at a time:

    grid = (row tiles * kv_heads * batch, splits, parts)

With `splits` > 1 each program takes an even share of those keys and leaves a complete result of its share, out and lse, in
float32; `merge` weighs them by exp(lse). The share depends on the length that the kernel reads, not on the planned one.
`merge` may be launched before `attend` has ended, and then waits for it itself: what it costs to launch is hidden. With two
`parts` a row tile's head dims of the output are shared by two programs.

A byte of the cache holds an even and an odd element, and they stay apart: q is loaded as its even and its odd elements, a
score is the sum of both products, and the output is summed in two halves that come together when it is stored.

    s        = q_even @ k_even^T + q_odd @ k_odd^T         acc_even += p @ v_even        acc_odd += p @ v_odd

Half a tile at a time is decoded, put into shared memory and multiplied. Up to 16 rows the products are transposed
(KEYS_FIRST): keys and head dims fill the 16 rows of mma.sync's first operand, and the few query rows its 8 columns. Of wide
heads they are then decoded in that operand's registers (BY_WORD), with eight elements apart in place of two: see `words`.

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
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from impls.triton import words
from impls.triton.dequantize import UNIT, byte_of_column, dequantize, even, odd, operand, rounded, scale_per_byte

LN_2 = tl.constexpr(0.6931471805599453)
LOG2_E = tl.constexpr(1.4426950408889634)
P_BIAS = tl.constexpr(15.0)  # 2^15 is the largest power of two in float16
_UNIT = tl.constexpr(UNIT)
_NO_KEY = tl.constexpr(float("-inf"))


@triton.jit
def _load_rows(rows, needed, MASKED: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """[R, PADDED]: WIDTH entries at each of the addresses `rows` [R] that is needed, zeros elsewhere."""
    byte = tl.arange(0, PADDED)
    places = rows[:, None] + byte[None, :]
    if MASKED:
        return tl.load(places, mask=needed[:, None] & (byte < WIDTH)[None, :], other=0)
    elif WIDTH < PADDED:  # noqa: RET505 - Triton would compile all returns
        return tl.load(places, mask=(byte < WIDTH)[None, :], other=0)
    else:
        return tl.load(places)


@triton.jit
def _load_scales(rows, needed, MASKED: tl.constexpr, IN_WORDS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """As `_load_rows`. IN_WORDS: rows are words of 4 bytes, and are loaded so.

    A tile has few scales, and what is not 4 bytes a thread cannot be copied ahead of its use (cp.async).
    """
    if IN_WORDS:
        words = _load_rows(rows.to(tl.pointer_type(tl.int32)), needed, MASKED, WIDTH // 4, PADDED // 4)
        byte = words[:, :, None] >> (tl.arange(0, 4) * 8)[None, None, :]
        return byte.to(tl.uint8).reshape(words.shape[0], PADDED)
    else:  # noqa: RET505 - Triton would compile both returns
        return _load_rows(rows, needed, MASKED, WIDTH, PADDED)


@triton.jit
def _load_columns(
    columns, needed, line_stride, FIRST: tl.constexpr, STEP: tl.constexpr, LINES: tl.constexpr, COUNT: tl.constexpr
):
    """uint8 [COUNT, C]: the byte at each of the addresses `columns` [C] that is needed, on lines FIRST, FIRST + STEP, ...

    LINES lines are there; beyond them are zeros.
    """
    line = FIRST + STEP * tl.arange(0, COUNT)
    offset = line.to(tl.int64) * line_stride
    return tl.load(columns[None, :] + offset[:, None], mask=needed[None, :] & (line < LINES)[:, None], other=0)


@triton.jit
def _load_q(rows, exist, FIRST: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, K_IN_PLACE: tl.constexpr):
    """[M, PADDED / 2] operand of tl.dot: every other of WIDTH elements at the addresses `rows` [M], zeros elsewhere.

    Loaded apart, and not split after one load: what comes from a load stays in shared memory, where a warp group can multiply
    it, and what was computed is brought into registers in every step of the loop.
    """
    DTYPE: tl.constexpr = rows.dtype.element_ty
    dim = FIRST + 2 * byte_of_column(PADDED // 2, K_IN_PLACE)
    tile = tl.load(rows[:, None] + dim[None, :], mask=exist[:, None] & (dim < WIDTH)[None, :], other=0.0)
    return operand(tile, DTYPE)


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
def _lines_of_tokens(
    v_codes,
    v_codes_page_stride,
    v_scales,
    v_scales_page_stride,
    key,
    begin,
    end,
    pages,
    block_table_page_stride,
    PAGE_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """(codes [N / 2], whether needed, scales [N / 16], whether needed): addresses on a line of V of BLOCK_N tokens from `key`.

    A block of 16 tokens is a scale and 8 bytes of codes, stored whole; p is 0 for those of its tokens that are not seen. Its
    bytes are masked as one, and called a run of 8, so that one thread loads them and two or more share a line. Where threads
    run across lines (Triton 3.6.0), or one holds a whole line (3.6.0, 3.7.1, 3.9.0), the transposed tile does not compile for
    a warp group: "Illegal shared layout".
    """
    byte = key // 2 + tl.arange(0, BLOCK_N // 2)
    byte_needed = (byte // 8 * 16 + 15 >= begin) & (byte // 8 * 16 < end)
    page, slot = _locate(byte, byte_needed, pages, block_table_page_stride, PAGE_SIZE, 2)
    codes = v_codes + tl.max_contiguous(page * v_codes_page_stride + slot, 8)
    block = key // 16 + tl.arange(0, BLOCK_N // 16)
    block_needed = (block * 16 + 15 >= begin) & (block * 16 < end)
    page, slot = _locate(block, block_needed, pages, block_table_page_stride, PAGE_SIZE, 16)
    scales = v_scales + page * v_scales_page_stride + slot
    return codes, byte_needed, scales, block_needed


@triton.jit
def _row_tile(kv_lens, kv_lens_batch_stride, kv_heads, q_len, kv_len, GROUP: tl.constexpr, BLOCK_M: tl.constexpr):
    """What a program works on: (sequence, key-value head, split, part, row tile, tokens of the sequence, whether each of its
    rows exists [M], their queries [M], their heads [M]).
    """
    row_tiles = tl.cdiv(q_len * GROUP, BLOCK_M)
    kv_head = tl.program_id(0) // row_tiles % kv_heads
    batch = tl.program_id(0) // row_tiles // kv_heads
    split = tl.program_id(1)
    part = tl.program_id(2)
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
    return batch, kv_head, split, part, row_tile, tokens, row_exists, query, head


@triton.jit
def _key_range(
    row_tile,
    query,
    tokens,
    q_len,
    window,
    split,
    splits,
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """(first, last, begin, end, every_row_to, start, stop) of a row tile whose rows are of the queries `query` [M].

    Keys that a row sees: first <= key <= last [M]. Keys that any row of the tile sees: begin <= key < end. Without a window
    all rows see the keys before every_row_to. The share of this split: start <= key < stop.
    """
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
        first = last
        begin = 0

    first_tile = begin // BLOCK_N
    tiles = tl.cdiv(end, BLOCK_N) - first_tile
    tiles_each = tl.cdiv(tiles, splits)
    start = (first_tile + split * tiles_each) * BLOCK_N
    stop = tl.minimum(start + tiles_each * BLOCK_N, end)
    return first, last, begin, end, first_last + 1, start, stop


@triton.jit
def _masked_from(start, stop, every_row_to, WINDOWED: tl.constexpr, BLOCK_N: tl.constexpr):
    """The first key of the tiles that need a mask: whole ones that every row sees come before."""
    if WINDOWED:
        return start
    else:  # noqa: RET505 - Triton would compile both returns
        return tl.maximum(start, tl.minimum(every_row_to // BLOCK_N * BLOCK_N, stop // BLOCK_N * BLOCK_N))


@triton.jit
def _of_key(x, KEYS_FIRST: tl.constexpr):
    """[N] as it is broadcast over the scores."""
    return x[:, None] if KEYS_FIRST else x[None, :]


@triton.jit
def _of_row(x, KEYS_FIRST: tl.constexpr):
    """[M] as it is broadcast over the scores, and over the sums of the output."""
    return x[None, :] if KEYS_FIRST else x[:, None]


@triton.jit
def _hide(s, keys, needed, first, last, WINDOWED: tl.constexpr, KEYS_FIRST: tl.constexpr):
    """Scores `s` of `keys` [N], -inf where a row does not see the key: see `_key_range` for `first` and `last` [M]."""
    visible = _of_key(needed, KEYS_FIRST) & (_of_key(keys, KEYS_FIRST) <= _of_row(last, KEYS_FIRST))
    if WINDOWED:
        visible = visible & (_of_key(keys, KEYS_FIRST) >= _of_row(first, KEYS_FIRST))
    return tl.where(visible, s, _NO_KEY)


@triton.jit
def _numerators(s, top, total, KEYS_FIRST: tl.constexpr):
    """(p, keep, top, total): the numerators of scores `s` relative to the new `top` [M], the factor that brings earlier sums
    there, and the new sum of numerators.
    """
    KEY_AXIS: tl.constexpr = 0 if KEYS_FIRST else 1
    new_top = tl.maximum(top, tl.max(s, KEY_AXIS))
    shift = tl.where(new_top == _NO_KEY, 0.0, new_top)  # a row that has seen no key yet: exp2(-inf - 0), not -inf + inf
    p = tl.exp2(s - _of_row(shift - P_BIAS, KEYS_FIRST))
    keep = tl.exp2(top - shift)
    total = total * keep + tl.sum(p, KEY_AXIS)
    return p, keep, new_top, total


@triton.jit
def _add_product(p, v, acc, KEYS_FIRST: tl.constexpr):
    """`acc` and p @ v, of v [N, DV / 2] and p as the scores lie."""
    if KEYS_FIRST:
        return tl.dot(tl.trans(v), p, acc)  # [DV / 2, M]
    else:  # noqa: RET505 - Triton would compile both returns
        return tl.dot(p, v, acc)  # [M, DV / 2]


@triton.jit
def _walk(
    acc,  # [M, DV / 2], KEYS_FIRST: [DV / 2, M], float32: sums over keys of p times V's even head dims, and its odd ones
    top,  # [M] the largest score so far
    total,  # [M] the sum of p so far
    q,  # [M, D / 2]: even and odd elements
    score_scale,
    start,
    stop,
    begin,  # keys that any row sees: begin <= key < end
    end,
    first,  # [M] keys that a row sees: first <= key <= last
    last,
    k_codes,
    k_codes_page_stride,
    k_codes_token_stride,
    k_scales,
    k_scales_page_stride,
    k_scales_token_stride,
    v_codes,
    v_codes_page_stride,
    v_codes_line_stride,
    v_scales,
    v_scales_page_stride,
    v_scales_line_stride,
    pages,
    block_table_page_stride,
    MASKED: tl.constexpr,  # False: every row sees every key from start to stop
    WINDOWED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    V_WIDTH: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    V_ALONG_TOKENS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    DTYPE: tl.constexpr,
    HAS_E4M3: tl.constexpr,
    K_IN_PLACE: tl.constexpr,
    K_SCALE_WORDS: tl.constexpr,
    V_SCALE_WORDS: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
    BY_WORD: tl.constexpr,  # acc and q are those of `words`
):
    """Attend to the keys start .. stop, BLOCK_N at a time: the new (acc, top, total)."""
    for key in tl.range(start, stop, BLOCK_N):
        keys = key + tl.arange(0, BLOCK_N)  # [N]
        needed = (keys >= begin) & (keys < end) if MASKED else tl.full([BLOCK_N], True, tl.int1)
        page, slot = _locate(keys, needed, pages, block_table_page_stride, PAGE_SIZE, 1)
        codes = k_codes + page * k_codes_page_stride + slot * k_codes_token_stride
        scales = k_scales + page * k_scales_page_stride + slot * k_scales_token_stride
        if BY_WORD:
            codes = _load_rows(codes.to(tl.pointer_type(tl.int32)), needed, MASKED, HEAD_DIM // 8, D // 8)
            scales = _load_rows(scales, needed, MASKED, HEAD_DIM // 16, D // 16)
            s = words.scores(q, codes, scales, DTYPE)  # [N, M]
        else:
            codes = _load_rows(codes, needed, MASKED, HEAD_DIM // 2, D // 2)
            scale = _load_scales(scales, needed, MASKED, K_SCALE_WORDS, HEAD_DIM // 16, D // 16)
            scale = scale_per_byte(scale, DTYPE, HAS_E4M3)
            if KEYS_FIRST:
                s = tl.dot(even(codes, scale, DTYPE, HAS_E4M3, K_IN_PLACE), tl.trans(q[0]))  # [N, M]
                s = tl.dot(odd(codes, scale, DTYPE, HAS_E4M3, K_IN_PLACE), tl.trans(q[1]), s)
            else:
                s = tl.dot(q[0], tl.trans(even(codes, scale, DTYPE, HAS_E4M3, K_IN_PLACE)))  # [M, N]
                s = tl.dot(q[1], tl.trans(odd(codes, scale, DTYPE, HAS_E4M3, K_IN_PLACE)), s)
        s *= score_scale
        if MASKED:
            s = _hide(s, keys, needed, first, last, WINDOWED, KEYS_FIRST)
        p, keep, top, total = _numerators(s, top, total, KEYS_FIRST)

        p16 = p.to(tl.float16)
        keep = _of_row(keep, KEYS_FIRST)
        if BY_WORD:
            codes = v_codes + page * v_codes_page_stride + slot * v_codes_line_stride
            scales = v_scales + page * v_scales_page_stride + slot * v_scales_line_stride
            codes = words.load_transposed(codes.to(tl.pointer_type(tl.int32)), needed, MASKED, V_WIDTH // 8, DV // 8)
            scales = _load_rows(scales, needed, MASKED, V_WIDTH // 16, DV // 16)
            acc = words.add_products(acc, keep, p16, codes, scales)
        elif V_ALONG_TOKENS:
            acc_even = acc[0] * keep
            acc_odd = acc[1] * keep
            codes, byte_needed, scales, block_needed = _lines_of_tokens(
                v_codes,
                v_codes_page_stride,
                v_scales,
                v_scales_page_stride,
                key,
                begin,
                end,
                pages,
                block_table_page_stride,
                PAGE_SIZE,
                BLOCK_N,
            )
            v = dequantize(
                _load_columns(codes, byte_needed, v_codes_line_stride, 0, 2, V_WIDTH, DV // 2),
                _load_columns(scales, block_needed, v_scales_line_stride, 0, 2, V_WIDTH, DV // 2),
                tl.float16,
                HAS_E4M3,
            )  # [DV / 2, N]
            acc_even = _add_product(p16, tl.trans(v), acc_even, KEYS_FIRST)
            v = dequantize(
                _load_columns(codes, byte_needed, v_codes_line_stride, 1, 2, V_WIDTH, DV // 2),
                _load_columns(scales, block_needed, v_scales_line_stride, 1, 2, V_WIDTH, DV // 2),
                tl.float16,
                HAS_E4M3,
            )
            acc_odd = _add_product(p16, tl.trans(v), acc_odd, KEYS_FIRST)
            acc = acc_even, acc_odd
        else:
            acc_even = acc[0] * keep
            acc_odd = acc[1] * keep
            codes = v_codes + page * v_codes_page_stride + slot * v_codes_line_stride
            scales = v_scales + page * v_scales_page_stride + slot * v_scales_line_stride
            codes = _load_rows(codes, needed, MASKED, V_WIDTH // 2, DV // 2)
            scale = _load_scales(scales, needed, MASKED, V_SCALE_WORDS, V_WIDTH // 16, DV // 16)
            scale = scale_per_byte(scale, tl.float16, HAS_E4M3)
            acc_even = _add_product(p16, even(codes, scale, tl.float16, HAS_E4M3, False), acc_even, KEYS_FIRST)
            acc_odd = _add_product(p16, odd(codes, scale, tl.float16, HAS_E4M3, False), acc_odd, KEYS_FIRST)
            acc = acc_even, acc_odd
    return acc, top, total


@triton.jit
def _store_rows(out, out_rows, lse, lse_rows, result, row_lse, row_exists, part, V_WIDTH: tl.constexpr, DV: tl.constexpr):
    """Store the float32 `result` [M, DV], rounded, and `row_lse` [M] at the offsets [M] of rows that exist.

    Of several parts, each stores its own V_WIDTH head dims, and the first one the LSE.
    """
    if part == 0:
        tl.store(lse + lse_rows, row_lse, mask=row_exists)
    v_dim = tl.arange(0, DV)
    tl.store(
        out + out_rows[:, None] + (part * V_WIDTH + v_dim)[None, :],
        rounded(result, out.dtype.element_ty),
        mask=row_exists[:, None] & (v_dim < V_WIDTH)[None, :],
    )


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
    V_WIDTH: tl.constexpr,  # head dims of V that a program computes
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,  # None for a dense cache
    V_ALONG_TOKENS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    KEYS_FIRST: tl.constexpr,  # scores are [N, M] and not [M, N], see `planner`
    BY_WORD: tl.constexpr,  # decoded in operands' registers, see `words`
    MERGED_EARLY: tl.constexpr,  # `merge` is launched while the last programs still run, and waits for them itself
    HAS_E4M3: tl.constexpr,  # the GPU converts E4M3 to float16
    K_IN_PLACE: tl.constexpr,  # see `dequantize.byte_of_column`
    K_SCALE_WORDS: tl.constexpr,  # a token's scales are whole words of 4 bytes
    V_SCALE_WORDS: tl.constexpr,
    D: tl.constexpr,  # HEAD_DIM and V_WIDTH, padded to powers of two
    DV: tl.constexpr,
):
    batch, kv_head, split, part, row_tile, tokens, row_exists, query, head = _row_tile(
        kv_lens, kv_lens_batch_stride, kv_heads, q_len, kv_len, GROUP, BLOCK_M
    )
    first, last, begin, end, every_row_to, start, stop = _key_range(
        row_tile, query, tokens, q_len, window, split, splits, GROUP, CAUSAL, WINDOWED, BLOCK_M, BLOCK_N
    )
    masked_from = _masked_from(start, stop, every_row_to, WINDOWED, BLOCK_N)
    batch_64 = batch.to(tl.int64)
    head_64 = head.to(tl.int64)
    kv_head_64 = kv_head.to(tl.int64)
    query_64 = query.to(tl.int64)
    q_rows = q + batch_64 * q_batch_stride + head_64 * q_head_stride + query_64 * q_row_stride
    DTYPE: tl.constexpr = q.dtype.element_ty
    if BY_WORD:
        q_parts = words.load_q(q_rows, row_exists, HEAD_DIM, D)
    else:
        q_even = _load_q(q_rows, row_exists, 0, HEAD_DIM, D, K_IN_PLACE)
        q_odd = _load_q(q_rows, row_exists, 1, HEAD_DIM, D, K_IN_PLACE)
        q_parts = q_even, q_odd
    score_scale = scale_log2 * (tl.load(k_global) * _UNIT)
    if KEYS_FIRST:  # a short walk: what is loaded now is not waited for at its end. Others have no register to spare
        v_unit = tl.load(v_global) * _UNIT

    k_codes += kv_head_64 * k_codes_head_stride
    k_scales += kv_head_64 * k_scales_head_stride
    v_codes += kv_head_64 * v_codes_head_stride
    v_scales += kv_head_64 * v_scales_head_stride
    if V_ALONG_TOKENS:
        v_codes += part * V_WIDTH * v_codes_line_stride
        v_scales += part * V_WIDTH * v_scales_line_stride
    else:
        v_codes += part * (V_WIDTH // 2)
        v_scales += part * (V_WIDTH // 16)
    pages = batch_64
    if PAGE_SIZE is not None:
        pages = block_table + batch_64 * block_table_batch_stride

    top = tl.full([BLOCK_M], _NO_KEY, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    if BY_WORD:
        acc = words.no_sums(DV, BLOCK_M)
    elif KEYS_FIRST:
        acc_even = tl.zeros([DV // 2, BLOCK_M], tl.float32)
        acc = acc_even, acc_even
    else:
        acc_even = tl.zeros([BLOCK_M, DV // 2], tl.float32)
        acc = acc_even, acc_even
    for MASKED in tl.static_range(1 if WINDOWED else 0, 2):  # whole tiles first, where there can be any
        acc, top, total = _walk(
            acc,
            top,
            total,
            q_parts,
            score_scale,
            masked_from if MASKED else start,
            stop if MASKED else masked_from,
            begin,
            end,
            first,
            last,
            k_codes,
            k_codes_page_stride,
            k_codes_token_stride,
            k_scales,
            k_scales_page_stride,
            k_scales_token_stride,
            v_codes,
            v_codes_page_stride,
            v_codes_line_stride,
            v_scales,
            v_scales_page_stride,
            v_scales_line_stride,
            pages,
            block_table_page_stride,
            MASKED,
            WINDOWED,
            HEAD_DIM,
            V_WIDTH,
            PAGE_SIZE,
            V_ALONG_TOKENS,
            BLOCK_N,
            D,
            DV,
            DTYPE,
            HAS_E4M3,
            K_IN_PLACE,
            K_SCALE_WORDS,
            V_SCALE_WORDS,
            KEYS_FIRST,
            BY_WORD,
        )

    empty = total == 0.0
    divisor = tl.where(empty, 1.0, total)
    if not KEYS_FIRST:
        v_unit = tl.load(v_global) * _UNIT
    if MERGED_EARLY:
        gdc_launch_dependents()
    if BY_WORD:
        sums = words.in_order(acc)
    elif KEYS_FIRST:
        sums = tl.interleave(tl.trans(acc[0]), tl.trans(acc[1]))
    else:
        sums = tl.interleave(acc[0], acc[1])
    result = sums / divisor[:, None] * v_unit
    row_lse = tl.where(empty, _NO_KEY, (top + tl.log2(divisor) - P_BIAS) * LN_2)

    split_64 = split.to(tl.int64)
    lse_rows = split_64 * lse_split_stride + batch_64 * lse_batch_stride + head_64 * lse_head_stride + query_64 * lse_row_stride
    out_rows = split_64 * out_split_stride + batch_64 * out_batch_stride + head_64 * out_head_stride + query_64 * out_row_stride
    _store_rows(out, out_rows, lse, lse_rows, result, row_lse, row_exists, part, V_WIDTH, DV)


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
    EARLY: tl.constexpr,  # launched before `attend` has ended
    CHUNK: tl.constexpr,  # splits that are weighed at a time
    SLICE: tl.constexpr,  # head dims of a program
):
    """out = sum_s exp(lse_s - lse) out_s of a slice of one row, lse = log sum_s exp(lse_s).  grid = (rows, slices)"""
    row = tl.program_id(0)
    rows = tl.num_programs(0).to(tl.int64)
    dim = tl.program_id(1) * SLICE + tl.arange(0, SLICE)
    top = float("-inf")
    total = 0.0
    acc = tl.zeros([SLICE], tl.float32)
    if EARLY:
        gdc_wait()
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
    if tl.program_id(1) == 0:
        tl.store(lse + batch * lse_batch_stride + head * lse_head_stride + query * lse_row_stride, row_lse)
    out_row = out + batch * out_batch_stride + head * out_head_stride + query * out_row_stride
    tl.store(out_row + dim, rounded(result, out.dtype.element_ty), mask=dim < V_HEAD_DIM)
