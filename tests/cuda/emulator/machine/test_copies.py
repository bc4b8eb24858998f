"""Asynchronous copies: what nobody has waited for is not there. PTX ISA 9.1, 9.7.9.25."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.checks.reports import RaceFound
from impls.cuda.emulator.machine.execution import Deadlock
from tests.cuda.emulator.machine.kernels import fails, run, words

GIVEN = np.arange(1000, 1000 + 4 * 256, dtype=np.uint32)
ROOM = ".shared .align 128 .b8 room[4096]; .shared .align 8 .b64 full;"
MINE = """mov.u32 %r30, room; mad.lo.u32 %r30, %t, 16, %r30; mad.wide.u32 %d30, %t, 16, %a0; mov.u32 %r31, room;
    xor.b32 %r32, %t, 32; mad.lo.u32 %r31, %r32, 16, %r31;"""
"""%r30: the thread's 16 bytes of shared memory; %r31: those of the thread one warp further; %d30: 16 bytes of an argument."""
COPY = "cp.async.cg.shared.global [%r30], [%d30], 16;"
LOAD = "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r30]; st.global.u32 [%at1], %r4;"
UNDER_WAY = "was never written, or its copy is still under way"
LANES = np.arange(32)


def test_group_is_there_after_it_was_waited_for() -> None:
    out = words(64)
    run(f"{MINE} {COPY} cp.async.commit_group; cp.async.wait_group 0; {LOAD}", GIVEN, out, block=64, globals_=ROOM)
    np.testing.assert_array_equal(out, GIVEN[3 : 4 * 64 : 4])
    run(f"{MINE} {COPY} cp.async.wait_all; {LOAD}", GIVEN, out, block=64, globals_=ROOM)


@pytest.mark.parametrize(
    "waits",
    [
        "",
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",  # of no group yet
        "cp.async.commit_group; cp.async.wait_group 1;",
        "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 2;",
        "setp.eq.u32 %p1, %t, 99; cp.async.commit_group; @%p1 cp.async.wait_group 0;",
        "setp.eq.u32 %p1, %t, 99; @%p1 cp.async.commit_group; cp.async.wait_group 0;",
    ],
)
def test_copy_is_not_read_before_its_group_was_waited_for(waits: str) -> None:
    fails(
        f"warp 0, lane 0: byte 0 or one after it of shared memory {UNDER_WAY}",
        f"{MINE} {COPY} {waits} {LOAD}",
        GIVEN,
        words(32),
        globals_=ROOM,
    )


def test_newest_groups_may_stay_under_way() -> None:
    """Of three groups, wait_group 1 leaves the last; the first two are there."""
    out = words(32)
    copies = "".join(
        f"cp.async.ca.shared.global [%r30+{512 * group}], [%d30+{512 * group}], 16; cp.async.commit_group; "
        for group in range(3)
    )
    body = f"""{MINE} {copies} cp.async.wait_group 1; ld.shared.u32 %r1, [%r30]; ld.shared.u32 %r2, [%r30+512];
        add.u32 %r1, %r1, %r2; st.global.u32 [%at1], %r1;"""
    run(body, GIVEN, out, globals_=ROOM)
    np.testing.assert_array_equal(out, GIVEN[:128:4] + GIVEN[128:256:4])
    fails(
        f"byte 1024 or one after it of shared memory {UNDER_WAY}",
        body.replace("[%r30+512];", "[%r30+1024];"),
        GIVEN,
        out,
        globals_=ROOM,
    )


def test_other_warps_need_a_barrier_after_the_wait() -> None:
    out = words(64)
    body = f"{MINE} {COPY} cp.async.wait_all; bar.sync 0; ld.shared.u32 %r1, [%r31]; st.global.u32 [%at1], %r1;"
    run(body, GIVEN, out, block=64, globals_=ROOM)
    np.testing.assert_array_equal(out, GIVEN[(np.arange(64) ^ 32) * 4])
    fails("but nothing orders the two|never written", body.replace("bar.sync 0;", ""), GIVEN, out, block=64, globals_=ROOM)
    fails(
        "after block 0, warp ., lane . copies asynchronously|nobody has waited|still under way",
        body.replace("cp.async.wait_all; bar.sync 0;", "bar.sync 0; cp.async.wait_all;"),
        GIVEN,
        out,
        block=64,
        globals_=ROOM,
    )


