"""Barriers of a block, and mbarrier objects. PTX ISA 9.1, 9.7.13.1 (barrier) and 9.7.13.15 (mbarrier)."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.checks.reports import RaceFound
from impls.cuda.emulator.errors import Unknown
from impls.cuda.emulator.machine.barriers import Meeting
from impls.cuda.emulator.machine.execution import Deadlock
from tests.cuda.emulator.machine.kernels import fails, run, words

ROOM = ".shared .align 8 .b8 room[1024]; .shared .align 8 .b64 full; .shared .align 8 .b64 empty;"
MINE = """mov.u32 %r30, room; mad.lo.u32 %r30, %t, 4, %r30; xor.b32 %r31, %t, 32; mov.u32 %r32, room;
    mad.lo.u32 %r32, %r31, 4, %r32;"""
"""%r30: the thread's own word of shared memory; %r32: that of the thread one warp further."""
LANES = np.arange(32)
THREADS = np.arange(128)


@pytest.mark.parametrize(
    "barrier",
    [
        "bar.sync 0;",
        "barrier.sync 0;",
        "bar.cta.sync 3;",
        "barrier.cta.sync.aligned 5, 128;",
        "mov.u32 %r9, 9; bar.sync %r9, 128;",
    ],
)
def test_what_was_written_before_a_barrier_is_read_after_it(barrier: str) -> None:
    out = words(128)
    body = f"{MINE} st.shared.u32 [%r30], %t; {barrier} ld.shared.u32 %r1, [%r32]; st.global.u32 [%at0], %r1;"
    run(body, out, block=128, globals_=ROOM)
    np.testing.assert_array_equal(out, THREADS ^ 32)
    told = r"byte \d+ of shared memory: block 0, warp ., lane \d+ reads at PTX line \d+, after block 0, warp ., lane \d+ writes"
    fails(f"(?:{told}|never written)", body.replace(barrier, ""), out, block=128, globals_=ROOM)


def test_second_barrier_of_a_loop_is_needed_too() -> None:
    """Without it a warp writes the next round's values before another has read this round's."""
    body = f"""{MINE} mov.u32 %r1, 0; mov.u32 %r2, 0; LOOP: st.shared.u32 [%r30], %r1; bar.sync 0;
        ld.shared.u32 %r3, [%r32]; add.u32 %r2, %r2, %r3;
        bar.sync 0; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 4; @%p1 bra LOOP; st.global.u32 [%at0], %r2;"""
    out = words(128)
    run(body, out, block=128, globals_=ROOM)
    np.testing.assert_array_equal(out, 6)
    first, second = body.split("add.u32 %r2, %r2, %r3;\n        bar.sync 0;")
    fails(
        "writes at PTX line .* after block 0, warp .* reads",
        first + "add.u32 %r2, %r2, %r3;" + second,
        out,
        block=128,
        globals_=ROOM,
        kind=RaceFound,
    )


def test_barrier_of_two_warps_orders_no_third() -> None:
    """Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2; each reads its partner's words, or another pair's."""
    out = words(128)
    body = f"""{MINE} st.shared.u32 [%r30], %t; shr.u32 %r1, %warp, 1; add.u32 %r1, %r1, 1; bar.sync %r1, 64;
        ld.shared.u32 %r2, [%r32]; st.global.u32 [%at0], %r2;"""
    run(body, out, block=128, globals_=ROOM)
    np.testing.assert_array_equal(out, THREADS ^ 32)
    fails("race|order|never written", body.replace("[%r32];", "[room+256];"), out, block=128, globals_=ROOM)


def test_warps_meet_in_pairs_at_one_barrier() -> None:
    """Of four that come to a barrier of 64 threads two make a phase, and do not know the other two."""
    body = f"{MINE} st.shared.u32 [%r30], %t; bar.sync 1, 64; ld.shared.u32 %r2, [room]; ld.shared.u32 %r3, [room+384];"
    for schedule in ("forward", "reverse"):
        fails("reads at PTX line|never written", body, block=128, globals_=ROOM, options={"schedules": (schedule,)})


