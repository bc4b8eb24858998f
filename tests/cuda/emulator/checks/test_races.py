"""Litmus tests: small programs that are right, and the same programs with one thing missing."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from impls.cuda.emulator.checks import happens_before
from impls.cuda.emulator.checks.clocks import Ints
from impls.cuda.emulator.checks.happens_before import HappensBefore, Scope
from impls.cuda.emulator.checks.reports import RaceFound, TooMuch
from impls.cuda.emulator.checks.shadow import Region

LANES = np.arange(32)[None, :]


class Program:
    """Calls the checker for one warp, or for several at once, all lanes accessing consecutive words."""

    def __init__(self, blocks: int = 1, warps: int = 4, grain: int = 4) -> None:
        self.checker = HappensBefore(blocks, warps, {"shared": grain, "global": grain})
        self.checker.add_shared("shared", 4096)
        self.checker.reside(0, blocks)
        self.checker.add_global("global", 4096)
        self.width = warps
        self.at = 0

    def access(self, kind: str, warps: int | list[int], at: int, space: str, lanes: int, size: int, **order: object) -> None:
        self.at += 1
        who = np.atleast_1d(np.array(warps))
        offsets = np.broadcast_to(at + size * LANES, (len(who), 32))
        active = np.broadcast_to(lanes > LANES, (len(who), 32))
        getattr(self.checker, kind)(who, Region(space, offsets, size, active), self.at, **order)

    def read(
        self, warps: int | list[int], at: int = 0, space: str = "shared", lanes: int = 32, size: int = 4, **order: object
    ) -> None:
        self.access("read", warps, at, space, lanes, size, **order)

    def write(
        self, warps: int | list[int], at: int = 0, space: str = "shared", lanes: int = 32, size: int = 4, **order: object
    ) -> None:
        self.access("write", warps, at, space, lanes, size, **order)

    def atomic(self, warps: int | list[int], at: int = 0, space: str = "global", lanes: int = 1, **order: object) -> None:
        self.access("atomic", warps, at, space, lanes, 4, **order)

    def barrier(self, *warps: int) -> None:
        self.checker.barrier(np.array([warps]))

    def fence(self, warps: int | list[int], scope: Scope = "gpu", sc: bool = False) -> None:
        self.checker.fence(np.atleast_1d(np.array(warps)), scope, sc)

    def warp_sync(self, warp: int) -> None:
        self.checker.warp_sync(np.array([warp]))

    def arrive(self, warp: int, key: str = "full", scope: Scope = "cta") -> None:
        self.checker.release(np.array([warp]), [key], scope)

    def wait(self, warp: int, key: str = "full", scope: Scope = "cta") -> None:
        self.checker.acquire(np.array([warp]), [key], scope)

    def copy(self, warp: int, into: int = 0, out_of: int = 0, bulk: bool = False, store: bool = False) -> Ints:
        self.at += 1
        shared = Region("shared", into + 4 * LANES, 4)
        memory = Region("global", out_of + 4 * LANES, 4)
        target, source = (memory, shared) if store else (shared, memory)
        return self.checker.async_issue(np.array([warp]), target, source, self.at, bulk)


def test_read_of_another_warps_write_needs_a_barrier() -> None:
    program = Program()
    program.write(0)
    with pytest.raises(RaceFound) as found:
        program.read(1)
    race = found.value.race
    assert (race.kind, race.space, race.offset, race.size) == ("order", "shared", 0, 4)
    assert (race.first.block, race.first.warp, race.first.lane, race.first.where) == (0, 0, 0, 1)
    assert (race.second.block, race.second.warp, race.second.lane, race.second.where) == (0, 1, 0, 2)
    assert str(race) == (
        "shared memory at 0 (4 bytes): instruction 2 of block 0, warp 1, lane 0 reads, "
        "after instruction 1 of block 0, warp 0, lane 0 writes, but nothing orders the two."
    )


def test_barrier_orders() -> None:
    program = Program()
    program.write(0)
    program.barrier(0, 1, 2, 3)
    program.read([1, 2, 3])
    program.read(0)


def test_named_barrier_orders_its_own_warps_only() -> None:
    program = Program()
    program.write(0)
    program.barrier(0, 1)
    program.read(1)
    with pytest.raises(RaceFound):
        program.read(2)


def test_named_barriers_chain() -> None:
    program = Program()
    program.write(0)
    program.barrier(0, 1)
    program.barrier(1, 2)
    program.read(2)


def test_reads_never_race() -> None:
    program = Program(blocks=2)
    program.read([0, 1, 2, 3])
    program.read([0, 1, 2, 3, 4, 5, 6, 7], space="global")
    program.read(5, space="global")


def test_next_rounds_write_needs_everyone_to_have_read() -> None:
    for fenced in (True, False):
        program = Program()
        program.write(0)
        program.barrier(0, 1, 2, 3)
        program.read([1, 2, 3])
        if fenced:
            program.barrier(0, 1, 2, 3)
            program.write(0)
        else:
            program.barrier(0, 1, 2)  # warp 3 may still read
            with pytest.raises(RaceFound) as found:
                program.write(0)
            assert found.value.race.first.warp == 3


@pytest.mark.parametrize("barrier", [True, False])
def test_write_after_write(barrier: bool) -> None:
    program = Program()
    program.write(0)
    if barrier:
        program.barrier(0, 1)
        program.write(1)
    else:
        with pytest.raises(RaceFound):
            program.write(1)


def test_double_buffer_needs_one_barrier_a_round() -> None:
    program = Program()
    for step in range(6):
        program.write([0], at=128 * (step % 2))
        program.barrier(0, 1, 2, 3)
        program.read([1, 2, 3], at=128 * (step % 2))


def test_single_buffer_with_one_barrier_a_round_races() -> None:
    program = Program()
    program.write(0)
    program.barrier(0, 1, 2, 3)
    program.read([1, 2, 3])
    with pytest.raises(RaceFound):
        program.write(0)


def test_blocks_have_their_own_shared_memory() -> None:
    program = Program(blocks=2)
    program.write([0, 4])
    program.barrier(0, 1, 2, 3)
    program.read(1)
    with pytest.raises(RaceFound) as found:
        program.read(5)
    assert (found.value.race.first.block, found.value.race.second.block, found.value.race.offset) == (1, 1, 0)


def test_wide_and_narrow_accesses_meet() -> None:
    program = Program(grain=1)
    program.write(0, at=16, size=16, lanes=1)
    program.read(1, at=12, size=4, lanes=1)
    program.read(1, at=32, size=1, lanes=1)
    with pytest.raises(RaceFound) as found:
        program.read(1, at=31, size=1, lanes=1)
    assert found.value.race.offset == 31


def test_inactive_lanes_access_nothing() -> None:
    program = Program()
    program.write(0, lanes=3)
    program.write(1, at=12, lanes=1)
    program.read(2, at=16, lanes=30)
    with pytest.raises(RaceFound):
        program.read(2, at=12, lanes=1)


def test_access_narrower_than_a_grain_is_refused() -> None:
    with pytest.raises(ValueError, match="2 bytes"):
        Program().read(0, size=2)


@pytest.mark.parametrize("together", [True, False])
def test_lanes_exchange_only_after_coming_together(together: bool) -> None:
    program = Program()
    program.write(0)
    program.read(0)  # each lane its own word
    if together:
        program.warp_sync(0)
        program.read(0, at=4)
    else:
        with pytest.raises(RaceFound) as found:
            program.read(0, at=4)
        assert (found.value.race.first.lane, found.value.race.second.lane) == (1, 0)


@pytest.mark.parametrize("together", [True, False])
def test_lane_overwrites_what_another_read(together: bool) -> None:
    program = Program()
    program.read(0)
    if together:
        program.warp_sync(0)
        program.write(0, at=4)
    else:
        with pytest.raises(RaceFound):
            program.write(0, at=4)


def test_warps_of_one_instruction_write_one_place() -> None:
    program = Program(blocks=2)
    program.write([0, 4])  # each block its own
    with pytest.raises(RaceFound) as found:
        program.write([0, 1], at=256)
    race = found.value.race
    assert (race.first.warp, race.second.warp, race.first.where, race.second.where) == (0, 1, 2, 2)


@pytest.mark.parametrize("same", [True, False])
def test_writes_of_the_same_value_by_one_instruction_are_no_race(same: bool) -> None:
    """All warps store a value that all of them computed: whoever comes last, memory holds the same."""
    program = Program()
    warps = np.array([0, 1])
    offsets = np.broadcast_to(4 * LANES, (2, 32))
    if same:
        program.checker.write(
            warps, Region("shared", offsets, 4, None), 1, repeats=lambda: np.array([[False], [True]]) | (offsets < 0)
        )
        program.checker.write(warps[::-1], Region("shared", offsets, 4, None), 1, repeats=lambda: offsets >= 0)
    else:
        with pytest.raises(RaceFound):
            program.checker.write(warps, Region("shared", offsets, 4, None), 1, repeats=lambda: offsets < 0)
        program = Program()
        program.write(3)
        with pytest.raises(RaceFound):
            program.checker.write(warps, Region("shared", offsets, 4, None), 1, repeats=lambda: offsets < 0)


# Global memory


def test_blocks_do_not_order_each_other() -> None:
    program = Program(blocks=2)
    program.write(0, space="global")
    program.barrier(0, 1, 2, 3)
    program.read(3, space="global")
    with pytest.raises(RaceFound) as found:
        program.read(4, space="global")
    assert (found.value.race.first.block, found.value.race.second.block) == (0, 1)


def test_launch_boundary_orders_everything() -> None:
    program = Program(blocks=2)
    program.write(0, space="global")
    program.atomic(1, at=512)
    program.read([0, 4], at=1024, space="global")
    program.checker.launch_boundary(3, 2)
    program.read([3, 5], space="global")
    program.write(5, at=512, space="global")
    program.write(2, at=1024, space="global")


def test_copies_have_ended_with_their_launch() -> None:
    program = Program()
    program.copy(0, out_of=0)
    program.copy(0, into=1024, out_of=512, store=True, bulk=True)
    program.checker.launch_boundary(1, 1)
    program.write(0, at=0, space="global")
    program.read(0, at=1024, space="global")


def test_atomics_of_overlapping_launches() -> None:
    program = Program(blocks=2)
    program.atomic(7)
    program.checker.launch_boundary(5, 2, overlaps=True)
    program.atomic(9)
    with pytest.raises(RaceFound):
        program.write(8, space="global")
    program.checker.griddepcontrol_wait(np.array([8]))
    with pytest.raises(RaceFound) as found:
        program.write(8, space="global")
    assert (found.value.race.first.block, found.value.race.first.warp) == (4, 1)


def test_warps_of_overlapping_launches_are_different_ones() -> None:
    program = Program()
    program.read(0, space="global")
    program.atomic(0, at=1024, scope="cta")
    program.checker.launch_boundary(1, 4, overlaps=True)
    program.read(0, space="global")
    with pytest.raises(RaceFound) as found:
        program.write(0, space="global")
    assert found.value.race.first.where == 1
    with pytest.raises(RaceFound) as found:
        program.atomic(0, at=1024, scope="cta")
    assert found.value.race.kind == "scope"


def test_who_has_waited_for_the_earlier_launch_passes_it_on() -> None:
    program = Program()
    program.write(0, space="global")
    program.checker.launch_boundary(2, 4, overlaps=True)
    program.checker.griddepcontrol_wait(np.array([0]))
    program.arrive(0, scope="gpu")
    program.checker.complete_phase("full")
    program.wait(4, scope="gpu")
    program.read(4, space="global")
    with pytest.raises(RaceFound):
        program.read(5, space="global")


@pytest.mark.parametrize("access", ["read", "write"])
@pytest.mark.parametrize("waits", [True, False])
def test_overlapping_launch_waits_for_its_predecessor(access: str, waits: bool) -> None:
    program = Program(blocks=2)
    program.write(0, space="global")
    program.read(0, at=1024, space="global")
    program.checker.launch_boundary(2, 4, overlaps=True)
    if waits:
        program.checker.griddepcontrol_wait(np.array([0]))
        program.barrier(0, 1)
    where = 0 if access == "read" else 1024
    if waits:
        getattr(program, access)([0], at=where, space="global")
        getattr(program, access)([1], at=where + 128, space="global")
    for warp in (2, 0) if not waits else (2,):
        with pytest.raises(RaceFound):
            getattr(program, access)([warp], at=where, space="global")


def test_write_after_reads_of_several_blocks() -> None:
    program = Program(blocks=3)
    program.read([0, 4], space="global")
    program.read(8, space="global")
    with pytest.raises(RaceFound):
        program.write(8, space="global")


def test_write_by_the_last_of_several_readers() -> None:
    program = Program(blocks=2)
    program.read([0, 4], space="global")
    for warp in (0, 4):
        with pytest.raises(RaceFound) as found:
            program.write(warp, space="global")
        assert found.value.race.first.block == 1 - warp // 4


def last_block_combines(producer_fence: Scope | None, consumer_fence: Scope | None, scope: Scope = "gpu") -> None:
    """Each block writes its part and counts itself; the last one, when it has seen the others, reads all parts."""
    program = Program(blocks=3, warps=2)
    for block in range(3):
        first, second = 2 * block, 2 * block + 1
        program.write([first], at=256 * block, space="global")
        program.write([second], at=256 * block + 128, space="global")
        program.barrier(first, second)
        if producer_fence:
            program.fence(first, producer_fence)
        program.atomic(first, at=2048, scope=scope)
    if consumer_fence:
        program.fence(4, consumer_fence)
    program.barrier(4, 5)
    for part in range(6):
        program.read([4, 5], at=128 * part, space="global")
    program.barrier(4, 5)
    program.write(5, at=0, space="global")
    program.write(4, at=2048, space="global", lanes=1)  # the counter, for the next launch


def test_last_block_combines() -> None:
    last_block_combines("gpu", "gpu")
    last_block_combines("sys", "gpu", "sys")


@pytest.mark.parametrize(
    "fences",
    [(None, "gpu", "gpu"), ("gpu", None, "gpu"), (None, None, "gpu"), ("cta", "gpu", "gpu"), ("gpu", "cta", "gpu")],
)
def test_last_block_combines_without_its_fences(fences: tuple[Scope | None, Scope | None, Scope]) -> None:
    with pytest.raises(RaceFound) as found:
        last_block_combines(*fences)
    assert found.value.race.second.does == "reads"


@pytest.mark.parametrize("sc", [True, False])
def test_fence_by_every_writer_before_the_barrier(sc: bool) -> None:
    """`write; __threadfence(); __syncthreads(); if (first) atomicAdd()`: right with fence.sc, which __threadfence is."""
    program = Program(blocks=2, warps=2)
    program.write(0, space="global")
    program.write(1, at=128, space="global")
    program.fence([0, 1], sc=sc)
    program.barrier(0, 1)
    program.atomic(0, at=2048)
    program.atomic(2, at=2048)
    program.barrier(2, 3)
    program.fence([2, 3], sc=sc)
    if sc:
        program.read([2, 3], at=128, space="global")
    else:
        with pytest.raises(RaceFound):
            program.read([2, 3], at=128, space="global")


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("space", ["shared", "global"])
def test_warps_that_repeat_what_one_instruction_wrote(at_once: bool, space: str) -> None:
    """They store data that they all hold: no fault if the same bytes were there, else a race as any other."""

    def write_all(repeats: bool, second: int) -> None:
        program = Program()
        found = np.array([[False] * 32, [repeats] * 32])
        if at_once:
            program.write([0, 1], space=space, repeats=lambda: found)
        else:
            program.write(0, space=space)
            program.at += second - 2
            program.write(1, space=space, repeats=lambda: found[1:])

    write_all(True, second=1)
    with pytest.raises(RaceFound):
        write_all(False, second=1)
    if not at_once:
        with pytest.raises(RaceFound):  # by another instruction it is luck that the values are equal
            write_all(True, second=2)


def test_repeated_write_orders_nothing() -> None:
    program = Program()
    program.write([0, 1], repeats=lambda: np.array([[False] * 32, [True] * 32]))
    with pytest.raises(RaceFound):
        program.read(2)


def test_count_of_too_narrow_scope() -> None:
    with pytest.raises(RaceFound) as found:
        last_block_combines("gpu", "gpu", "cta")
    assert (found.value.race.kind, found.value.race.offset) == ("scope", 2048)


def test_counter_is_reset_only_by_who_knows_all_counts() -> None:
    program = Program(blocks=3)
    for warp in (0, 4, 8):
        program.atomic(warp)
    with pytest.raises(RaceFound) as found:
        program.write(4, space="global", lanes=1)  # has read what warp 0 counted, but warp 8 came later
    assert (found.value.race.first.block, found.value.race.first.does) == (2, "updates atomically")
    program.write(8, space="global", lanes=1)


def test_atomics_do_not_race_with_each_other() -> None:
    program = Program(blocks=2)
    program.atomic([0, 1, 4], lanes=32)
    program.atomic(5, lanes=32)
    program.read(3, space="global", lanes=1, scope="gpu")


def test_atomics_of_one_instruction_happen_in_the_order_of_its_rows() -> None:
    """Three blocks in step: the last row's count says that the others have written."""
    for combines in (8, 4):
        program = Program(blocks=3)
        for block in range(3):
            program.write(4 * block, at=128 * block, space="global")
        program.atomic([0, 4, 8], at=2048, order="acq_rel")
        program.read(combines, space="global")
        if combines == 8:
            program.read(8, at=128, space="global")
        else:
            with pytest.raises(RaceFound):
                program.read(4, at=256, space="global")


