"""Data of the cases: q, K and V, the same bits on every machine.

Each function takes a case and a `Source` and returns `Values`. Numbers come from PCG64's raw output through integer and
float64 arithmetic alone: vectorised normal variates differ between instruction sets.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch

from impls.contract import Problem
from impls.numerics.cases import Case
from impls.nvfp4 import GLOBAL_MAX_RATIO, NVFP4Tensor, quantize

ONE = 0x38  # E4M3 byte of 1.0
LANES = 0x0000FFFF_0000FFFF  # the even ones of four 16-bit numbers


@dataclass(frozen=True)
class Values:
    """A dense cache and its queries."""

    q: torch.Tensor
    k4: NVFP4Tensor
    """Of [B, Hkv, Sk, D]."""
    v4: NVFP4Tensor
    """Of [B, Hkv, Sk, Dv], blocks along the case's axis."""
    k: torch.Tensor | None = None
    """What k4 was quantised from, float32; None where codes were written directly."""
    v: torch.Tensor | None = None


class Source:
    """Random numbers from a name."""

    def __init__(self, name: str) -> None:
        self._bits = np.random.PCG64(zlib.crc32(name.encode()))

    def bell(self, *shape: int) -> torch.Tensor:
        """float32, mean 0, variance 1, within 3.5: the sum of four 16-bit numbers, close to normal."""
        raw = torch.from_numpy(self._raw(shape).view(np.int64))
        pairs = (raw & LANES) + (raw >> 16 & LANES)  # 17 bits at bit 0, 17 at bit 32
        total = (pairs >> 32) + (pairs & 0xFFFFFFFF)
        return total.double().sub_(2 * 65535).mul_(3.0**0.5 / 65536).float()  # variance 4 * 65536^2 / 12

    def uniform(self, *shape: int) -> torch.Tensor:
        """float32 in [0, 1), multiples of 2^-24."""
        return torch.from_numpy((self._raw(shape) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24))

    def permutation(self, count: int) -> list[int]:
        return [int(i) for i in np.argsort(self._raw((count,)), kind="stable")]

    def _raw(self, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
        return self._bits.random_raw(int(np.prod(shape))).reshape(shape)


def bell(case: Case, source: Source) -> Values:
    return _quantized(case, *_bell(case.problem, source))


def identity_v(case: Case, source: Source) -> Values:
    p = case.problem
    q, k, _ = _bell(p, source)
    return _quantized(case, q, k, torch.eye(p.kv_len, p.v_head_dim).expand(p.batch, p.kv_heads, -1, -1))


def ones(case: Case, source: Source) -> Values:
    """All keys equal, so that each row's scores are equal too."""
    q, k, v = _bell(case.problem, source)
    return _quantized(case, q, k[:, :, :1].expand_as(k), torch.ones_like(v))


def structured_q(case: Case, source: Source) -> Values:
    """Queries are triangular waves of a length that differs from row to row."""
    q, k, v = _bell(case.problem, source)
    row = torch.arange(q.shape[2])[:, None]
    wave = (row * 7 + torch.arange(q.shape[3]) * (3 + row % 5)) % 32
    return _quantized(case, (wave - 16.0).abs().sub(8.0).div(8.0).expand_as(q), k, torch.ones_like(v))


def suffix(case: Case, source: Source) -> Values:
    """The last 64 keys, by themselves, weigh about as much as the thousands before, and their values are negative."""
    q, k, v = _bell(case.problem, source)
    k[:, :, -64:] += 0.75 * q[:, :1, -1:].sign()
    q = q.abs() * q[:, :1, -1:].sign()
    v = v.abs()
    v[:, :, -64:] *= -1
    return _quantized(case, q, k, v)


def all_codes(case: Case, source: Source) -> Values:
    """Token t has scale byte t, and in every block code i at element i. Head h reads code h of a block of K."""
    p = case.problem
    codes = torch.tensor([low | (low + 1) << 4 for low in range(0, 16, 2)], dtype=torch.uint8)
    head = torch.arange(p.q_heads)
    q = torch.zeros(p.batch, p.q_heads, p.q_len, p.head_dim)
    q[:, head, :, (head % (p.head_dim // 16)) * 16 + head] = 16.0  # lse is then 16 k, above the error of a rounded p
    blocks = p.head_dim // 16
    scales = torch.arange(p.kv_len, dtype=torch.uint8)[:, None].expand(p.batch, p.kv_heads, -1, blocks)
    cache = _written(codes.repeat(blocks).expand(p.batch, p.kv_heads, p.kv_len, -1), scales)
    return Values(_queries(p, q), cache, cache)


def blocks(case: Case, source: Source) -> Values:
    """Scale bytes differ between neighbours in both directions, and heads read one block of K each."""
    p = case.problem
    count = p.head_dim // 16
    token, block = torch.arange(p.kv_len)[:, None], torch.arange(count)
    scales = ((token * 5 + block * 31) % 126 + 1).to(torch.uint8).expand(p.batch, p.kv_heads, -1, -1)
    codes = torch.full((p.batch, p.kv_heads, p.kv_len, p.head_dim // 2), 0x22, dtype=torch.uint8)  # 1.0, 1.0
    q = torch.zeros(p.batch, p.q_heads, p.q_len, p.head_dim)
    for head in range(p.q_heads):
        q[:, head, :, head % count * 16 : head % count * 16 + 16] = 1.0
    cache = _written(codes, scales)
    return Values(_queries(p, q), cache, cache)


def nibbles(case: Case, source: Source) -> Values:
    """Even elements of a block are 0.5 or 1, odd ones 4 or 6, along the blocks' axis."""
    p = case.problem
    values = []
    for dim, axis in ((p.head_dim, -1), (p.v_head_dim, p.v_block_axis)):
        x = torch.empty(p.batch, p.kv_heads, p.kv_len, dim)
        odd = (torch.arange(x.shape[axis]) % 2).bool()
        odd = odd if axis == -1 else odd[:, None]
        coin = source.uniform(*x.shape) < 0.5
        values.append(torch.where(odd, torch.where(coin, 4.0, 6.0), torch.where(coin, 0.5, 1.0)))
    q = source.bell(p.batch, p.q_heads, p.q_len, p.head_dim) / 8
    return _quantized(case, q, *values)


def negative(case: Case, source: Source) -> Values:
    """K and V are negative, and every zero of V is a negative zero."""
    q, k, v = _bell(case.problem, source)
    v = torch.where(v.abs() < 0.3, 0.0, -v.abs())
    values = _quantized(case, q, -k.abs(), v)
    codes = values.v4.codes
    minus_zero = torch.where(codes & 0x0F == 0, 0x08, 0) | torch.where(codes & 0xF0 == 0, 0x80, 0)
    codes |= minus_zero.to(torch.uint8)
    return values


def zero_blocks(case: Case, source: Source) -> Values:
    """Zero blocks, zero rows, and a head whose K is zero; some blocks too small for any code but zero."""
    q, k, v = _bell(case.problem, source)
    k[:, :, ::3, :16] = 0
    k[:, -1] = 0
    v[:, :, 1::4] = 0
    v[:, :, 2::4, 16:32] = 0
    v[:, :, 3::4, 32:48] *= 1e-7
    return _quantized(case, q, k, v)


def outliers(case: Case, source: Source) -> Values:
    q, k, v = _bell(case.problem, source)
    k[..., 3::32] *= 30
    v[..., 5::48] *= 50
    return _quantized(case, q / 8, k, v)


def large_scores(case: Case, source: Source) -> Values:
    q, k, v = _bell(case.problem, source)
    return _quantized(case, q * 40, k, v)


def sink(case: Case, source: Source) -> Values:
    """The first key's score is 26 ln 2 above the others, its value 0 in the first half of the dims: there the rest is all."""
    p = case.problem
    q, k, v = _bell(p, source)
    k[:] = 0
    k[:, :, 0] = 1
    v[:, :, 0, : p.v_head_dim // 2] = 0
    v = v * 64
    v[..., : p.v_head_dim // 2] = v[..., : p.v_head_dim // 2].abs()
    gap = 18.0  # 26 ln 2, in a bfloat16
    return _quantized(case, torch.full_like(q, gap / (p.softmax_scale * p.head_dim)), k, v)


def between(case: Case, source: Source) -> Values:
    """V = 1 + 7 * 2^-10: bfloat16 has 1 and 1 + 2^-7 around it, the second nearer."""
    p = case.problem
    q, k, v = _bell(p, source)
    codes = torch.full((*v.shape[:-1], p.v_head_dim // 2), 0x22, dtype=torch.uint8)
    scales = torch.full((*v.shape[:-1], p.v_head_dim // 16), ONE, dtype=torch.uint8)
    values = _quantized(case, q, k, v)
    return Values(values.q, values.k4, _written(codes, scales, 1 + 7 * 2.0**-10))


def same_sign(case: Case, source: Source) -> Values:
    """V is positive; its last dims each hold one range of tokens."""
    p = case.problem
    q, k, _ = _bell(p, source)
    v = 0.5 + source.uniform(p.batch, p.kv_heads, p.kv_len, p.v_head_dim)
    segment = torch.arange(p.kv_len) // (p.kv_len // case.segments)
    outside = segment[:, None] != torch.arange(case.segments)
    v[..., p.v_head_dim - case.segments :].masked_fill_(outside, 0.0)
    return _quantized(case, q, k, v)


def _bell(p: Problem, source: Source) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        source.bell(p.batch, p.q_heads, p.q_len, p.head_dim),
        source.bell(p.batch, p.kv_heads, p.kv_len, p.head_dim),
        source.bell(p.batch, p.kv_heads, p.kv_len, p.v_head_dim),
    )


def _quantized(case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Values:
    """Quantise. With a global scale given, K and V are first scaled to a quarter of its range, and q against K."""
    p = case.problem
    if case.k_global is not None:
        unit = case.k_global * GLOBAL_MAX_RATIO / 4
        k, q = (k.double() * unit).float(), (q.double() / unit).float()
    if case.v_global is not None:
        v = (v.double() * (case.v_global * GLOBAL_MAX_RATIO / 4)).float()
    k4 = quantize(k, global_scale=case.k_global)
    v4 = quantize(v, block_axis=p.v_block_axis, global_scale=case.v_global)
    return Values(_queries(p, q), k4, v4, k, v)


def _queries(p: Problem, q: torch.Tensor) -> torch.Tensor:
    return q.to(getattr(torch, p.dtype))


def _written(codes: torch.Tensor, scales: torch.Tensor, global_scale: float = 1.0) -> NVFP4Tensor:
    """A tensor with these bytes, blocks along the head dim."""
    return NVFP4Tensor(
        codes.contiguous(), scales.contiguous().view(torch.float8_e4m3fn), torch.tensor(global_scale, dtype=torch.float32)
    )