def test_who_only_arrives_does_not_wait() -> None:
    """Producer and consumers: the producer arrives and goes on; consumers wait for it, but not for what it does later."""
    body = f"""{MINE} setp.ne.u32 %p1, %warp, 0; @%p1 bra CONSUME;
        st.shared.u32 [%r30], %t; bar.arrive 1, 128; {{0}} bra END;
        CONSUME: bar.sync 1, 128; mov.u32 %r1, room; mad.lo.u32 %r1, %lane, 4, %r1; ld.shared.u32 %r2, [%r1];
        st.global.u32 [%at0], %r2; END:"""
    out = words(128)
    run(body.replace("{0}", ""), out, block=128, globals_=ROOM)
    np.testing.assert_array_equal(out[32:].reshape(3, 32), np.broadcast_to(LANES, (3, 32)))
    fails(
        "after block 0, warp .* but nothing orders",
        body.replace("{0}", "st.shared.u32 [%r30], 5;"),
        out,
        block=128,
        globals_=ROOM,
        kind=RaceFound,
    )
    later = body.replace("{0}", "ld.shared.u32 %r4, [%r30];").replace(
        "ld.shared.u32 %r2, [%r1]", "setp.eq.u32 %p2, %t, 64; @%p2 st.shared.u32 [room], 1"
    )
    later = later.replace("st.global.u32 [%at0], %r2;", "")
    fails("after block 0, warp .* but nothing orders", later, block=128, globals_=ROOM, kind=RaceFound)


@pytest.mark.parametrize(("operator", "expected"), [("popc.u32", 35), ("and.pred", 0), ("or.pred", 1)])
def test_barrier_that_reduces(operator: str, expected: int) -> None:
    """Over all threads of two full warps and one of 6: 35 of them hold."""
    out = words(70)
    result = "%r1" if "popc" in operator else "%p2"
    take = "" if "popc" in operator else "selp.u32 %r1, 1, 0, %p2;"
    run(
        f"""and.b32 %r2, %t, 1; setp.eq.u32 %p1, %r2, 1; barrier.cta.red.{operator} {result}, 0, %p1;
            {take} st.global.u32 [%at0], %r1;""",
        out,
        block=70,
    )
    np.testing.assert_array_equal(out, expected)
    body = """setp.lt.u32 %p1, %t, 1000; barrier.cta.red.and.pred %p2, 0, 96, !%p1; selp.u32 %r1, 1, 0, %p2;
        st.global.u32 [%at0], %r1;"""
    run(body, out, block=70)
    np.testing.assert_array_equal(out, 0)


def test_barriers_that_reduce_hand_each_result_to_who_asked() -> None:
    """Two pairs of warps meet at one barrier by different instructions, and so do the warps of one pair."""
    out = words(128)
    run(
        """setp.eq.u32 %p1, %lane, 3; setp.gt.u32 %p3, %warp, 1; @%p3 bra SECOND; barrier.cta.red.popc.u32 %r1, 1, 64, %p1;
            bra END; SECOND: setp.eq.u32 %p3, %warp, 2; @%p3 bra THIRD; barrier.cta.red.or.pred %p2, 2, 64, %p1;
            selp.u32 %r1, 10, 20, %p2; bra END;
            THIRD: barrier.cta.red.and.pred %p2, 2, 64, %p1; selp.u32 %r1, 10, 20, %p2; END: st.global.u32 [%at0], %r1;""",
        out,
        block=128,
    )
    np.testing.assert_array_equal(out, np.repeat([2, 2, 20, 10], 32))