@pytest.mark.parametrize("returns", [True, False])
def test_reduction_acquires_nothing(returns: bool) -> None:
    program = Program(blocks=2)
    program.write(0, space="global")
    program.atomic(0, at=2048, order="release")
    program.atomic(4, at=2048, order="acquire", returns=returns)
    if returns:
        program.read(4, space="global")
    else:
        with pytest.raises(RaceFound):
            program.read(4, space="global")


@pytest.mark.parametrize("plain", ["read", "write"])
def test_atomic_against_plain_access(plain: str) -> None:
    program = Program(blocks=2)
    program.atomic(0)
    with pytest.raises(RaceFound):
        getattr(program, plain)(4, space="global")
    program = Program(blocks=2)
    getattr(program, plain)(4, space="global")
    with pytest.raises(RaceFound):
        program.atomic(0)


@pytest.mark.parametrize(("store", "load"), [("release", "acquire"), ("relaxed", "acquire"), ("release", "relaxed")])
def test_message_through_a_flag(store: str, load: str) -> None:
    program = Program(blocks=2)
    program.write(0, space="global")
    program.write(0, at=1024, space="global", lanes=1, scope="gpu", order=store)
    program.read(4, at=1024, space="global", lanes=1, scope="gpu", order=load)
    if (store, load) == ("release", "acquire"):
        program.read(4, space="global")
    else:
        with pytest.raises(RaceFound):
            program.read(4, space="global")


