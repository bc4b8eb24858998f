"""Residency of blocks: points that are known from the H200 and from the limits that bind elsewhere."""

from __future__ import annotations

import pytest

from impls.arch import ARCHES, find
from impls.occupancy import resident_warps


@pytest.mark.parametrize(("registers", "warps"), [(128, 16), (129, 12), (168, 12), (169, 8), (255, 8), (64, 32), (32, 32)])
def test_registers_of_one_warp_blocks_on_an_h200(registers, warps):
    """32 registers would let 64 warps in, but no more than 32 blocks reside."""
    assert resident_warps(find("sm_90a"), threads=32, registers=registers, shared_bytes=0) == warps


@pytest.mark.parametrize(
    ("arch", "shared_bytes", "blocks"),
    [("sm_90a", 232448, 1), ("sm_90a", 115712, 2), ("sm_90a", 115713, 1), ("sm_120a", 50176, 2)],
)
def test_shared_memory_with_what_the_system_keeps(arch, shared_bytes, blocks):
    assert resident_warps(find(arch), threads=128, registers=32, shared_bytes=shared_bytes) == 4 * blocks


def test_more_than_a_block_may_have_fits_nowhere():
    for arch in ARCHES.values():
        assert resident_warps(arch, threads=128, registers=32, shared_bytes=arch.shared_per_block) == 4
        assert resident_warps(arch, threads=128, registers=32, shared_bytes=arch.shared_per_block + 1) == 0
        assert resident_warps(arch, threads=1024, registers=65, shared_bytes=0) == 0


def test_a_block_is_whole_or_not_there():
    """Registers for 8 warps hold 2 blocks of 3."""
    assert resident_warps(find("sm_90a"), threads=96, registers=255, shared_bytes=0) == 6


def test_the_most_warps_of_an_sm():
    assert resident_warps(find("sm_90a"), threads=512, registers=32, shared_bytes=0) == 64
    assert resident_warps(find("sm_120a"), threads=512, registers=32, shared_bytes=0) == 48
