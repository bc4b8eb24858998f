"""The same cases and behaviours on the GPU that is here. Without pytest: python -m tests.dual_chunk.on_gpu."""

from __future__ import annotations

import pytest
import torch

from impls.host import gpu_here
from tests.dual_chunk.behaviours import BEHAVIOURS
from tests.dual_chunk.cases import CASES, run

ARCH, WHY_NOT = gpu_here()
pytestmark = pytest.mark.skipif(ARCH is None, reason=str(WHY_NOT))
DEVICE = torch.device("cuda", 0)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.inner != "triton-native"])
def test_within_its_error_bound_on_gpu(name):
    found = run(CASES[name], DEVICE)
    assert found["bad_empty_rows"] == 0, "a row that sees no key must give out 0 and lse -inf"
    assert found["out_over_bound"] <= 1
    assert found["lse_over_bound"] <= 1


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour_on_gpu(name):
    BEHAVIOURS[name](DEVICE)
