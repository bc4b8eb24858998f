"""The same checks on the GPU that is here. Without pytest: python -m tests.hybrid.on_gpu."""

from __future__ import annotations

import pytest

from impls.host import gpu_here
from tests.hybrid.on_gpu import checks

ARCH, WHY_NOT = gpu_here()
CHECKS = dict(checks()) if ARCH else {"no GPU": lambda: None}


@pytest.mark.skipif(ARCH is None, reason=str(WHY_NOT))
@pytest.mark.parametrize("name", CHECKS)
def test_on_gpu(name):
    CHECKS[name]()