def test_mbarrier_modifiers_that_are_not_known_are_named() -> None:
    for action in (
        "init.foo.shared.b64 [full], 1",
        "init.shared.b32 [full], 1",
        "inval.parity.shared.b64 [full]",
        "arrive.relaxed.cta.shared.b64 _, [full]",
        "arrive.noComplete.shared.b64 %d1, [full], 1",
        "test_wait.parity.relaxed.cta.shared.b64 %p2, [full], 0",
    ):
        fails(f"mbarrier.{action.partition(' ')[0]} is not known", f"mbarrier.{action};", globals_=ROOM, kind=Unknown)


def test_mbarrier_that_no_lane_asks() -> None:
    """The address is then anything."""
    body = """setp.gt.u32 %p1, %t, 99; @%p1 mbarrier.arrive.shared.b64 _, [%r9];
        @%p1 mbarrier.test_wait.parity.shared.b64 %p2, [%r9], 0; st.global.u32 [%at0], 1;"""
    out = words()
    run("mov.u32 %r9, 3;" + body, out)
    np.testing.assert_array_equal(out, 1)


def test_warps_that_have_ended_are_not_waited_for() -> None:
    out = words(128)
    run("setp.gt.u32 %p1, %warp, 1; @%p1 ret; bar.sync 0; st.global.u32 [%at0], 1;", out, block=128)
    assert out.tolist() == [1] * 64 + [0xDEAD] * 64


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("setp.eq.u32 %p1, %warp, 2; @%p1 bra END; bar.sync 1, 128; END:", "at barrier 1 of block 0 3 warps have arrived of 4"),
        (
            "setp.eq.u32 %p1, %warp, 2; @%p1 bra OTHER; bar.sync 1; bra END; OTHER: bar.sync 2; END:",
            "at barrier 1 of block 0 3 warps have arrived of all 4 that are alive",
        ),
        ("bar.sync 1, 256;", "at barrier 1 of block 0 4 warps have arrived of 8"),
    ],
)
def test_barrier_at_which_a_warp_is_missing(body: str, told: str) -> None:
    fails(rf"PTX line \d+, block \(0, 0, 0\), warp \d: deadlock.*{told}.*: bar.sync", body, block=128, kind=Deadlock)


def test_barrier_in_a_branch_that_only_some_lanes_take() -> None:
    fails(
        "waits for lanes of its warp that never come",
        "setp.lt.u32 %p1, %lane, 7; @%p1 bra OTHER; bar.sync 0; bra END; OTHER: bar.sync 1; END:",
        kind=Deadlock,
    )
    fails("the predicate differs within a warp", "setp.lt.u32 %p1, %lane, 7; @%p1 bar.sync 0;")


def test_barrier_that_warps_do_not_agree_on() -> None:
    fails(
        "barrier 1 of .* threads, which others that have arrived take for one of",
        "setp.eq.u32 %p1, %warp, 0; @%p1 bar.sync 1, 64; @!%p1 bar.sync 1, 128;",
        block=128,
        kind=Meeting,
    )
    fails("a warp arrives at barrier 1 again", "bar.arrive 1, 96; bar.arrive 1, 96;", block=64, kind=Meeting)
    fails("there is no barrier 16: a block has 0 to 15: bar", "mov.u32 %r1, 16; bar.sync %r1;")
    fails("warp 1: there is no barrier 99", "mul.lo.u32 %r1, %warp, 99; bar.sync %r1, 32;", block=64)
    fails("barrier 1 of 40 threads, which are no whole warps of 32", "bar.sync 1, 40;", block=64)


# mbarrier

START = f"""{MINE} setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [full], {{0}};
@%p1 mbarrier.init.shared.b64 [empty], {{1}}; bar.sync 0;"""


def start(full: int, empty: int = 1) -> str:
    return START.format(full, empty)


def wait(name: str, parity: str, label: str) -> str:
    return f"{label}: mbarrier.try_wait.parity.shared.b64 %p9, [{name}], {parity}; @!%p9 bra {label};"


