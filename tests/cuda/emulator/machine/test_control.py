"""Branches, lanes that part and meet, loops that wait for others, and the end. PTX ISA 9.1, 9.7.12 (control flow)."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.checks.reports import RaceFound
from impls.cuda.emulator.emulate import Kernel, emulate
from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.machine.execution import Deadlock, TooLong
from impls.cuda.emulator.machine.steps import control
from tests.cuda.emulator.machine.kernels import fails, module, run, words

LANES = np.arange(32, dtype=np.uint32)


def test_if_else_by_lane_and_by_warp() -> None:
    for value, block in (("%lane", 32), ("%warp", 128), ("%t", 100)):
        out = words(block)
        report = run(
            f"""and.b32 %r1, {value}, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra EVEN; mul.lo.u32 %r2, {value}, 3; bra MEET;
            EVEN: add.u32 %r2, {value}, 1000; MEET: add.u32 %r2, %r2, 7; st.global.u32 [%at0], %r2;""",
            out,
            block=block,
        )
        threads = np.arange(block, dtype=np.uint32)
        of = {"%lane": threads % 32, "%warp": threads // 32, "%t": threads}[value]
        np.testing.assert_array_equal(out, np.where(of % 2 == 0, of + 1000, of * 3) + 7)
        stores = [
            int(n)
            for n, name in zip(report.counters[0].by_instruction("executions"), report.counters[0].instructions, strict=True)
            if name == "st.global.u32"
        ]
        assert stores == [-(-block // 32)], "after the branch a warp is one again"


def test_nested_branches_and_loops_of_which_every_lane_has_its_own_count() -> None:
    """Collatz: n -> n / 2 or 3 n + 1 until 1; a loop with a branch in it, as long as each lane needs."""
    out = words(100)
    run(
        """add.u32 %r1, %t, 1; mov.u32 %r2, 0;
        LOOP: setp.eq.u32 %p1, %r1, 1; @%p1 bra DONE;
        and.b32 %r3, %r1, 1; setp.eq.u32 %p2, %r3, 0; @%p2 bra HALF;
        mad.lo.u32 %r1, %r1, 3, 1; bra NEXT; HALF: shr.u32 %r1, %r1, 1;
        NEXT: add.u32 %r2, %r2, 1; bra LOOP; DONE: st.global.u32 [%at0], %r2;""",
        out,
        block=100,
    )

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert out.tolist() == [steps(n) for n in range(1, 101)]


def test_lanes_that_leave_early_are_not_waited_for() -> None:
    out = words(64)
    run(
        """st.global.u32 [%at0], 1; setp.gt.u32 %p1, %lane, 20; @%p1 ret; st.global.u32 [%at0], 2;
        setp.lt.u32 %p2, %lane, 4; @%p2 exit; bar.warp.sync -1; bar.sync 0; st.global.u32 [%at0], 3;
        shfl.sync.bfly.b32 %r1, %lane, 0, 31, 0x1FFFF0; st.global.u32 [%at0], %r1;""",
        out,
        block=64,
    )
    np.testing.assert_array_equal(out.reshape(2, 32), np.where(LANES > 20, 1, np.where(LANES < 4, 2, LANES))[None].repeat(2, 0))


@pytest.mark.parametrize("block", [1, 31, 33, 65, 1000])
def test_block_whose_threads_are_no_multiple_of_a_warp(block: int) -> None:
    out, count = words(block), np.zeros(1, np.uint32)
    run(
        """bar.sync 0; setp.eq.u32 %p1, %t, %t; vote.sync.ballot.b32 %r1, %p1, -1; popc.b32 %r1, %r1; st.global.u32 [%at0], %r1;
        red.global.add.u32 [%a1], 1;""",
        out,
        count,
        block=block,
    )
    assert count[0] == block
    np.testing.assert_array_equal(out, [min(32, block - thread // 32 * 32) for thread in range(block)])


def test_special_registers_of_a_block_with_three_dimensions() -> None:
    out = np.zeros((2, 30, 4), np.uint32)
    run(
        """mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x;
            mov.u32 %r6, %ntid.y;
        mad.lo.u32 %r7, %r3, %r6, %r2; mad.lo.u32 %r7, %r7, %r5, %r1; mad.lo.u32 %r7, %r4, 30, %r7;
        mad.wide.u32 %d1, %r7, 16, %a0;
        st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4};""",
        out,
        prelude=False,
        block=(5, 3, 2),
        grid=2,
    )
    for block in range(2):
        expected = [(x, y, z, block) for z in range(2) for y in range(3) for x in range(5)]
        assert out[block].tolist() == [list(each) for each in expected]


def test_every_kind_of_instruction_obeys_its_predicate() -> None:
    """Lanes from 16 on do nothing."""
    out, count = words(), np.zeros(1, np.uint32)
    run(
        """mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0; setp.lt.u32 %p1, %lane, 16;
        mov.u32 %r8, room; mad.lo.u32 %r8, %lane, 4, %r8; st.shared.u32 [%r8], 8; st.shared.u32 [%r8+128], 1;
        @%p1 add.u32 %r1, %r1, 1; @%p1 mov.b64 {%r2, %r3}, 0x200000001; @%p1 ld.shared.u32 %r4, [%r8];
        @!%p1 ld.shared.u32 %r9, [%r8+128]; @%p1 red.global.add.u32 [%a1], 1;
        @%p1 shfl.sync.idx.b32 %r5, %lane, 3, 31, 0xFFFF; @!%p1 mov.u32 %r5, 50;
        mad.lo.u32 %r1, %r1, 10, %r2; mad.lo.u32 %r1, %r1, 10, %r3; mad.lo.u32 %r1, %r1, 10, %r4; mad.lo.u32 %r1, %r1, 100, %r5;
        @%p1 st.global.u32 [%at0], %r1; @!%p1 bra END; @!%p1 st.global.u32 [%at0], 0; END:""",
        out,
        count,
        globals_=".shared .b8 room[256];",
    )
    assert count[0] == 16
    np.testing.assert_array_equal(out, np.where(LANES < 16, 112803, 0xDEAD))


def test_indexed_branch_goes_where_each_lanes_index_says() -> None:
    out = words()
    body = """and.b32 %r1, %lane, 3; mov.u32 %r2, 99; PLACES: .branchtargets A, B, C, A;
        brx.idx %r1, PLACES; A: mov.u32 %r2, 10; bra END; B: mov.u32 %r2, 20; bra END; C: mov.u32 %r2, 30;
        END: st.global.u32 [%at0], %r2;"""
    run(body, out)
    np.testing.assert_array_equal(out, np.array([10, 20, 30, 10], np.uint32)[LANES % 4])
    run(body.replace("brx.idx", "setp.lt.u32 %p1, %lane, 8; @%p1 brx.idx").replace("PLACES; A:", "PLACES; bra END; A:"), out)
    np.testing.assert_array_equal(out[8:], 99)
    np.testing.assert_array_equal(out[:8], np.array([10, 20, 30, 10], np.uint32)[LANES[:8] % 4])
    body = body.replace("and.b32 %r1, %lane, 3", "setp.eq.u32 %p2, %lane, 7; selp.u32 %r1, 7, 0, %p2")
    fails("lane 7: index 7 of a list of 4 places", body, out)


SPINS = {
    "relaxed": "SPIN: ld.relaxed.gpu.global.u32 %r1, [%a0]; setp.ne.u32 %p2, %r1, {0}; @%p2 bra SPIN; fence.acq_rel.gpu;",
    "acquire": "SPIN: ld.acquire.gpu.global.u32 %r1, [%a0]; setp.ne.u32 %p2, %r1, {0}; @%p2 bra SPIN;",
    "volatile": """SPIN: ld.volatile.global.u32 %r1, [%a0]; setp.eq.u32 %p2, %r1, {0}; @%p2 bra GO; bra SPIN;
        GO: fence.acq_rel.gpu;""",
    "compare and swap": "SPIN: atom.acquire.gpu.global.cas.b32 %r1, [%a0], {0}, {0}; setp.ne.u32 %p2, %r1, {0}; @%p2 bra SPIN;",
    "exchange": """SPIN: nanosleep.u32 20; atom.acquire.gpu.global.or.b32 %r1, [%a0], 0; setp.ne.u32 %p2, %r1, {0};
        @%p2 bra SPIN;""",
}


@pytest.mark.parametrize("spin", SPINS)
@pytest.mark.parametrize("producer", [0, 3])
@pytest.mark.parametrize("spins_first", [True, False])
def test_waiting_for_a_flag_does_not_keep_its_writer_from_running(spin: str, producer: int, spins_first: bool) -> None:
    """All warps but one spin, before or behind the code of the writer: what lies first in the program must not starve it."""
    flag, out = np.zeros(1, np.uint32), words(128)
    write = """mul.lo.u32 %r3, %lane, 5; st.global.u32 [%at1], %r3; setp.eq.u32 %p3, %lane, 0; bar.warp.sync -1;
        fence.acq_rel.gpu;
        @%p3 st.relaxed.gpu.global.u32 [%a0], 1;"""
    wait = SPINS[spin].replace("{0}", "1") + f"ld.global.u32 %r4, [%a1+{4 * (32 * producer + 7)}]; st.global.u32 [%at1], %r4;"
    first, then, taken = (
        (wait, write, f"setp.eq.u32 %p1, %warp, {producer}")
        if spins_first
        else (write, wait, f"setp.ne.u32 %p1, %warp, {producer}")
    )
    run(f"{taken}; @%p1 bra OTHER; {first} bra END; OTHER: {then} END:", flag, out, block=128)
    expected = np.full((4, 32), 35)
    expected[producer] = LANES * 5
    np.testing.assert_array_equal(out.reshape(4, 32), expected)


PLAIN = {
    "bare": "SPIN: ld.{1}.u32 %r1, [{2}]; setp.ne.u32 %p2, %r1, 1; @%p2 bra SPIN;",
    "counts": "SPIN: add.u32 %r8, %r8, 1; ld.{1}.u32 %r1, [{2}]; setp.eq.u32 %p2, %r1, 1; @%p2 bra GO; bra SPIN; GO:",
}


@pytest.mark.parametrize("spin", PLAIN)
@pytest.mark.parametrize(("space", "place"), [("global", "%a0"), ("shared", "flag")])
@pytest.mark.parametrize("schedule", ["forward", "reverse", "seeded"])
def test_waiting_by_plain_loads_does_not_keep_the_writer_from_running(
    spin: str, space: str, place: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A race, and told as one; the writer is behind in the program, or the warp that comes last in reverse order."""
    wait = PLAIN[spin].replace("{1}", space).replace("{2}", place)
    body = f"""mov.u32 %r8, 0; setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [flag], 0; bar.sync 0; setp.eq.u32 %p1, %warp, 0;
        @%p1 bra WRITE; {wait} bra END; WRITE: st.{space}.u32 [{place}], 1; END: st.global.u32 [%at1], 3;"""
    launch = {"block": 96, "globals_": ".shared .u32 flag;"}
    options = {"schedules": (schedule,), "limit": 10_000}
    monkeypatch.setattr(control, "PATIENCE", 100)
    flag, out = np.zeros(1, np.uint32), words(96)
    run(body, flag, out, options={**options, "checks": False}, **launch)
    np.testing.assert_array_equal(out, 3)
    flag[0] = 0
    fails("reads at PTX line .* after|writes at PTX line .* after", body, flag, out, kind=RaceFound, options=options, **launch)