def test_acquire_of_a_later_plain_store_sees_no_earlier_release() -> None:
    program = Program(blocks=3)
    program.write(0, space="global")
    program.write(0, at=1024, space="global", lanes=1, scope="gpu", order="release")
    program.write(4, at=1024, space="global", lanes=1, scope="gpu")
    program.read(8, at=1024, space="global", lanes=1, scope="gpu", order="acquire")
    with pytest.raises(RaceFound):
        program.read(8, space="global")


def test_acquire_through_an_atomic_of_another_warp() -> None:
    program = Program(blocks=3)
    program.write(0, space="global")
    program.atomic(0, at=1024, order="release")
    program.atomic(4, at=1024)
    program.atomic(8, at=1024, order="acquire")
    program.read(8, space="global")


def test_cluster_scope_is_the_blocks() -> None:
    for reader, fine in ((1, True), (4, False)):
        program = Program(blocks=4)
        program.write(0, space="global")
        program.arrive(0, scope="cluster")
        program.checker.complete_phase("full")
        program.wait(reader, scope="cluster")
        if fine:
            program.read(reader, space="global")
        else:
            with pytest.raises(RaceFound):
                program.read(reader, space="global")


def test_lane_zero_of_the_first_copys_warp_waits_too() -> None:
    program = Program()
    program.copy(0)
    with pytest.raises(RaceFound) as found:
        program.read(0, lanes=1)
    assert found.value.race.kind == "completion"