@pytest.mark.parametrize("missing", [None, "full", "empty"])
def test_ring_of_one_stage(missing: str | None) -> None:
    """A producing warp and three that consume, five rounds; without either wait a race or a wrong phase is told."""
    fill, drain = wait("empty", "%r5", "FILL"), wait("full", "%r4", "DRAIN")
    body = f"""{start(32, 96)} setp.ne.u32 %p2, %warp, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; @%p2 bra CONSUME;
        PRODUCE: and.b32 %r4, %r1, 1; xor.b32 %r5, %r4, 1;
        {"" if missing == "empty" else fill} mad.lo.u32 %r6, %r1, 100, %lane; st.shared.u32 [%r30], %r6;
        mbarrier.arrive.shared.b64 _, [full]; add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 5; @%p3 bra PRODUCE; bra END;
        CONSUME: and.b32 %r4, %r1, 1; {"" if missing == "full" else drain} mov.u32 %r7, room;
        mad.lo.u32 %r7, %lane, 4, %r7; ld.shared.u32 %r6, [%r7];
        add.u32 %r2, %r2, %r6; mbarrier.arrive.shared.b64 _, [empty]; add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 5;
        @%p3 bra CONSUME;
        st.global.u32 [%at0], %r2; END:"""
    out = words(128)
    if missing is None:
        run(body, out, block=128, globals_=ROOM)
        np.testing.assert_array_equal(out[32:].reshape(3, 32), np.broadcast_to(1000 + 5 * LANES, (3, 32)))
    else:
        fails("nothing orders|never written|still to come|deadlock", body, out, block=128, globals_=ROOM)


def test_phases_by_token() -> None:
    out = words(64)
    run(
        f"""{start(64)} mov.u32 %r1, 0; LOOP: st.shared.u32 [%r30], %r1; mbarrier.arrive.shared.b64 %d1, [full];
        WAIT: mbarrier.test_wait.shared.b64 %p2, [full], %d1; @!%p2 bra WAIT; ld.shared.u32 %r2, [%r32];
        setp.ne.u32 %p3, %r1, %r2; @%p3 trap;
        mbarrier.arrive.release.cta.shared::cta.b64 %d1, [full];
        AGAIN: mbarrier.try_wait.acquire.cta.shared::cta.b64 %p2, [full], %d1, 1000; @!%p2 bra AGAIN;
        add.u32 %r1, %r1, 1; setp.lt.u32 %p4, %r1, 3; @%p4 bra LOOP; st.global.u32 [%at0], %r2;""",
        out,
        block=64,
        globals_=ROOM,
    )
    np.testing.assert_array_equal(out, 2)


def test_phase_before_the_first_is_over() -> None:
    """Parity 1 passes at a fresh object, parity 0 does not."""
    out = words(32)
    run(
        f"""{start(1)} mbarrier.test_wait.parity.shared.b64 %p2, [full], 1; mbarrier.test_wait.parity.shared.b64 %p3, [full], 0;
        selp.u32 %r1, 1, 0, %p2; selp.u32 %r2, 2, 0, %p3; add.u32 %r1, %r1, %r2; st.global.u32 [%at0], %r1;""",
        out,
        globals_=ROOM,
    )
    np.testing.assert_array_equal(out, 1)


def test_announced_bytes_keep_the_phase_open() -> None:
    """The one arrival comes with 48 bytes to expect; complete_tx brings them, and 16 more were expected separately."""
    out = words(32)
    look = """mbarrier.test_wait.parity.shared.b64 %p3, [full], 0; selp.u32 %r2, 1, 0, %p3; shl.b32 %r1, %r1, 1;
        or.b32 %r1, %r1, %r2; bar.warp.sync -1;"""
    run(
        f"""{start(1)} mov.u32 %r1, 0; @%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [full], 16; {look}
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], 48;
        {look} @%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [full], 48; {look}
        @%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [full], 16; {look} st.global.u32 [%at0], %r1;""",
        out,
        globals_=ROOM,
    )
    np.testing.assert_array_equal(out, 1)