def test_plain_load_of_a_flag_that_nobody_writes_is_a_deadlock() -> None:
    spin = PLAIN["bare"].replace("{1}", "global").replace("{2}", "%a0")
    fails("deadlock: .*nobody will do any more", spin, np.zeros(1, np.uint32), kind=Deadlock, block=64)


def test_loop_that_adds_up_what_it_loads_is_no_wait() -> None:
    """Lanes leave it one after the other, and all meet behind it: nobody goes ahead."""
    body = """mov.u32 %r1, 0; mov.u32 %r2, 0; LOOP: ld.global.u32 %r3, [%at0]; add.u32 %r1, %r1, %r3; add.u32 %r2, %r2, 1;
        setp.le.u32 %p1, %r2, %lane; @%p1 bra LOOP; st.global.u32 [%at1], %r1;"""
    out = words(64)
    report = run(body, np.full(64, 2, np.uint32), out, block=64, options={"schedules": ("forward",)})
    np.testing.assert_array_equal(out, np.tile(2 * LANES + 2, 2))
    last = report.counters[0].instructions.index("st.global.u32")
    assert int(report.counters[0].by_instruction("executions")[last]) == 2


def test_lanes_of_one_warp_may_wait_for_each_other() -> None:
    """Each lane in turn, the last first: independent threads make progress though their warp is one."""
    turn, out = np.array([31], np.uint32), np.zeros(1, np.uint32)
    run(
        """SPIN: ld.acquire.gpu.global.u32 %r1, [%a0]; setp.ne.u32 %p1, %r1, %lane; @%p1 bra SPIN;
        atom.relaxed.gpu.global.add.u32 %r2, [%a1], %lane; sub.u32 %r3, %lane, 1; st.release.gpu.global.u32 [%a0], %r3;""",
        turn,
        out,
    )
    assert out[0] == 31 * 16