@pytest.mark.parametrize("ordered", [True, False])
def test_many_reads_of_two_blocks_before_a_write(ordered: bool) -> None:
    """Only the block whose warps met may write."""
    program = Program(blocks=2)
    for step in range(100):
        program.read([0, 1, 4, 5], at=4 * step)
    program.barrier(0, 1, 2, 3)
    if ordered:
        program.barrier(4, 5, 6, 7)
    program.write(3, at=128)
    if ordered:
        program.write(7, at=128)
    else:
        with pytest.raises(RaceFound) as found:
            program.write(7, at=128)
        assert (found.value.race.first.block, found.value.race.first.warp) == (1, 0)


# Blocks that execute after each other


def test_blocks_that_come_later_have_shared_memory_of_their_own() -> None:
    program = Program(blocks=6)
    program.checker.reside(4, 2)
    program.write(16)
    program.atomic(17, at=1024, space="shared", scope="cta", order="release")
    program.read(22, at=256)
    token = program.copy(16, into=2048)
    program.checker.reside(0, 2)
    program.read(1)
    program.write(6, at=256)
    program.atomic(1, at=1024, space="shared", scope="cta", order="acquire")
    program.write(1, at=1024)
    program.read(1, at=2048)
    program.write(1)
    with pytest.raises(RaceFound) as found:
        program.read(2)
    assert (found.value.race.first.block, found.value.race.second.block, found.value.race.offset) == (0, 0, 0)
    assert token.size