def test_arrival_that_counts_several() -> None:
    out = words(32)
    run(
        f"""{start(40)} @%p1 mbarrier.arrive.shared.b64 _, [full], 40; bar.warp.sync -1;
            {wait("full", "0", "WAIT")} st.global.u32 [%at0], 1;""",
        out,
        globals_=ROOM,
    )
    np.testing.assert_array_equal(out, 1)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            f"{start(31)} @%p1 mbarrier.arrive.shared.b64 _, [full], 32;",
            "32 arrive at an mbarrier where 31 of 31 are still to come",
        ),
        (f"{start(31)} @%p1 mbarrier.arrive.shared.b64 _, [full], 0;", "the count of an arrival is 1 at least"),
        (f"{start(0)}", "lane 0: an mbarrier of 0 arrivals; it has 1 to 1,048,575"),
        ("mbarrier.arrive.shared.b64 _, [full];", "no mbarrier was initialised at byte 0 of shared memory"),
        (f"{start(1)} mbarrier.test_wait.parity.shared.b64 %p2, [full+4], 0;", "8 B at 0x404 of shared memory are misaligned"),
        (
            f"{start(1)} mbarrier.test_wait.parity.shared.b64 %p2, [full+64], 0;",
            "8 B at byte 1088 of 1040",
        ),
        (
            f"{start(1)} mbarrier.test_wait.parity.b64 %p2, [%a0], 0;",
            "an mbarrier is in shared memory, and this address is of global",
        ),
        (
            f"""{start(1)} @%p1 mbarrier.inval.shared.b64 [full]; bar.warp.sync -1;
                mbarrier.test_wait.parity.shared.b64 %p2, [full], 0;""",
            "no mbarrier was initialised",
        ),
    ],
)
def test_wrong_use_of_an_mbarrier(body: str, told: str) -> None:
    fails(rf"PTX line \d+, block \(0, 0, 0\), warp 0.*{told}", body, words(), globals_=ROOM)


def test_mbarrier_at_which_nobody_arrives() -> None:
    fails(
        "deadlock: waits for what nobody will do any more",
        f"{start(33)} mbarrier.arrive.shared.b64 _, [full]; {wait('full', '0', 'WAIT')}",
        globals_=ROOM,
        kind=Deadlock,
    )


def test_other_warps_need_the_barrier_after_the_initialisation() -> None:
    body = f"{start(64)} mbarrier.arrive.shared.b64 _, [full]; {wait('full', '0', 'WAIT')}"
    run(body, block=64, globals_=ROOM)
    fails("no mbarrier was initialised", body.replace("bar.sync 0;", ""), block=64, globals_=ROOM)


@pytest.mark.parametrize("waiting", range(4))
def test_waiting_for_an_mbarrier_does_not_keep_the_one_that_arrives_from_running(waiting: int) -> None:
    """All warps but one wait at once; the last to arrive is any of them, and comes earlier or later in the program."""
    body = f"""{start(1)} setp.ne.u32 %p2, %warp, {waiting}; @%p2 bra {{0}}; {{1}} bra END;
        OTHER: {{2}} END: st.global.u32 [%at0], 1;"""
    arrive, wait_for = "@%p3 mbarrier.arrive.shared.b64 _, [full];", wait("full", "0", "WAIT")
    for first, then, who in ((arrive, wait_for, "ne"), (wait_for, arrive, "eq")):
        out = words(128)
        text = (
            body.replace("{0}", "OTHER")
            .replace("{1}", first)
            .replace("{2}", then)
            .replace("setp.ne", f"setp.eq.u32 %p3, %lane, 0; setp.{who}")
        )
        run(text, out, block=128, globals_=ROOM)
        np.testing.assert_array_equal(out, 1)
