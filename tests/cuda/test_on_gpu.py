"""The behaviours on the GPU that is here. Without pytest: python -m tests.cuda.on_gpu."""

from __future__ import annotations

import pytest
import torch

from impls.host import gpu_here
from tests.cuda.behaviours import BEHAVIOURS
from tests.cuda.needs import needs_nvrtc

ARCH, WHY_NOT = gpu_here()
pytestmark = [needs_nvrtc, pytest.mark.skipif(ARCH is None, reason=str(WHY_NOT))]


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour_on_gpu(name):
    BEHAVIOURS[name](torch.device("cuda", 0))
