"""Attention in float64: the specification that every implementation is held against.

For each query row i of a sequence with n cached tokens, key head h // group:

    last     = i + n - Sq          where causal (bottom-right aligned), else n - 1
    first    = last - window + 1   where a window is given, else 0
    visible  = { j : max(first, 0) <= j <= min(last, n - 1) }
    s_j      = scale * q_i . k_j
    lse_i    = log sum_{j visible} exp(s_j)                      -inf where nothing is visible
    out_i    = sum_{j visible} exp(s_j - lse_i) v_j              0 where nothing is visible

K and V are the exact values of the NVFP4 tensors. Keys are taken in chunks and merged by running maximum, so memory does
not grow with the context; in float64 that changes nothing that a float32 kernel could be blamed for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from impls.contract import EXACT, Inputs, Paged, Problem, Rounding, Rounds
from impls.nvfp4 import E2M1_MAX, E4M3_MAX, NVFP4Tensor, dequantize, round_rows

TENSOR_UNIT = 8.0
"""What `float8_e4m3_by_tensor` rounds relative to, besides the global scale: with it 6 * 448, the largest, is at most 448."""
CHUNK = 8192  # keys whose scores are held at a time


@dataclass(frozen=True)
class Reference:
    """Exact results for R sampled query rows, and what error bounds are made of. All float64."""

    rows: torch.Tensor
    """[R] int64, the query rows that were computed."""
    out: torch.Tensor
    """[B, Hq, R, Dv]."""
    lse: torch.Tensor
    """[B, Hq, R], natural log."""
    mass: torch.Tensor
    """[B, Hq, R, Dv]: sum_j p_j |v_j| / sum_j p_j, the magnitude that rounding errors of P and of sums scale with."""
    score: torch.Tensor
    """[B, Hq, R]: max over visible j of scale * sum_d |q_d k_jd|, which bounds every score and its rounding errors."""

    def to(self, device: torch.device | str) -> Reference:
        return Reference(*(t.to(device) for t in (self.rows, self.out, self.lse, self.mass, self.score)))


def reference_attention(
    problem: Problem, inputs: Inputs, *, rows: torch.Tensor | None = None, rounds: Rounds | None = None
) -> Reference:
    """The reference for query rows `rows` (all where left out), on the dequantised operands.

    With `rounds`, q, k and v are rounded first as an implementation declares it; roundings of p and of partial results are not
    executed, since they depend on the order of the sums, and enter the error bound instead.
    """
    rounds = rounds or {}
    rows = _all_rows(inputs.q) if rows is None else rows.to(inputs.q.device)
    q = round_operand(inputs.q[:, :, rows], rounds.get("q", EXACT))  # a long prefill's would not fit in float64

    def chunk(batch: int, head: int, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        k = _tokens(problem, inputs, inputs.k4, batch, head, start, stop)
        v = _tokens(problem, inputs, inputs.v4, batch, head, start, stop)
        return rounded("k", k, batch, head), rounded("v", v, batch, head)

    def rounded(name: Literal["k", "v"], x: torch.Tensor, batch: int, head: int) -> torch.Tensor:
        rounding = rounds.get(name, EXACT)
        cache = inputs.k4 if name == "k" else inputs.v4
        if rounding.name == "float8_e4m3_by_head":
            unit = head_unit(problem, cache, batch, head) * float(cache.global_scale)
        elif rounding.name == "float8_e4m3_by_tensor":
            unit = TENSOR_UNIT * float(cache.global_scale)
        else:
            return round_operand(x, rounding)
        return round_operand(x / unit, Rounding("float8_e4m3")) * unit  # exact but for the rounding: few bits, powers of two

    return _attend(problem, q, chunk, inputs.kv_lens, rows)


def float_attention(
    problem: Problem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    kv_lens: torch.Tensor | None = None,
    rows: torch.Tensor | None = None,
) -> Reference:
    """The same operation on the original K [B, Hkv, Sk, D] and V [B, Hkv, Sk, Dv], for the quantisation error."""

    def chunk(batch: int, head: int, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        return k[batch, head, start:stop].double(), v[batch, head, start:stop].double()

    rows = _all_rows(q) if rows is None else rows.to(q.device)
    return _attend(problem, q[:, :, rows].double(), chunk, kv_lens, rows)


def round_operand(x: torch.Tensor, rounding: Rounding) -> torch.Tensor:
    """`x` [..., D] in float64, rounded as declared.

    `nvfp4` means `round_rows`: a global scale for every row. `float8_e4m3` saturates at 448, as PTX `cvt.satfinite` does;
    `float8_e4m3_by_row` does so relative to the least power of two above max|row| / 448, from 2^-126 on.
    """
    if rounding.name == "exact":
        return x.double()
    if rounding.name == "nvfp4":
        values, factor = round_rows(x)
        return values.double() * factor.double()
    if rounding.name == "float8_e4m3":
        return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).double()  # torch versions differ beyond 448
    if rounding.name == "float8_e4m3_by_row":
        exponent = torch.frexp(x.double().abs().amax(-1, keepdim=True) / E4M3_MAX).exponent
        unit = torch.exp2(exponent.clamp(min=-126).double())
        return round_operand(x / unit, Rounding("float8_e4m3")) * unit
    return x.to(getattr(torch, rounding.name)).double()


def head_unit(problem: Problem, cache: NVFP4Tensor, batch: int, head: int) -> float:
    """What `float8_e4m3_by_head` rounds relative to, besides the global scale, in one sequence's head.

    The least power of two with 6 * (the largest block scale) <= 448 * unit, or 1 where there is none above 0. The scales are
    all that the cache has for the head, since it is converted before lengths and block tables are known: of a dense cache those
    of the sequence, with its tokens beyond `kv_lens`, of a paged one those of every page. NaN is left out, signs do not matter.
    """
    scales = cache.scales
    if isinstance(problem.layout, Paged):
        token_major = problem.layout.order == "NHD" and cache.block_axis == -1
        scales = scales[:, :, head] if token_major else scales[:, head]
    else:
        scales = scales[batch, head]
    magnitudes = scales.float().abs().nan_to_num(nan=0.0)
    largest = float(magnitudes.max()) if magnitudes.numel() else 0.0
    return 2.0 ** math.frexp(E2M1_MAX * largest / E4M3_MAX)[1] if largest else 1.0


def visible_keys(problem: Problem, rows: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(first, last) visible key of each query row, inclusive; first > last where nothing is visible."""
    last = rows + tokens - problem.q_len if problem.causal else torch.full_like(rows, tokens - 1)
    first = torch.zeros_like(rows) if problem.window is None else last - problem.window + 1
    return first.clamp(min=0), last.clamp(max=tokens - 1)


