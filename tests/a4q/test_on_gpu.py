"""The same cases and behaviours on the GPU that is here. Without pytest: python -m tests.a4q.on_gpu."""

from __future__ import annotations

import pytest
import torch

from impls.host import gpu_here
from impls.registry import implementation
from tests.a4q.behaviours import BEHAVIOURS
from tests.a4q.cases import ALL_CASES, NAMES, assert_holds, run

ARCH, WHY_NOT = gpu_here()
pytestmark = pytest.mark.skipif(ARCH is None, reason=str(WHY_NOT))
DEVICE = torch.device("cuda", 0)


@pytest.mark.parametrize(("impl", "name"), NAMES)
def test_within_its_error_bound_on_gpu(impl: str, name: str) -> None:
    assert_holds(run(implementation(impl), ALL_CASES[name], DEVICE))


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour_on_gpu(name: str) -> None:
    BEHAVIOURS[name](DEVICE)