def test_lock_around_a_critical_section() -> None:
    """64 threads of two blocks add to a plain counter, each alone under a lock."""
    lock, count = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    run(
        """setp.ne.u32 %p1, %lane, 0; @%p1 ret;
        SPIN: atom.acquire.gpu.global.cas.b32 %r1, [%a0], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra SPIN;
        ld.global.u32 %r2, [%a1]; add.u32 %r2, %r2, 1; st.global.u32 [%a1], %r2;
        atom.release.gpu.global.exch.b32 %r3, [%a0], 0;""",
        lock,
        count,
        block=128,
        grid=2,
    )
    assert count[0] == 8 and lock[0] == 0


def test_flag_that_nobody_writes_is_a_deadlock() -> None:
    flag = np.zeros(1, np.uint32)
    for spin in ("relaxed", "acquire", "volatile", "compare and swap"):
        fails("deadlock: .*nobody will do any more", SPINS[spin].replace("{0}", "1"), flag, kind=Deadlock, block=64)


def test_who_asks_in_vain_may_have_something_else_to_do() -> None:
    """It counts how often it asks, and gives up: no deadlock. The other warp does not wait at all."""
    flag, out = np.zeros(1, np.uint32), words(64)
    run(
        """mov.u32 %r2, 0; SPIN: ld.relaxed.gpu.global.u32 %r1, [%a0]; add.u32 %r2, %r2, 1; setp.eq.u32 %p1, %r1, 1;
            @%p1 bra END;
        setp.lt.u32 %p1, %r2, 20; @%p1 bra SPIN; END: st.global.u32 [%at1], %r2;""",
        flag,
        out,
        block=64,
    )
    np.testing.assert_array_equal(out, 20)
    run(
        """setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.warp.sync -1;
        mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; @%p2 trap; @%p1 mbarrier.arrive.shared.b64 _, [bar];
        bar.warp.sync -1;
        mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 trap; st.global.u32 [%at1], 3;""",
        flag,
        out,
        globals_=".shared .align 8 .b64 bar;",
    )
    np.testing.assert_array_equal(out[:32], 3)


