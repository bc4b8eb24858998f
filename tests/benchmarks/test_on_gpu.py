"""The same checks on the GPU that is here. Without pytest: python -m tests.benchmarks.on_gpu."""

from __future__ import annotations

import pytest

from impls.host import gpu_here
from tests.benchmarks.on_gpu import CHECKS, measured

ARCH, WHY_NOT = gpu_here()


@pytest.mark.skipif(ARCH is None, reason=str(WHY_NOT))
@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_on_gpu(name):
    CHECKS[name](measured())
