"""Attention over a converted cache: the kernel of `impls.triton.kernels`, without the decoding.

Rows are packed, keys are split and results are merged as there. K and V come whole, so a score is one product and the output
one sum:

    s = q @ k^T         p = exp2(s - max + P_BIAS) in float16         acc += p @ v

K is multiplied in q's type and V in float16, both of which hold e2m1 * e4m3 exactly. Of an E4M3 cache the tiles are brought to
these types in registers, which is exact too; the head's power of two, which its values were divided by, goes the way of
the global scale: onto the scores, and onto the output.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from impls.hybrid.convert_kernels import unit_of
from impls.triton.dequantize import INTERPRETED, e4m3, operand
from impls.triton.kernels import (
    LN_2,
    P_BIAS,
    _hide,
    _key_range,
    _load_rows,
    _locate,
    _masked_from,
    _numerators,
    _row_tile,
    _store_rows,
)

_INTERPRETED = tl.constexpr(INTERPRETED)
_NO_KEY = tl.constexpr(float("-inf"))


@triton.jit
def _as_operand(tile, DTYPE: tl.constexpr, HAS_E4M3: tl.constexpr):
    """A loaded tile as a DTYPE operand of tl.dot; bytes are E4M3.

    HAS_E4M3: the GPU converts E4M3 to float16.
    """
    if tile.dtype != tl.uint8:
        return operand(tile, DTYPE)
    elif HAS_E4M3:  # noqa: RET505 - Triton would compile all returns
        return tile.to(tl.float8e4nv, bitcast=True).to(tl.float16).to(DTYPE)
    else:
        return operand(e4m3(tile) * 2.0**120, DTYPE)


@triton.jit
def _walk(
    acc,  # [M, DV] float32: sums over keys of p times V
    top,  # [M] the largest score so far
    total,  # [M] the sum of p so far
    q_tile,  # [M, D]
    score_scale,
    start,
    stop,
    begin,  # keys that any row sees: begin <= key < end
    end,
    first,  # [M] keys that a row sees: first <= key <= last
    last,
    k,
    k_page_stride,
    v,
    v_page_stride,
    pages,
    block_table_page_stride,
    MASKED: tl.constexpr,  # False: every row sees every key from start to stop
    WINDOWED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    V_HEAD_DIM: tl.constexpr,
    V_WIDTH: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    DTYPE: tl.constexpr,
    HAS_E4M3: tl.constexpr,
):
    """Attend to the keys start .. stop, BLOCK_N at a time: the new (acc, top, total)."""
    for key in tl.range(start, stop, BLOCK_N):
        keys = key + tl.arange(0, BLOCK_N)  # [N]
        needed = (keys >= begin) & (keys < end) if MASKED else tl.full([BLOCK_N], True, tl.int1)
        page, slot = _locate(keys, needed, pages, block_table_page_stride, PAGE_SIZE, 1)
        k_tile = _load_rows(k + page * k_page_stride + slot * HEAD_DIM, needed, MASKED, HEAD_DIM, D)
        k_tile = _as_operand(k_tile, DTYPE, HAS_E4M3)
        s = tl.dot(q_tile, tl.trans(k_tile)) * score_scale  # [M, N]
        if MASKED:
            s = _hide(s, keys, needed, first, last, WINDOWED, False)
        p, keep, top, total = _numerators(s, top, total, False)
        v_tile = _load_rows(v + page * v_page_stride + slot * V_HEAD_DIM, needed, MASKED, V_WIDTH, DV)
        v_tile = _as_operand(v_tile, tl.float16, HAS_E4M3)
        acc = tl.dot(p.to(tl.float16), v_tile, acc * keep[:, None])
    return acc, top, total


@triton.jit
def _score_scale(scale_log2, k_global, unit):
    """Their product. `unit` is a power of two from 2^-15 to 2^3; it is put where it leaves normal numbers normal."""
    by_global = (k_global >= 1.0) | (unit > 1.0)
    return tl.where(by_global, scale_log2 * (k_global * unit), (scale_log2 * unit) * k_global)


@triton.jit
def attend(
    q,
    k,  # [pages, kv_heads, tokens, HEAD_DIM] in q's type, or E4M3 as bytes
    v,  # [pages, kv_heads, tokens, V_HEAD_DIM] in float16, or E4M3 as bytes
    k_peaks,  # int32, the largest scale byte of each head, see `unit_of`; None for 16-bit caches
    v_peaks,
    k_global,
    v_global,
    out,
    lse,
    kv_lens,
    block_table,
    scale_log2,  # the softmax scale times log2(e)
    q_batch_stride,
    q_head_stride,
    q_row_stride,
    k_page_stride,  # a page of a dense cache is a sequence
    k_head_stride,
    v_page_stride,
    v_head_stride,
    peaks_batch_stride,
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
    V_WIDTH: tl.constexpr,  # head dims of V that a program computes
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,  # None for a dense cache
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MERGED_EARLY: tl.constexpr,  # `merge` is launched while the last programs still run, and waits for them itself
    HAS_E4M3: tl.constexpr,
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
    q_tile = operand(_load_rows(q_rows, row_exists, True, HEAD_DIM, D), DTYPE)
    score_scale = scale_log2 * tl.load(k_global)
    out_scale = tl.load(v_global)
    if k_peaks is not None:
        peak = batch_64 * peaks_batch_stride + kv_head_64
        score_scale = _score_scale(scale_log2, tl.load(k_global), unit_of(tl.load(k_peaks + peak)))
        out_scale *= unit_of(tl.load(v_peaks + peak))

    k += kv_head_64 * k_head_stride
    v += kv_head_64 * v_head_stride + part * V_WIDTH
    pages = batch_64
    if PAGE_SIZE is not None:
        pages = block_table + batch_64 * block_table_batch_stride

    top = tl.full([BLOCK_M], _NO_KEY, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DV], tl.float32)
    for MASKED in tl.static_range(1 if WINDOWED else 0, 2):  # whole tiles first, where there can be any
        acc, top, total = _walk(
            acc,
            top,
            total,
            q_tile,
            score_scale,
            masked_from if MASKED else start,
            stop if MASKED else masked_from,
            begin,
            end,
            first,
            last,
            k,
            k_page_stride,
            v,
            v_page_stride,
            pages,
            block_table_page_stride,
            MASKED,
            WINDOWED,
            HEAD_DIM,
            V_HEAD_DIM,
            V_WIDTH,
            PAGE_SIZE,
            BLOCK_N,
            D,
            DV,
            DTYPE,
            HAS_E4M3,
        )

    empty = total == 0.0
    divisor = tl.where(empty, 1.0, total)
    if MERGED_EARLY:
        gdc_launch_dependents()
    result = acc / divisor[:, None] * out_scale
    row_lse = tl.where(empty, _NO_KEY, (top + tl.log2(divisor) - P_BIAS) * LN_2)

    split_64 = split.to(tl.int64)
    lse_rows = split_64 * lse_split_stride + batch_64 * lse_batch_stride + head_64 * lse_head_stride + query_64 * lse_row_stride
    out_rows = split_64 * out_split_stride + batch_64 * out_batch_stride + head_64 * out_head_stride + query_64 * out_row_stride
    _store_rows(out, out_rows, lse, lse_rows, result, row_lse, row_exists, part, V_WIDTH, DV)