def test_what_a_later_block_reads_in_shared_memory_is_a_race_too() -> None:
    program = Program(blocks=6)
    program.checker.reside(4, 2)
    program.read(20, at=128)
    with pytest.raises(RaceFound) as found:
        program.write(21, at=128)
    race = found.value.race
    assert (race.first.block, race.first.warp, race.second.block, race.offset) == (5, 0, 5, 128)


def test_a_flag_in_shared_memory_is_not_that_of_the_block_before() -> None:
    """Block 0 releases; block 2, whose memory is where block 0's was, acquires nothing by it."""
    program = Program(blocks=4)
    program.checker.reside(0, 2)
    program.write(0, space="global")
    program.atomic(0, at=1024, space="shared", scope="gpu", order="release")
    program.checker.reside(2, 2)
    program.atomic(8, at=1024, space="shared", scope="gpu", order="acquire")
    with pytest.raises(RaceFound):
        program.read(8, space="global")


def test_global_memory_remembers_blocks_that_have_ended() -> None:
    program = Program(blocks=4)
    program.checker.reside(0, 2)
    program.write(0, space="global")
    program.read(1, at=512, space="global")
    program.checker.reside(2, 2)
    program.read(8, at=512, space="global")
    for access in (lambda: program.read(8, space="global"), lambda: program.write(8, at=512, space="global")):
        with pytest.raises(RaceFound) as found:
            access()
        assert found.value.race.first.block == 0


