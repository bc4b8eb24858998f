"""Operations are counted over visible keys alone, and data made in slices is what `quantize` makes of the whole."""

from __future__ import annotations

import pytest
import torch

from benchmarks import data
from benchmarks.data import device_inputs, largest_value
from benchmarks.work import attended_bytes, flops, visible_pairs
from impls.contract import Problem
from impls.nvfp4 import dequantize, quantize
from impls.reference import visible_keys

HEADS = {"batch": 2, "q_heads": 6, "kv_heads": 3, "head_dim": 32, "v_head_dim": 48}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 5, 1000])
@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 64), (7, 64), (64, 64), (70, 64)])
def test_work_is_counted_key_by_key(q_len, kv_len, causal, window):
    problem = Problem(**HEADS, q_len=q_len, kv_len=kv_len, causal=causal, window=window)
    first, last = visible_keys(problem, torch.arange(q_len), kv_len)
    keys = torch.arange(kv_len)
    seen = (keys >= first[:, None]) & (keys <= last[:, None])
    assert visible_pairs(q_len, kv_len, causal, window) == int(seen.sum())
    assert flops(problem) == 2 * (32 + 48) * 2 * 6 * int(seen.sum())
    assert attended_bytes(problem) == 2 * 3 * int(seen.any(0).sum()) * (32 + 48) * 9 // 16


@pytest.mark.parametrize("v_block_axis", [-1, -2])
def test_slices_make_no_difference(v_block_axis, monkeypatch):
    problem = Problem(**HEADS, q_len=3, kv_len=40, v_block_axis=v_block_axis)
    monkeypatch.setattr(data, "SLICE", 2 * 40 * 48)
    inputs = device_inputs(problem, "cpu")
    whole = torch.cat(list(data._normal(6, 40, 48, 2, "cpu"))).unflatten(0, (2, 3))
    v4 = quantize(whole, block_axis=v_block_axis)
    assert torch.equal(inputs.v4.codes, v4.codes)
    assert torch.equal(inputs.v4.scales.view(torch.uint8), v4.scales.view(torch.uint8))
    assert torch.equal(inputs.v4.global_scale, v4.global_scale)
    assert (inputs.v4.block_axis, inputs.v4.length) == (v4.block_axis, v4.length)
    assert largest_value(v4) == pytest.approx(float(dequantize(v4).abs().max()), rel=1e-6)


def test_values_are_standard_normal_and_differ():
    inputs = device_inputs(Problem(**HEADS, q_len=64, kv_len=640), "cpu")
    k = dequantize(inputs.k4)
    assert inputs.q.dtype == torch.bfloat16
    for values in (inputs.q.float(), k, dequantize(inputs.v4)):
        assert float(values.mean()) == pytest.approx(0.0, abs=0.02)
        assert float(values.std()) == pytest.approx(1.0, abs=0.02)
    assert not torch.equal(k[0, 0], k[0, 1])
