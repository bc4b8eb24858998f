"""Small attention problems with data, one for each option of the contract, and the operation in plain Python loops."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from impls.contract import Dense, Inputs, Paged, Problem
from impls.nvfp4 import NVFP4Tensor, quantize
from tests.nvfp4.definition import Array, scale_bytes, unpacked, values

BASE: dict[str, Any] = {
    "batch": 2,
    "q_heads": 4,
    "kv_heads": 2,
    "q_len": 5,
    "kv_len": 37,
    "head_dim": 32,
    "v_head_dim": 16,
}

OPTIONS: dict[str, dict[str, Any]] = {
    "causal": {},
    "not-causal": {"causal": False},
    "decode": {"q_len": 1},
    "more-queries-than-keys": {"q_len": 9, "kv_len": 4},
    "one-key": {"q_len": 1, "kv_len": 1},
    "no-keys": {"kv_len": 0},
    "window-1": {"window": 1},
    "window-7": {"window": 7},
    "window-wider-than-the-keys": {"window": 1000},
    "window-not-causal": {"window": 7, "causal": False},
    "window-more-queries-than-keys": {"window": 3, "q_len": 9, "kv_len": 6},
    "scale": {"scale": 0.7},
    "float16": {"dtype": "float16"},
    "one-group": {"q_heads": 6, "kv_heads": 1},
    "no-groups": {"q_heads": 3, "kv_heads": 3},
    "v-along-tokens": {"v_block_axis": -2},
    "v-wider-than-k": {"head_dim": 16, "v_head_dim": 48},
    "ragged": {"ragged": True},
    "ragged-not-causal": {"ragged": True, "causal": False},
    "ragged-window-v-along-tokens": {"ragged": True, "window": 4, "v_block_axis": -2},
    **{
        f"paged-{order}{'-v-along-tokens' if axis == -2 else ''}": {
            "layout": Paged(16, order),
            "kv_len": 48,
            "ragged": True,
            "v_block_axis": axis,
        }
        for order in ("HND", "NHD")
        for axis in (-1, -2)
    },
    "paged-window": {"layout": Paged(32), "kv_len": 64, "ragged": True, "window": 9, "batch": 3},
    "paged-full": {"layout": Paged(16), "kv_len": 32, "ragged": False},
}


@dataclass(frozen=True)
class Case:
    problem: Problem
    inputs: Inputs
    k: Array
    """K [B, Hkv, Sk, D] before quantisation, in the order of tokens."""
    v: Array


def make(name: str) -> Case:
    """Data for the problem that OPTIONS[name] changes BASE into. Sequences are long, short and empty where ragged."""
    problem = Problem(**{**BASE, **OPTIONS[name]})
    p = problem
    rng = np.random.default_rng(len(name))
    q = torch.from_numpy(rng.standard_normal((p.batch, p.q_heads, p.q_len, p.head_dim)) * 2).to(getattr(torch, p.dtype))
    k = rng.standard_normal((p.batch, p.kv_heads, p.kv_len, p.head_dim)).astype(np.float32)
    v = (rng.standard_normal((p.batch, p.kv_heads, p.kv_len, p.v_head_dim)) * 3).astype(np.float32)
    lens = torch.tensor([p.kv_len - 2, 0, 3][: p.batch], dtype=torch.int32) if p.ragged else None
    if isinstance(p.layout, Dense):
        return Case(p, Inputs(q, quantize(torch.from_numpy(k)), _v4(v, p.v_block_axis), lens), k, v)
    pages_each = p.kv_len // p.layout.page_size
    order = rng.permutation(p.batch * pages_each + 2)[: p.batch * pages_each]
    table = order.reshape(p.batch, pages_each).astype(np.int32)
    k_pages, v_pages = (_paged(data, table, p.layout) for data in (k, v))
    token_axis = -2 if p.layout.order == "HND" else -3
    v4 = _v4(v_pages, token_axis if p.v_block_axis == -2 else -1)
    return Case(p, Inputs(q, quantize(torch.from_numpy(k_pages)), v4, lens, torch.from_numpy(table)), k, v)


def _v4(v: Array, axis: int) -> NVFP4Tensor:
    return quantize(torch.from_numpy(v), block_axis=axis)


def _paged(data: Array, table: Array, layout: Paged) -> Array:
    """Pages of [B, Hkv, Sk, D], two of them in no table."""
    batch, heads, _, dim = data.shape
    pages = np.full((table.size + 2, heads, layout.page_size, dim), 0.25, np.float32)
    for b in range(batch):
        for index, page in enumerate(table[b]):
            pages[page] = data[b, :, index * layout.page_size : (index + 1) * layout.page_size]
    return pages if layout.order == "HND" else np.ascontiguousarray(pages.transpose(0, 2, 1, 3))


def poison_what_is_not_seen(case: Case) -> Case:
    """The same case, with NaN scales and codes of all ones in every token beyond its sequence and in every unused page.

    With V blocked along tokens, a block that holds one real token keeps its scale.
    """
    p, inputs = case.problem, case.inputs
    cached = []
    for cache in (inputs.k4, inputs.v4):
        codes, scales = cache.codes.clone(), cache.scales.view(torch.uint8).clone()
        along_tokens = cache.block_axis != -1
        if isinstance(p.layout, Dense):
            for b in range(p.batch):
                _poison(codes[b], scales[b], _tokens(inputs, p, b), along_tokens)
        else:
            size = p.layout.page_size
            assert inputs.block_table is not None
            seen = {
                int(page): min(size, _tokens(inputs, p, b) - index * size)
                for b in range(p.batch)
                for index, page in enumerate(inputs.block_table[b].tolist())
            }
            nhd = p.layout.order == "NHD" and not along_tokens  # stored [page_size, Hkv, ...], else [Hkv, ...]
            for page in range(codes.shape[0]):
                page_codes, page_scales = (part[page].transpose(0, 1) if nhd else part[page] for part in (codes, scales))
                _poison(page_codes, page_scales, max(seen.get(page, 0), 0), along_tokens)
        cached.append(replace(cache, codes=codes, scales=scales.view(torch.float8_e4m3fn)))
    return replace(case, inputs=replace(inputs, k4=cached[0], v4=cached[1]))


def _poison(codes: torch.Tensor, scales: torch.Tensor, tokens: int, along_tokens: bool) -> None:
    if along_tokens:  # [Hkv, Dv, tokens / 2]
        codes[..., (tokens + 1) // 2 :] = 0xFF
        scales[..., (tokens + 15) // 16 :] = 0x7F
    else:  # [Hkv, tokens, D / 2]
        codes[:, tokens:] = 0xFF
        scales[:, tokens:] = 0x7F


def _tokens(inputs: Inputs, p: Problem, b: int) -> int:
    return p.kv_len if inputs.kv_lens is None else int(inputs.kv_lens[b])


# --- the operation, from the contract, one number at a time -------------------------------------------------------------


def dequantized(t: NVFP4Tensor) -> Array:
    """Float64 values in the order of the original axes."""
    stored = values(unpacked(t), scale_bytes(t), t.global_scale.item())[..., : t.length]
    return np.moveaxis(stored, -1, t.block_axis)


def token(p: Problem, inputs: Inputs, data: Array, b: int, h: int, j: int) -> Array:
    """Vector of token j of sequence b and head h, in the cache's values `data`."""
    if isinstance(p.layout, Dense):
        vector: Array = data[b, h, j]
        return vector
    assert inputs.block_table is not None
    page, slot = int(inputs.block_table[b, j // p.layout.page_size]), j % p.layout.page_size
    return np.asarray(data[page, h, slot] if p.layout.order == "HND" else data[page, slot, h])


@dataclass(frozen=True)
class Brute:
    out: Array
    lse: Array
    mass: Array
    score: Array


def brute_force(p: Problem, inputs: Inputs, q: Array, k: Array, v: Array) -> Brute:
    """Every query row in turn; `k` and `v` are the values of the caches, `q` [B, Hq, Sq, D]."""
    shape = (p.batch, p.q_heads, p.q_len)
    out, mass = np.zeros((*shape, p.v_head_dim)), np.zeros((*shape, p.v_head_dim))
    lse, score = np.full(shape, -math.inf), np.zeros(shape)
    scale = 1 / math.sqrt(p.head_dim) if p.scale is None else p.scale
    for b in range(p.batch):
        n = _tokens(inputs, p, b)
        for h in range(p.q_heads):
            kv_head = h // (p.q_heads // p.kv_heads)
            for i in range(p.q_len):
                seen = [j for j in range(n) if not p.causal or j <= i + n - p.q_len]
                if p.window is not None:
                    seen = seen[-p.window :]
                if not seen:
                    continue
                ks = [token(p, inputs, k, b, kv_head, j) for j in seen]
                vs = [token(p, inputs, v, b, kv_head, j) for j in seen]
                s = [scale * math.fsum(q[b, h, i] * row) for row in ks]
                weights = [math.exp(x - max(s)) for x in s]
                total = math.fsum(weights)
                lse[b, h, i] = max(s) + math.log(total)
                score[b, h, i] = max(scale * math.fsum(np.abs(q[b, h, i] * row)) for row in ks)
                for d in range(p.v_head_dim):
                    out[b, h, i, d] = math.fsum(w * row[d] for w, row in zip(weights, vs, strict=True)) / total
                    mass[b, h, i, d] = math.fsum(w * abs(row[d]) for w, row in zip(weights, vs, strict=True)) / total
    return Brute(out, lse, mass, score)