def test_shadow_of_shared_memory_is_that_of_the_blocks_that_reside() -> None:
    tracemalloc.start()
    checker = HappensBefore(512, 8, {"shared": 4, "global": 4})
    checker.add_shared("shared", 100_000)
    for first in range(0, 512, 128):
        checker.reside(first, 8)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 60e6


# What is remembered


def test_moments_run_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(happens_before, "FLIGHT", 5)
    program = Program()
    with pytest.raises(TooMuch, match="5 moments"):
        for _ in range(6):
            program.read(0)


def test_calls_of_launches_before_are_forgotten() -> None:
    program = Program()
    for _ in range(50):
        for _ in range(20):
            program.barrier(0, 1, 2, 3)
        program.checker.launch_boundary(1, 4)
    assert len(program.checker._calls) < 30


# mbarriers and asynchronous copies


@pytest.mark.parametrize("missing", ["", "arrive", "phase", "wait"])
def test_mbarrier_producer_and_consumer(missing: str) -> None:
    program = Program()
    program.write(0)
    if missing != "arrive":
        program.arrive(0)
    if missing != "phase":
        program.checker.complete_phase("full")
    if missing != "wait":
        program.wait(1)
    if missing:
        with pytest.raises(RaceFound):
            program.read(1)
    else:
        program.read(1)


