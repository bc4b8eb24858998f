"""The reads that prove the L2 cold stay a chain, and go past the L1, in what is loaded."""

from __future__ import annotations

import pytest

from benchmarks.chase import PTX, assembled
from benchmarks.environment import triton_ptxas
from impls.arch import ARCHES, find


@pytest.mark.skipif(triton_ptxas() is None, reason="triton brings no ptxas here")
@pytest.mark.parametrize("arch", [name for name in ARCHES if name != "sm_110a"])  # of a later ptxas
def test_it_assembles(arch):
    assert assembled(find(arch))[:4] == b"\x7fELF"


def test_every_read_waits_for_the_last_and_skips_the_l1():
    body = PTX[PTX.index("NEXT:") : PTX.index("bra NEXT")]
    assert "ld.global.cg.u32 %value, [%address];" in body
    assert "cvt.u64.u32 %read, %value;" in body
    assert "add.u64 %address, %address, %read;" in body


def test_without_ptxas_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("benchmarks.chase.triton_ptxas", lambda *, blackwell: None)
    with pytest.raises(RuntimeError, match="comes with triton; install triton"):
        assembled(find("sm_90a"))
