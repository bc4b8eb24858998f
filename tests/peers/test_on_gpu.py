"""The same cases on the GPU that is here. Without pytest: python -m tests.peers.on_gpu."""

from __future__ import annotations

import pytest
import torch

from impls.host import gpu_here
from impls.registry import implementation
from tests.peers.gpu_cases import CASES, REPLAYED, Case, replay, run
from tests.peers.problems import PEERS

ARCH, WHY_NOT = gpu_here()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(ARCH is None, reason=str(WHY_NOT))]  # FlashInfer compiles for minutes


@pytest.mark.parametrize("case", [*CASES.values(), *REPLAYED], ids=lambda case: case.name)
@pytest.mark.parametrize("name", PEERS)
def test_within_its_error_bound_on_gpu(name: str, case: Case) -> None:
    assert ARCH is not None
    peer = implementation(name)
    reason = peer.why_not(case.problem, ARCH)
    if reason is not None:
        pytest.skip(reason)
    found = (replay if case in REPLAYED else run)(peer, case, torch.device("cuda", 0))
    assert found.out_over_bound <= 1
    assert found.lse_over_bound <= 1
