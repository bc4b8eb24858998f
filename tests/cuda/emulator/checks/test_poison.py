"""Bytes are known to be written one by one, whatever widths they are written and read in."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.checks.poison import Uninitialised, Written

LANES = np.arange(32)[None, :]


def test_nothing_is_written_at_first() -> None:
    with pytest.raises(Uninitialised, match=r"4 bytes at 0 ") as found:
        Written(256).check(4 * LANES, 4)
    assert found.value.at == (0, 0)


@pytest.mark.parametrize("wrote", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("reads", [1, 2, 4, 8, 16, 32])
def test_a_read_needs_all_its_bytes(wrote: int, reads: int) -> None:
    written = Written(1024)
    written.mark(np.arange(0, 512, wrote), wrote)
    written.check(np.arange(0, 512, reads), reads)
    with pytest.raises(Uninitialised) as found:
        written.check(np.arange(0, 1024, reads), reads)
    assert (found.value.at, found.value.offset) == ((512 // reads,), 512)


def test_one_missing_byte() -> None:
    written = Written(64)
    written.mark(np.delete(np.arange(32), 13), 1)
    with pytest.raises(Uninitialised) as found:
        written.check(np.array([[0, 16], [8, 24]]), 8)
    assert (found.value.at, found.value.offset) == ((1, 0), 8)
    with pytest.raises(Uninitialised):
        written.check(np.array([0]), 16)


def test_inactive_lanes_neither_write_nor_read() -> None:
    written = Written(128)
    written.mark(4 * LANES, 4, LANES < 5)
    written.check(4 * LANES, 4, LANES < 5)
    with pytest.raises(Uninitialised) as found:
        written.check(4 * LANES, 4, LANES < 6)
    assert found.value.at == (0, 5)


def test_range() -> None:
    written = Written(128)
    written.mark_range(16, 32)
    written.check(np.array([16]), 16)
    with pytest.raises(Uninitialised):
        written.check(np.array([48]), 16)
