"""What is remembered of reads of global memory, and for how long."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.checks import grid_reads
from impls.cuda.emulator.checks.happens_before import HappensBefore
from impls.cuda.emulator.checks.reports import RaceFound, TooMuch
from impls.cuda.emulator.checks.shadow import Region

WORDS = 4 * np.arange(32)[None, :]


def grid(blocks: int, size: int = 1 << 20) -> HappensBefore:
    """Blocks of two warps."""
    checker = HappensBefore(blocks, 2, {"shared": 4, "global": 4})
    checker.add_global("global", size)
    checker.add_shared("shared", 4096)
    checker.reside(0, blocks)
    return checker


def log_of(checker: HappensBefore) -> grid_reads.ReadLog:
    reads = checker._spaces["global"].reads
    assert isinstance(reads, grid_reads.GridReads)
    return reads._log


def read(checker: HappensBefore, warp: int, at: int, where: int = 0) -> None:
    checker.read(np.array([warp]), Region("global", at + WORDS, 4, None), where)


def write(checker: HappensBefore, warp: int, at: int, where: int = 0) -> None:
    checker.write(np.array([warp]), Region("global", at + WORDS, 4, None), where)


def test_a_loop_that_reads_one_place_is_remembered_by_its_last_round() -> None:
    checker = grid(2)
    for _ in range(20_000):
        read(checker, 1, 512)
    assert len(log_of(checker)) < 5_000
    with pytest.raises(RaceFound) as found:
        write(checker, 2, 512)
    assert (found.value.race.first.block, found.value.race.first.warp) == (0, 1)


def test_what_all_warps_of_a_single_block_know_is_forgotten() -> None:
    checker = grid(1, 1 << 23)
    for step in range(20_000):
        read(checker, step % 2, 128 * step)
        if step % 10 == 9:
            checker.barrier(np.array([[0, 1]]))
    assert len(log_of(checker)) < 5_000
    read(checker, 1, 0)
    with pytest.raises(RaceFound):
        write(checker, 0, 0)


def test_reads_that_other_blocks_do_not_know_are_never_forgotten() -> None:
    checker = grid(2, 1 << 23)
    read(checker, 0, 0, where=7)
    for step in range(1, 20_000):
        read(checker, 0, 128 * step)
        checker.barrier(np.array([[0, 1]]))
    with pytest.raises(RaceFound) as found:
        write(checker, 3, 0)
    assert found.value.race.first.where == 7


def test_more_than_can_be_remembered_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_reads, "LARGEST", 100_000)
    checker = grid(2)
    with pytest.raises(TooMuch, match="100,000 bytes of what was read"):
        for step in range(8_000):
            read(checker, 0, 128 * step)


def test_lanes_that_read_nothing_are_no_readers() -> None:
    checker = grid(2)
    for at, lanes in ((0, [3, 9]), (4096, [3, 9]), (8192, [])):
        checker.read(np.array([0]), Region("global", at + WORDS, 4, np.isin(WORDS // 4, lanes)), 5)
    checker.write(np.array([3]), Region("global", 4096 + WORDS, 4, ~np.isin(WORDS // 4, [3, 9])), 6)
    write(checker, 3, 8192)
    with pytest.raises(RaceFound) as found:
        checker.write(np.array([3]), Region("global", 4096 + WORDS, 4, WORDS // 4 == 9), 6)
    race = found.value.race
    assert (race.offset, race.first.lane, race.first.where) == (4096 + 36, 9, 5)


def test_a_copy_that_still_reads_is_named_whichever_it_is() -> None:
    checker = grid(2)
    for warp in (0, 1, 3):
        into, out_of = Region("shared", 128 * warp + WORDS, 4), Region("global", 1024 * warp + WORDS, 4)
        checker.async_issue(np.array([warp]), into, out_of, 10 + warp)
    with pytest.raises(RaceFound) as found:
        write(checker, 2, 1024)
    race = found.value.race
    assert (race.kind, race.first.block, race.first.warp, race.first.where) == ("completion", 0, 1, 11)