def _all_rows(q: torch.Tensor) -> torch.Tensor:
    return torch.arange(q.shape[2], device=q.device)


def _attend(
    problem: Problem,
    q: torch.Tensor,
    chunk: Callable[[int, int, int, int], tuple[torch.Tensor, torch.Tensor]],
    kv_lens: torch.Tensor | None,
    rows: torch.Tensor,
) -> Reference:
    """q [B, Hq, R, D] float64 holds the query rows `rows` alone."""
    p = problem
    shape = (p.batch, p.q_heads, len(rows))
    out = q.new_zeros(*shape, p.v_head_dim)
    mass = q.new_zeros(*shape, p.v_head_dim)
    lse = q.new_full(shape, -torch.inf)
    score = q.new_zeros(shape)
    for batch in range(p.batch):
        tokens = p.kv_len if kv_lens is None else int(kv_lens[batch])
        first, last = visible_keys(p, rows, tokens)
        for head in range(p.kv_heads):
            heads = slice(head * p.group, (head + 1) * p.group)
            state = _attend_head(p, q[batch, heads], partial(chunk, batch, head), first, last)
            out[batch, heads], lse[batch, heads], mass[batch, heads], score[batch, heads] = state
    return Reference(rows, out, lse, mass, score)


def _attend_head(
    problem: Problem,
    q: torch.Tensor,
    chunk: Callable[[int, int], tuple[torch.Tensor, torch.Tensor]],
    first: torch.Tensor,
    last: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, lse, mass, score) of q [G, R, D] float64 against one key-value head."""
    group, rows, _ = q.shape
    top = q.new_full((group, rows, 1), -torch.inf)  # running maximum of s
    total = q.new_zeros(group, rows, 1)  # sum of exp(s - top)
    out = q.new_zeros(group, rows, problem.v_head_dim)
    mass = torch.zeros_like(out)
    score = q.new_zeros(group, rows)
    seen = first <= last
    begin, end = (int(first[seen].min()), int(last[seen].max()) + 1) if bool(seen.any()) else (0, 0)
    for start in range(begin, end, CHUNK):
        stop = min(start + CHUNK, end)
        k, v = chunk(start, stop)  # [n, D], [n, Dv]
        keys = torch.arange(start, stop, device=q.device)
        visible = (keys >= first[:, None]) & (keys <= last[:, None])  # [R, n]
        s = (q @ k.T * problem.softmax_scale).masked_fill(~visible, -torch.inf)  # [G, R, n]
        spread = (q.abs() @ k.abs().T * problem.softmax_scale).masked_fill(~visible, 0.0)
        score = torch.maximum(score, spread.amax(-1))
        new_top = torch.maximum(top, s.amax(-1, keepdim=True))
        shift = new_top.masked_fill(new_top == -torch.inf, 0.0)
        weight = torch.exp(s - shift)
        keep = torch.exp(top - shift)
        v = torch.where(visible.any(0)[:, None], v, 0.0)  # what no row sees may hold anything
        total = total * keep + weight.sum(-1, keepdim=True)
        out = out * keep + weight @ v
        mass = mass * keep + weight @ v.abs()
        top = new_top
    empty = total == 0
    divisor = total.masked_fill(empty, 1.0)
    lse = torch.where(empty, -torch.inf, top + torch.log(divisor)).squeeze(-1)
    return out / divisor, lse, mass / divisor, score


def _tokens(problem: Problem, inputs: Inputs, cache: NVFP4Tensor, batch: int, head: int, start: int, stop: int) -> torch.Tensor:
    """Tokens start to stop of one sequence and head, [n, D] float64, out of a dense or paged cache."""
    if not isinstance(problem.layout, Paged):
        return _decode_tokens(cache, (batch, head), start, stop)
    assert inputs.block_table is not None
    size = problem.layout.page_size
    parts = []
    for page in range(start // size, -(-stop // size)):
        a, b = max(start - page * size, 0), min(stop - page * size, size)
        physical = int(inputs.block_table[batch, page])
        at = (physical, head) if problem.layout.order == "HND" or cache.block_axis == -3 else (physical, slice(None), head)
        parts.append(_decode_tokens(cache, at, a, b))
    return torch.cat(parts)


def _decode_tokens(cache: NVFP4Tensor, at: tuple[int | slice, ...], start: int, stop: int) -> torch.Tensor:
    """Tokens start to stop of cache[at], [n, D] float64; decodes no more than the blocks that hold them."""
    codes, scales = cache.codes[at], cache.scales[at]
    if cache.block_axis == -1:  # stored [tokens, D / 2]
        piece = NVFP4Tensor(codes[start:stop], scales[start:stop], cache.global_scale, length=cache.length)
        return dequantize(piece, torch.float64)
    first, end = start // 16, -(-stop // 16)  # stored [D, tokens / 2]
    piece = NVFP4Tensor(codes[:, first * 8 : end * 8], scales[:, first:end], cache.global_scale, block_axis=-2)
    return dequantize(piece, torch.float64)[start - first * 16 : stop - first * 16]