def test_place_that_is_still_read_is_not_copied_over() -> None:
    """The second round's copy needs a barrier after the first round's loads."""
    out = words(64)
    body = f"""{MINE} {COPY} cp.async.wait_all; bar.sync 0; ld.shared.u32 %r1, [%r31]; bar.sync 0;
        {COPY} cp.async.wait_all; st.global.u32 [%at1], %r1;"""
    run(body, GIVEN, out, block=64, globals_=ROOM)
    fails(
        "copies asynchronously|never written",
        body.replace("[%r31]; bar.sync 0;", "[%r31];"),
        GIVEN,
        out,
        block=64,
        globals_=ROOM,
    )


def test_place_and_source_are_not_written_while_a_copy_is_under_way() -> None:
    body = f"{MINE} {COPY} st.shared.u32 [%r30], 1; cp.async.wait_all;"
    fails("nobody has waited for the asynchronous copy", body, GIVEN, globals_=ROOM, kind=RaceFound)
    fails(
        "nobody has waited for the asynchronous copy",
        body.replace("st.shared.u32 [%r30]", "st.global.u32 [%d30]"),
        GIVEN,
        globals_=ROOM,
        kind=RaceFound,
    )


@pytest.mark.parametrize(("size", "how"), [(4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")])
def test_bytes_that_are_not_read_are_zeros(size: int, how: str) -> None:
    """The source's size is another in each lane: 0 to the whole."""
    given, out = np.arange(1, 1 + 32 * size, dtype=np.uint8), np.zeros((32, size), np.uint8)
    run(
        f"""mov.u32 %r30, room; mad.lo.u32 %r30, %t, {size}, %r30; mad.wide.u32 %d30, %t, {size}, %a0;
            rem.u32 %r1, %lane, {size + 1};
        cp.async.{how}.shared.global [%r30], [%d30], {size}, %r1; cp.async.wait_all;
        mad.wide.u32 %d31, %t, {size}, %a1; mov.u32 %r2, 0;
        LOOP: cvt.u64.u32 %d32, %r2; add.u64 %d33, %d31, %d32; add.u32 %r3, %r30, %r2; ld.shared.u8 %r4, [%r3];
        st.global.u8 [%d33], %r4;
        add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, {size}; @%p1 bra LOOP;""",
        given,
        out,
        globals_=ROOM,
    )
    expected = np.where(np.arange(size) < (LANES % (size + 1))[:, None], given.reshape(32, size), 0)
    np.testing.assert_array_equal(out, expected)


def test_source_that_is_ignored_need_not_exist() -> None:
    """By a size of 0, or by a predicate: the address is never used."""
    out = words(32)
    for operand in ("%r5", "%p1"):
        out[...] = 0xDEAD
        run(
            f"""{MINE} setp.gt.u32 %p1, %lane, 7; selp.u32 %r5, 0, 16, %p1; selp.b64 %d30, 64, %d30, %p1;
                cp.async.cg.shared.global [%r30], [%d30], 16, {operand};
            cp.async.wait_all; {LOAD}""",
            GIVEN,
            out,
            globals_=ROOM,
        )
        np.testing.assert_array_equal(out, np.where(LANES < 8, GIVEN[3:128:4], 0))


def test_copy_reads_no_byte_behind_its_size() -> None:
    """The array ends in the middle of the last lane's 16 bytes."""
    out, short = words(32), GIVEN[: 4 * 31 + 2].copy()
    body = f"""{MINE} setp.eq.u32 %p1, %lane, 31; selp.u32 %r5, {{0}}, 16, %p1;
        cp.async.cg.shared.global [%r30], [%d30], 16, %r5; cp.async.wait_all; {LOAD}"""
    run(body.replace("{0}", "8"), short, out, globals_=ROOM)
    np.testing.assert_array_equal(out, [*GIVEN[3 : 4 * 31 : 4], 0])
    fails("lane 31: out of bounds of global memory", body.replace("{0}", "12"), short, out, globals_=ROOM)
    fails("lane 31: 17 B are to be read for 16 B", body.replace("{0}", "17"), GIVEN, out, globals_=ROOM)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("add.u64 %d30, %d30, 4;", "global memory are misaligned"),
        ("add.u32 %r30, %r30, 8;", "shared memory are misaligned"),
        ("add.u32 %r30, %r30, 4096;", "out of bounds of shared memory"),
    ],
)
def test_places_that_a_copy_cannot_have(body: str, told: str) -> None:
    fails(told, f"{MINE} {body} {COPY}", GIVEN, globals_=ROOM)


def test_each_lane_counts_its_own_groups() -> None:
    """Half a warp copies, commits and waits by itself; the groups of the other half count for nothing, and lanes that commit in
    vain have a group more."""
    out = words(32)
    half = f"{MINE} setp.lt.u32 %p1, %lane, 16; @%p1 bra END; {COPY} cp.async.commit_group; cp.async.wait_group 0; {LOAD} END:"
    run(half, GIVEN, out, globals_=ROOM)
    np.testing.assert_array_equal(out[16:], GIVEN[67:128:4])
    idle = f"""{MINE} setp.lt.u32 %p1, %lane, 16; @!%p1 {COPY} @!%p1 cp.async.commit_group; @%p1 cp.async.commit_group;
        cp.async.wait_group 1;
        @!%p1 ld.shared.u32 %r1, [%r30];"""
    fails(f"lane 16: byte 256 or one after it of shared memory {UNDER_WAY}", idle, GIVEN, globals_=ROOM)
    odd = f"""{MINE} setp.lt.u32 %p1, %lane, 16; {COPY} @%p1 cp.async.commit_group; cp.async.wait_group 0;
        {{0}} ld.shared.u32 %r1, [%r30];"""
    run(odd.replace("{0}", "@%p1"), GIVEN, globals_=ROOM)
    fails(f"lane 16: byte 256 or one after it of shared memory {UNDER_WAY}", odd.replace("{0}", "@!%p1"), GIVEN, globals_=ROOM)
    later = f"""{MINE} setp.lt.u32 %p1, %lane, 16; {COPY} cp.async.commit_group; @%p1 cp.async.commit_group;
        cp.async.wait_group 1; {{0}} ld.shared.u32 %r1, [%r30];"""
    run(later.replace("{0}", "@%p1"), GIVEN, globals_=ROOM)
    fails(
        f"lane 16: byte 256 or one after it of shared memory {UNDER_WAY}", later.replace("{0}", "@!%p1"), GIVEN, globals_=ROOM
    )


# cp.async.bulk

BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [room], [%a0], {0}, [full];"
INIT = "setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [full], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], {0};"
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p9, [full], 0; @!%p9 bra WAIT;"
READ = "mov.u32 %r30, room; mad.lo.u32 %r30, %t, 4, %r30; ld.shared.u32 %r1, [%r30]; st.global.u32 [%at1], %r1;"


def bulk(size: int = 256, expected: int | None = None) -> str:
    return f"{INIT} {EXPECT.replace('{0}', str(size if expected is None else expected))} @%p1 {BULK.replace('{0}', str(size))}"


def test_bulk_copy_is_there_for_who_waits_for_its_mbarrier() -> None:
    out = words(64)
    run(f"{bulk()} {WAIT} {READ}", GIVEN, out, block=64, globals_=ROOM)
    np.testing.assert_array_equal(out, GIVEN[:64])


def test_bulk_copy_is_not_read_by_who_does_not_wait() -> None:
    """By the second warp, which has only met the first at a barrier before; by a warp that waits for cp.async groups."""
    out = words(64)
    fails(
        f"{UNDER_WAY}|nobody has waited|nothing orders",
        f"{bulk()} setp.gt.u32 %p2, %warp, 0; @%p2 bra READ; {WAIT} READ: {READ}",
        GIVEN,
        out,
        block=64,
        globals_=ROOM,
    )
    fails(UNDER_WAY, f"{bulk()} cp.async.wait_all; {READ}", GIVEN, out, globals_=ROOM)


def test_phase_is_not_over_before_all_bytes_have_come() -> None:
    fails("deadlock", f"{bulk(256, 272)} {WAIT}", GIVEN, globals_=ROOM, kind=Deadlock)
    fails("deadlock", f"{bulk(256, 240)} {WAIT}", GIVEN, globals_=ROOM, kind=Deadlock)


def test_two_bulk_copies_count_on_one_mbarrier() -> None:
    out = words(64)
    second = BULK.replace("{0}", "128").replace("[room]", "[room+128]").replace("[%a0]", "[%a0+512]")
    run(f"{bulk(128, 256)} @%p1 {second} {WAIT} {READ}", GIVEN, out, block=64, globals_=ROOM)
    np.testing.assert_array_equal(out, [*GIVEN[:32], *GIVEN[128:160]])


def test_bulk_copy_over_what_was_written_before_needs_a_fence_of_proxies() -> None:
    before = "mov.u32 %r29, room; mad.lo.u32 %r29, %t, 4, %r29; st.shared.u32 [%r29], 1; {0} "
    out = words(64)
    body = f"{before} {bulk()} {WAIT} {READ}"
    run(body.replace("{0}", "fence.proxy.async.shared::cta;"), GIVEN, out, block=64, globals_=ROOM)
    np.testing.assert_array_equal(out, GIVEN[:64])
    fails("no fence.proxy.async stands between", body.replace("{0}", ""), GIVEN, out, block=64, globals_=ROOM, kind=RaceFound)
    never = "setp.eq.u32 %p8, %t, 99; @%p8 fence.proxy.async.shared::cta;"
    fails(
        "no fence.proxy.async stands between", body.replace("{0}", never), GIVEN, out, block=64, globals_=ROOM, kind=RaceFound
    )


def test_mbarrier_at_which_a_copy_will_count_stays() -> None:
    fails(
        "a bulk copy that counts at this mbarrier is still under way",
        f"{bulk()} @%p1 mbarrier.inval.shared.b64 [full];",
        GIVEN,
        globals_=ROOM,
    )
    run(f"{bulk()} {WAIT} bar.sync 0; @%p1 mbarrier.inval.shared.b64 [full];", GIVEN, globals_=ROOM)


@pytest.mark.parametrize(
    ("copy", "told"),
    [
        (BULK.replace("{0}", "24"), "a bulk copy of 24 B is not of 16 B at 16 B"),
        (BULK.replace("{0}", "16").replace("[%a0]", "[%a0+4]"), "is not of 16 B at 16 B"),
        (BULK.replace("{0}", "16").replace("[room]", "[room+8]"), "is not of 16 B at 16 B"),
        (BULK.replace("{0}", "4096").replace("[room]", "[room+16]"), "out of bounds of shared memory"),
        (BULK.replace("{0}", "2048").replace("[%a0]", "[%a0+2064]"), "out of bounds of global memory"),
        (BULK.replace("{0}", "16").replace("[full]", "[room]"), "no mbarrier was initialised at byte 0"),
    ],
)
def test_wrong_bulk_copy(copy: str, told: str) -> None:
    second = np.arange(2000, dtype=np.uint32)  # another allocation behind the first: no copy spans both
    fails(f"block \\(0, 0, 0\\), warp 0, lane 0.*{told}", f"{INIT} @%p1 {copy}", GIVEN, second, globals_=ROOM)