def test_endless_loop_ends_by_the_limit() -> None:
    told = r"PTX line \d+, .*: more than 5,000 warp instructions were executed"
    for body in ("LOOP: bra LOOP;", "mov.u32 %r1, 0; LOOP: add.u32 %r1, %r1, 1; ld.global.u32 %r2, [%a0]; bra LOOP;"):
        fails(told, body, words(), kind=TooLong, block=64, options={"limit": 5000})
    counts = (
        "mov.u32 %r1, 0; LOOP: add.u32 %r1, %r1, 1; ld.volatile.global.u32 %r2, [%a0]; setp.eq.u32 %p1, %r2, 0; @!%p1 bra LOOP;"
    )
    fails(told, counts, words(), kind=TooLong, block=64, options={"limit": 5000})


def test_shuffle_whose_lanes_never_come() -> None:
    body = "setp.lt.u32 %p1, %lane, 16; @%p1 bra END; shfl.sync.idx.b32 %r1, %lane, 20, 31, -1; END: bar.sync 1, 64;"
    fails("waits for lanes of its warp that never come", body, kind=Deadlock)
    gone = "setp.lt.u32 %p1, %lane, 16; @%p1 ret; shfl.sync.idx.b32 %r1, %lane, 20, 31, -1; st.global.u32 [%at0], %r1;"
    out = words()
    run(gone, out)
    np.testing.assert_array_equal(out[16:], 20)


def test_trap_names_the_lane() -> None:
    fails(r"block \(1, 0, 0\), warp 1, lane 6: the kernel trapped", "setp.eq.u32 %p1, %flat, 102; @%p1 trap;", grid=2, block=64)


def test_function_without_an_end() -> None:
    text = module("mov.u32 %r1, 1;", ()).replace("ret;", "")
    with pytest.raises(EmulationError, match="the function ends without ret"):
        emulate([Kernel(text, "k", (1, 1, 1), (32, 1, 1), ())])
