"""The kernel of `triton-native`: a tile of query rows against a range of keys, as `impls.triton.kernels.attend` cuts the work.

It takes that kernel's arguments, packs rows as it does, and leaves results that the same `merge` joins. What differs is the
product of q and k: q is rounded to NVFP4 when it is loaded, and tl.dot_scaled multiplies its codes and block scales with
those of k, as they are stored. The global scale of k and those of q's rows stay out of it and multiply the scores.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803, N806
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from impls.triton.dequantize import INTERPRETED, UNIT, dequantize
from impls.triton.kernels import (
    LN_2,
    P_BIAS,
    _hide,
    _key_range,
    _lines_of_tokens,
    _load_columns,
    _load_rows,
    _locate,
    _numerators,
    _row_tile,
    _store_rows,
)
from impls.triton.quantize_kernels import as_float
from impls.triton.rounding import default_global_scale, magnitude_bits, round_blocks

_INTERPRETED = tl.constexpr(INTERPRETED)
_UNIT = tl.constexpr(UNIT)
_NO_KEY = tl.constexpr(float("-inf"))


@triton.jit
def _load_q(rows, exists, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """(codes uint8 [M, PADDED / 2], scales uint8 [M, PADDED / 16], row factors float32 [M]) of the rows at `rows` [M].

    As `impls.nvfp4.round_rows` rounds: a row's global scale is its largest magnitude / 2688.
    """
    M: tl.constexpr = rows.shape[0]
    FORMAT: tl.constexpr = "bf16" if rows.dtype.element_ty == tl.bfloat16 else "fp16"
    dim = 2 * tl.arange(0, PADDED // 2)
    places = rows[:, None] + dim[None, :]
    needed = exists[:, None] & (dim < WIDTH)[None, :]
    even = as_float(tl.load(places, mask=needed, other=0.0).to(tl.int16, bitcast=True), FORMAT)
    odd = as_float(tl.load(places + 1, mask=needed, other=0.0).to(tl.int16, bitcast=True), FORMAT)
    largest = tl.max(tl.maximum(magnitude_bits(even), magnitude_bits(odd)), 1).to(tl.float32, bitcast=True)
    factor = default_global_scale(largest)
    even, odd = even.reshape(M, PADDED // 16, 8), odd.reshape(M, PADDED // 16, 8)
    code, scale = round_blocks(even, odd, factor[:, None], 2, 1)  # 16-bit elements: one correction
    return code.to(tl.uint8).reshape(M, PADDED // 2), scale.to(tl.uint8), factor


@triton.jit
def _product(q_codes, q_scales, k_codes, k_scales):
    """[M, N] float32 of rows of NVFP4, [M, D] and [N, D], without global scales.

    The interpreter of Triton 3.9 reads block scales as powers of two, E8M0, whatever they are: there the operands are
    decoded, and their product stands for that of the hardware.
    """
    if _INTERPRETED:
        q_tile = dequantize(q_codes, q_scales, tl.float32, False)
        k_tile = dequantize(k_codes, k_scales, tl.float32, False)
        return tl.dot(q_tile, tl.trans(k_tile)) * (_UNIT * _UNIT)
    else:  # noqa: RET505 - Triton would compile both returns
        q_scales = q_scales.to(tl.float8e4nv, bitcast=True)
        k_scales = k_scales.to(tl.float8e4nv, bitcast=True)
        return tl.dot_scaled(q_codes, q_scales, "e2m1", tl.trans(k_codes), k_scales, "e2m1")


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
    HAS_E4M3: tl.constexpr,
    D: tl.constexpr,  # HEAD_DIM and V_HEAD_DIM, padded to powers of two
    DV: tl.constexpr,
):
    batch, kv_head, split, _, row_tile, tokens, row_exists, query, head = _row_tile(
        kv_lens, kv_lens_batch_stride, kv_heads, q_len, kv_len, GROUP, BLOCK_M
    )
    first, last, begin, end, _, start, stop = _key_range(
        row_tile, query, tokens, q_len, window, split, splits, GROUP, CAUSAL, WINDOWED, BLOCK_M, BLOCK_N
    )

    batch_64 = batch.to(tl.int64)
    head_64 = head.to(tl.int64)
    kv_head_64 = kv_head.to(tl.int64)
    query_64 = query.to(tl.int64)
    q_rows = q + batch_64 * q_batch_stride + head_64 * q_head_stride + query_64 * q_row_stride
    q_codes, q_scales, q_factor = _load_q(q_rows, row_exists, HEAD_DIM, D)
    scale = (scale_log2 * tl.load(k_global) * q_factor)[:, None]  # [M, 1]

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
        k_tile = _load_rows(
            k_codes + page * k_codes_page_stride + slot * k_codes_token_stride, needed, True, HEAD_DIM // 2, D // 2
        )
        k_scale = _load_rows(
            k_scales + page * k_scales_page_stride + slot * k_scales_token_stride, needed, True, HEAD_DIM // 16, D // 16
        )
        s = _product(q_codes, q_scales, k_tile, k_scale) * scale  # [M, N]
        s = _hide(s, keys, needed, first, last, WINDOWED, False)
        p, keep, top, total = _numerators(s, top, total, False)

        if V_ALONG_TOKENS:
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
            v_tile = dequantize(
                _load_columns(codes, byte_needed, v_codes_line_stride, 0, 1, V_HEAD_DIM, DV),
                _load_columns(scales, block_needed, v_scales_line_stride, 0, 1, V_HEAD_DIM, DV),
                tl.float16,
                HAS_E4M3,
            )
            v_tile = tl.trans(v_tile)  # [N, DV]
        else:
            codes = v_codes + page * v_codes_page_stride + slot * v_codes_line_stride
            scales = v_scales + page * v_scales_page_stride + slot * v_scales_line_stride
            v_tile = dequantize(
                _load_rows(codes, needed, True, V_HEAD_DIM // 2, DV // 2),
                _load_rows(scales, needed, True, V_HEAD_DIM // 16, DV // 16),
                tl.float16,
                HAS_E4M3,
            )  # [N, DV]
        acc = tl.dot(p.to(tl.float16), v_tile, acc * keep[:, None])

    empty = total == 0.0
    divisor = tl.where(empty, 1.0, total)
    result = acc / divisor[:, None] * (tl.load(v_global) * _UNIT)
    row_lse = tl.where(empty, _NO_KEY, (top + tl.log2(divisor) - P_BIAS) * LN_2)

    split_64 = split.to(tl.int64)
    lse_rows = split_64 * lse_split_stride + batch_64 * lse_batch_stride + head_64 * lse_head_stride + query_64 * lse_row_stride
    out_rows = split_64 * out_split_stride + batch_64 * out_batch_stride + head_64 * out_head_stride + query_64 * out_row_stride
    _store_rows(out, out_rows, lse, lse_rows, result, row_lse, row_exists, 0, V_HEAD_DIM, DV)
