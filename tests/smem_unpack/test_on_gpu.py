"""The same cases and behaviours on the GPU that is here. Without pytest: python -m tests.smem_unpack.on_gpu."""

from __future__ import annotations

import pytest
import torch

from impls.arch import find
from impls.host import gpu_here
from tests.a4q.cases import assert_holds
from tests.smem_unpack.behaviours import BEHAVIOURS
from tests.smem_unpack.cases import names, run
from tests.triton.cases import CASES

ARCH, WHY_NOT = gpu_here()
pytestmark = pytest.mark.skipif(ARCH is None, reason=str(WHY_NOT))
DEVICE = torch.device("cuda", 0)


@pytest.mark.parametrize("name", names(ARCH or find("sm_90a")))
def test_within_its_error_bound_on_gpu(name: str) -> None:
    assert_holds(run(CASES[name], DEVICE))


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour_on_gpu(name: str) -> None:
    BEHAVIOURS[name](DEVICE)
