"""The two Triton kernels: `take_lengths`, how many tokens each pass takes of each sequence, and `fold`, which merges a partial
result into what is there.

What is there of a row are its sum of weighed results `acc`, the largest LSE `top`, and the sum of weights `total`, so that

    acc = sum_c exp(lse_c - top) out_c        total = sum_c exp(lse_c - top)        out = acc / total, lse = top + log(total)

and nothing is rounded but in float32, nor an LSE rounded twice.
"""

# Triton's language: constants of a kernel are written in capitals, and its functions have no Python types.
# ruff: noqa: N803
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from impls.triton.dequantize import rounded
from impls.triton.kernels import LN_2, LOG2_E

_NOTHING = tl.constexpr(float("-inf"))
RULE = 5
"""Numbers of a pass in `take_lengths`: start, length, delay, at_least, below; see `planner.Pass`."""
_RULE = tl.constexpr(RULE)


@triton.jit
def take_lengths(
    kv_lens,  # int32 [B]
    rules,  # int32 [passes, RULE]
    lengths,  # int32 [passes, B]
    kv_lens_batch_stride,
    batch,
    kv_len,
    passes,
    BLOCK: tl.constexpr,
):
    """lengths[c, b] = the tokens that pass c takes of sequence b.  grid = (passes * batch / BLOCK,)"""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = index < passes * batch
    rule = rules + index // batch * _RULE
    n = tl.load(kv_lens + (index % batch).to(tl.int64) * kv_lens_batch_stride, mask=exists, other=0)
    start = tl.load(rule, mask=exists, other=0)
    length = tl.load(rule + 1, mask=exists, other=0)
    seen = tl.minimum(tl.maximum(n, 0), kv_len) - tl.load(rule + 2, mask=exists, other=0)
    at_least = tl.load(rule + 3, mask=exists, other=0)
    below = tl.load(rule + 4, mask=exists, other=0)
    taken = tl.minimum(tl.maximum(seen - start, 0), length)
    tl.store(lengths + index, tl.where((seen >= at_least) & (seen < below), taken, 0), mask=exists)


@triton.jit
def fold(
    first_out,  # [B, Hq, Sq, Dv], contiguous: out of the first pass, or what is there
    acc,  # float32, the same shape
    top,  # float32 [B, Hq, Sq]: LSE of the first pass, or the largest
    total,  # float32 [B, Hq, Sq]
    new_top,  # top and total as they will be: threads that share a row must all read what was there
    new_total,
    part_out,  # [B, Hq, Sq, Dv], contiguous: out of this pass
    part_lse,  # float32 [B, Hq, Sq]
    out,
    lse,
    out_batch_stride,
    out_head_stride,
    out_row_stride,
    lse_batch_stride,
    lse_head_stride,
    lse_row_stride,
    rows,
    q_heads,
    q_len,
    FIRST: tl.constexpr,  # one pass is there, which is no sum yet
    LAST: tl.constexpr,  # the result is written out
    V_HEAD_DIM: tl.constexpr,
    DV: tl.constexpr,  # V_HEAD_DIM, padded to a power of two
    ROWS: tl.constexpr,
):
    """Merge a partial result into ROWS rows.  grid = (rows / ROWS,)"""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = row < rows
    old_top = tl.load(top + row, mask=exists, other=_NOTHING)
    new_lse = tl.load(part_lse + row, mask=exists, other=_NOTHING)
    largest = tl.maximum(old_top, new_lse)
    shift = tl.where(largest == _NOTHING, 0.0, largest)  # a row that has seen no key yet: exp(-inf - 0), not -inf + inf
    keep = tl.exp2((old_top - shift) * LOG2_E)
    weight = tl.exp2((new_lse - shift) * LOG2_E)
    sum_of_weights = keep + weight if FIRST else tl.load(total + row, mask=exists, other=0.0) * keep + weight

    dim = tl.arange(0, DV)
    place = row.to(tl.int64)[:, None] * V_HEAD_DIM + dim[None, :]
    inside = exists[:, None] & (dim < V_HEAD_DIM)[None, :]
    merged = tl.load(first_out + place, mask=inside, other=0.0).to(tl.float32) * keep[:, None]
    merged += tl.load(part_out + place, mask=inside, other=0.0).to(tl.float32) * weight[:, None]
    if LAST:
        empty = sum_of_weights == 0.0
        divisor = tl.where(empty, 1.0, sum_of_weights)
        query = (row % q_len).to(tl.int64)
        head = (row // q_len % q_heads).to(tl.int64)
        batch = (row // q_len // q_heads).to(tl.int64)
        row_lse = tl.where(empty, _NOTHING, largest + tl.log2(divisor) * LN_2)
        tl.store(lse + batch * lse_batch_stride + head * lse_head_stride + query * lse_row_stride, row_lse, mask=exists)
        out_row = batch * out_batch_stride + head * out_head_stride + query * out_row_stride
        result = rounded(merged / divisor[:, None], out.dtype.element_ty)
        tl.store(out + out_row[:, None] + dim[None, :], result, mask=inside)
    else:
        tl.store(acc + place, merged, mask=inside)
        tl.store(new_top + row, largest, mask=exists)
        tl.store(new_total + row, sum_of_weights, mask=exists)