@pytest.mark.parametrize("consumers", [(1, 2, 3), (1, 2)])
def test_ring_of_stages(consumers: tuple[int, ...]) -> None:
    """The producer refills a stage when all readers have arrived at its "empty" barrier, and no earlier."""
    program = Program()

    def rounds() -> None:
        for step in range(5):
            stage = step % 2
            if step >= 2:
                program.wait(0, f"empty{stage}")
            program.write(0, at=128 * stage)
            program.arrive(0, f"full{stage}")
            program.checker.complete_phase(f"full{stage}")
            for warp in (1, 2, 3):
                program.wait(warp, f"full{stage}")
                program.read(warp, at=128 * stage)
                if warp in consumers:
                    program.arrive(warp, f"empty{stage}")
            program.checker.complete_phase(f"empty{stage}")

    if consumers == (1, 2, 3):
        rounds()
    else:
        with pytest.raises(RaceFound) as found:
            rounds()
        assert found.value.race.first.warp == 3


def test_copy_is_read_by_nobody_before_the_wait() -> None:
    for reader in (0, 1):
        program = Program()
        program.copy(0)
        program.barrier(0, 1, 2, 3)
        with pytest.raises(RaceFound) as found:
            program.read(reader)
        race = found.value.race
        assert (race.kind, race.first.warp, race.first.lane, race.first.where) == ("completion", 0, 0, 1)


def test_copy_after_the_wait_is_its_warps_write() -> None:
    program = Program()
    program.checker.async_complete(program.copy(0))
    program.read(0)
    with pytest.raises(RaceFound) as found:
        program.read(1)
    assert found.value.race.kind == "order"


def test_copy_wait_barrier_read() -> None:
    program = Program()
    for _ in range(3):
        program.checker.async_complete(program.copy(0))
        program.barrier(0, 1, 2, 3)
        program.read([0, 1, 2, 3])
        program.barrier(0, 1, 2, 3)


def test_copies_of_several_warps_land_one_by_one() -> None:
    program = Program()
    warps = np.array([0, 1])
    into = Region("shared", 4 * LANES + np.array([[0], [128]]), 4)
    token = program.checker.async_issue(warps, into, Region("global", 4 * LANES + np.array([[0], [0]]), 4), 1)
    program.checker.async_complete(token[:1])
    program.read(0)
    with pytest.raises(RaceFound) as found:
        program.read(1, at=128)
    assert found.value.race.kind == "completion"
    program.checker.async_complete(token[1:])
    program.read(1, at=128)


def test_copies_of_one_instruction_onto_one_place() -> None:
    program = Program()
    into = Region("shared", 4 * LANES + np.array([[0], [0]]), 4)
    with pytest.raises(RaceFound) as found:
        program.checker.async_issue(np.array([0, 1]), into, Region("global", 4 * LANES + np.array([[0], [0]]), 4), 1)
    assert (found.value.race.first.warp, found.value.race.second.warp) == (0, 1)


def test_copy_onto_what_is_still_read() -> None:
    program = Program()
    program.read([1, 2])
    with pytest.raises(RaceFound):
        program.copy(0)


def test_source_of_a_copy_is_read_until_it_lands() -> None:
    program = Program()
    token = program.copy(0)
    with pytest.raises(RaceFound) as found:
        program.write(0, space="global")
    assert found.value.race.kind == "completion"
    program.checker.async_complete(token)
    program.write(0, space="global")


@pytest.mark.parametrize("active", [32, 8])
def test_write_between_what_copies_read(active: int) -> None:
    """Two warps' copies read 32 words, or 8, at 512 and at 1024."""
    sources = Region("global", 4 * LANES + np.array([[512], [1024]]), 4, np.broadcast_to(active > LANES, (2, 32)))
    into = Region("shared", 4 * LANES + np.array([[0], [128]]), 4)
    bytes_ = 4 * active
    for at, meets in [
        (256, False),
        (512 + bytes_, False),
        (1024 - bytes_, False),
        (1024 + bytes_, False),
        (512 - bytes_ + 4, True),
        (512 + bytes_ - 4, True),
        (1024 - bytes_ + 4, True),
        (1024 + bytes_ - 4, True),
    ]:
        program = Program()
        program.checker.async_issue(np.array([0, 1]), into, sources, 1)
        if not meets:
            program.write(2, at=at, space="global", lanes=active)
            continue
        with pytest.raises(RaceFound) as found:
            program.write(2, at=at, space="global", lanes=active)
        race = found.value.race
        assert (race.kind, race.first.warp) == ("completion", int(at > 768))


