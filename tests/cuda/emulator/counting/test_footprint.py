"""Sectors that DRAM must deliver: read first, and once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from impls.cuda.emulator.counting.footprint import Footprint

START = 0x7F0000000040


def test_a_sector_is_fetched_once() -> None:
    footprint = Footprint(START, 1024)
    for _ in range(2):
        footprint.read(np.arange(START, START + 256, 4, dtype=np.uint64), 4)
    assert footprint.fetched_bytes == 256


def test_what_was_written_first_is_not_fetched() -> None:
    footprint = Footprint(START, 1024)
    footprint.write(np.array([START], np.uint64), 4)
    footprint.read(np.array([START, START + 32], np.uint64), 16)
    footprint.write(np.array([START + 32], np.uint64), 16)
    assert footprint.fetched_bytes == 32


def test_an_allocation_may_start_within_a_sector() -> None:
    footprint = Footprint(START + 16, 32)
    footprint.read(np.array([START + 16, START + 32], np.uint64), 16)
    assert footprint.fetched_bytes == 64


ACCESS = st.tuples(st.booleans(), st.sampled_from((1, 4, 16, 32, 64)), st.lists(st.integers(0, 15), min_size=1, max_size=8))


@given(st.lists(ACCESS, max_size=6))
def test_equals_a_count_byte_by_byte(accesses: list[tuple[bool, int, list[int]]]) -> None:
    footprint = Footprint(START, 1024)
    known: set[int] = set()
    fetched: set[int] = set()
    for is_write, size, places in accesses:
        addresses = np.array([START + size * place for place in places], np.uint64)
        (footprint.write if is_write else footprint.read)(addresses, size)
        touched = {int(address + byte) // 32 for address in addresses.tolist() for byte in range(size)}
        if not is_write:
            fetched |= touched - known
        known |= touched
    assert footprint.fetched_bytes == 32 * len(fetched)
