"""The same cases on the GPU that is here, by all of ours. Without pytest: python -m tests.weights.on_gpu check."""

from __future__ import annotations

import pytest
import torch

from impls.host import gpu_here
from tests.weights.cases import ON_GPU, on_gpu, run

ARCH, WHY_NOT = gpu_here()
pytestmark = pytest.mark.skipif(ARCH is None, reason=str(WHY_NOT))
DEVICE = torch.device("cuda", 0)


@pytest.mark.parametrize(("impl", "name"), on_gpu())
def test_within_its_error_bound_on_gpu(impl, name):
    found = run(ON_GPU[name], DEVICE, impl)
    assert found["over_bound"] <= 1
    assert found["same_again"], "a second call gave other bits"
    assert found["spilt"] == 0, "it wrote beyond the output"
