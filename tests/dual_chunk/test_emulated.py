"""Chunks by CUDA kernels, executed by the emulator: what is merged are float32 results, rounded by nobody."""

from __future__ import annotations

from typing import Any

import pytest

from impls.worker import Worker
from tests.cuda.needs import needs_nvrtc

SHAPE: dict[str, Any] = {"batch": 1, "q_heads": 2, "kv_heads": 1, "q_len": 1, "kv_len": 100, "head_dim": 64, "v_head_dim": 64}
ROUNDED = 2.0**-17
"""Errors of means, at most: some units of float32 in weights and sums. Rounding to float16 is up to 2^-12, to bfloat16 2^-9."""


@needs_nvrtc
@pytest.mark.parametrize(
    ("arch", "inner", "longest", "gap", "shape", "launches"),
    [
        pytest.param("sm_80", "a4q-q16", 32, 0, {}, (4, 0, 3), id="few rows"),
        pytest.param("sm_80", "a4q", 32, 0, {"q_len": 40, "dtype": "float16"}, None, id="tiles of a causal mask"),
        pytest.param("sm_80", "a4q-q16", 1200, 0, {"kv_len": 2400}, (2, 2, 1), id="splits inside"),
        pytest.param("sm_120a", "a4q", 32, 0, {"q_len": 12}, None, id="native"),
        pytest.param("sm_120a", "a4q", 128, 1, {"q_len": 12}, (1, 0, 0), id="native, to lines of odd length"),
        pytest.param(
            "sm_120a", "a4q", 128, 2, {"q_len": 12, "v_block_axis": -2, "kv_len": 112}, (1, 0, 0), id="native, along tokens"
        ),
    ],
)
def test_chunks_are_merged_from_float32(arch, inner, longest, gap, shape, launches):
    request = {"arch": arch, "inner": inner, "longest": longest, "gap": gap, "problem": {**SHAPE, **shape}}
    with Worker("tests.dual_chunk.children:means", env={"TRITON_INTERPRET": "0"}) as worker:
        found = worker.call(request, timeout=300)
    assert found.status == "ok", found.sentence
    assert launches is None or tuple(found.value[kind] for kind in ("attend", "combine", "fold")) == launches, found.value
    assert found.value["out"] < ROUNDED, found.value
    assert found.value["lse"] < ROUNDED, found.value
