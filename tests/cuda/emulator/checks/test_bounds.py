"""Addresses at and beyond every edge of two allocations with a gap between."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.checks.bounds import Allocation, Allocations, BadAddress

KEYS = Allocation("keys", 0x1000, 64)
VALUES = Allocation("values", 0x1100, 8)
BOTH = Allocations([VALUES, KEYS])


def addresses(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def test_inside() -> None:
    index, offsets = BOTH.locate(addresses(0x1000, 0x103C, 0x1100, 0x1104), 4)
    assert index.tolist() == [0, 0, 1, 1]
    assert offsets.tolist() == [0, 60, 0, 4]


@pytest.mark.parametrize(
    ("address", "size", "text"),
    [
        (0x0FFC, 4, "4 bytes at 0xffc are in no allocation: 4 bytes before keys (64 bytes from 0x1000)."),
        (
            0x1040,
            4,
            "4 bytes at 0x1040 are in no allocation: 0 bytes after the end of keys (64 bytes from 0x1000) "
            "and 192 bytes before values (8 bytes from 0x1100).",
        ),
        (0x1100, 16, "16 bytes at 0x1100 reach 8 bytes beyond the end of values (8 bytes from 0x1100)."),
        (0x1200, 4, "4 bytes at 0x1200 are in no allocation: 248 bytes after the end of values (8 bytes from 0x1100)."),
        (0x1002, 4, "4 bytes at 0x1002: the address is no multiple of 4."),
        (0, 8, "8 bytes at 0x0 are in no allocation: 4096 bytes before keys (64 bytes from 0x1000)."),
        (
            2**64 - 8,
            8,
            f"8 bytes at {2**64 - 8:#x} are in no allocation: {2**64 - 8 - 0x1108} bytes after the end of values (8",
        ),
    ],
)
def test_outside(address: int, size: int, text: str) -> None:
    good = 0x1000
    with pytest.raises(BadAddress) as found:
        BOTH.locate(addresses(good, address).reshape(1, 2), size)
    assert str(found.value).startswith(text)
    assert (found.value.at, found.value.address) == ((0, 1), address)


def test_inactive_lanes_may_hold_anything() -> None:
    index, offsets = BOTH.locate(addresses(3, 0x1100, 2**63), 8, np.array([False, True, False]))
    assert (index[1], offsets[1]) == (1, 0)


def test_without_allocations_every_address_is_wrong() -> None:
    with pytest.raises(BadAddress, match=r"0x1000 are in no allocation"):
        Allocations([]).locate(addresses(0x1000), 4)


def test_overlap_is_refused() -> None:
    with pytest.raises(ValueError, match="overlaps"):
        Allocations([KEYS, Allocation("more", 0x103F, 4)])