def test_bulk_copy_is_known_to_who_acquires_the_phase() -> None:
    for reader in (0, 1):
        program = Program()
        program.checker.async_complete(program.copy(0, bulk=True), "full")
        program.checker.complete_phase("full")
        with pytest.raises(RaceFound) as found:
            program.read(reader)
        assert (found.value.race.first.warp, found.value.race.first.where) == (0, 1)
        program.wait(reader)
        program.read(reader)
        program.barrier(reader, 3)
        program.read(3)
        with pytest.raises(RaceFound):
            program.read(2)


def test_acquiring_a_later_copys_phase_is_not_enough() -> None:
    program = Program()
    program.checker.async_complete(program.copy(0, into=0, bulk=True), "keys")
    program.checker.async_complete(program.copy(0, into=128, bulk=True), "values")
    program.checker.complete_phase("keys")
    program.checker.complete_phase("values")
    program.wait(1, "values")
    program.read(1, at=128)
    with pytest.raises(RaceFound):
        program.read(1, at=0)


@pytest.mark.parametrize("fencing", ["writer", "issuer", "nobody"])
def test_generic_write_before_bulk_store_needs_a_proxy_fence(fencing: str) -> None:
    program = Program()
    program.write(1)
    if fencing == "writer":
        program.checker.proxy_fence(np.array([1]))
    program.barrier(0, 1, 2, 3)
    if fencing == "issuer":
        program.checker.proxy_fence(np.array([0]))
    if fencing == "nobody":
        with pytest.raises(RaceFound) as found:
            program.copy(0, bulk=True, store=True)
        assert found.value.race.kind == "proxy fence"
    else:
        program.copy(0, bulk=True, store=True)


def test_source_of_a_bulk_store_is_free_when_it_has_been_read() -> None:
    program = Program()
    token = program.copy(0, bulk=True, store=True)
    program.read(0)
    with pytest.raises(RaceFound) as found:
        program.write(0)
    assert found.value.race.kind == "completion"
    program.checker.async_read_complete(token)
    program.write(0)
    with pytest.raises(RaceFound):
        program.read(0, space="global")
    program.checker.async_complete(token)
    program.read(0, space="global")


def test_bulk_stores_of_one_instruction_free_their_sources_one_by_one() -> None:
    program = Program()
    sources = Region("shared", 4 * LANES + np.array([[0], [128]]), 4, np.broadcast_to(LANES < 16, (2, 32)))
    targets = Region("global", 4 * LANES + np.array([[0], [128]]), 4, sources.active)
    tokens = program.checker.async_issue(np.array([0, 1]), targets, sources, 1, bulk=True)
    program.write(2, at=1024, lanes=8)  # lanes that do nothing meet nothing
    program.checker.async_read_complete(tokens[:1])
    program.write(0)
    with pytest.raises(RaceFound) as found:
        program.write(1, at=128)
    assert (found.value.race.kind, found.value.race.first.warp) == ("completion", 1)


def test_proxy_fence_covers_what_another_block_wrote() -> None:
    for fenced in (True, False):
        program = Program(blocks=2)
        program.write(4, space="global")
        program.arrive(4, scope="gpu")
        program.checker.complete_phase("full")
        program.wait(0, scope="gpu")
        if fenced:
            program.checker.proxy_fence(np.array([0]))
            program.copy(0, bulk=True)
        else:
            with pytest.raises(RaceFound) as found:
                program.copy(0, bulk=True)
            assert found.value.race.kind == "proxy fence"


def test_copy_in_flight_is_no_repetition() -> None:
    program = Program()
    program.copy(0)
    with pytest.raises(RaceFound):
        program.checker.write(np.array([0]), Region("shared", 4 * LANES, 4, None), 2, repeats=lambda: LANES >= 0)


def test_copy_onto_or_out_of_what_is_counted() -> None:
    for space in ("shared", "global"):
        program = Program()
        program.atomic(1, space=space)
        with pytest.raises(RaceFound):
            program.copy(0)
