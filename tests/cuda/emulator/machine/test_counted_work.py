"""What is counted is of the kernel, not of the schedule; what a guard forbids is no work; rules are those that were used."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from impls.cuda.emulator import rules
from impls.cuda.emulator.counting.bounds import work
from impls.cuda.emulator.counting.counters import Counters
from impls.cuda.emulator.emulate import emulate
from impls.cuda.emulator.machine.schedules import SCHEDULES
from tests.cuda.emulator.machine.kernels import fails, kernel, run, words

MMA = """
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
{%f0, %f1, %f2, %f3}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%f0, %f1, %f2, %f3};
"""
ZEROS = "mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.b32 %r1, 0;"


def under(schedule: str, body: str, *arguments: Any, **launch: Any) -> Counters:
    (counters,) = emulate([kernel(body, *arguments, **launch)], schedules=[schedule]).counters
    return counters


def by_name(counters: Counters, counted: str, opcode: str) -> int:
    numbers = counters.by_instruction(counted).tolist()
    return sum(number for number, name in zip(numbers, counters.instructions, strict=True) if name.startswith(f"{opcode}."))


@pytest.mark.parametrize(("guard", "working"), [("setp.lt.u32 %p1, %warp, 0;", 0), ("setp.lt.u32 %p1, %warp, 1;", 1)])
def test_warps_that_a_guard_keeps_out_do_no_work(guard: str, working: int) -> None:
    """Without this an MMA, an exponential and an atomic that nobody executes would bound the time."""
    body = f"{ZEROS} {guard} @%p1 {MMA.strip()} @%p1 ex2.approx.f32 %f0, %f0; @%p1 red.global.add.u32 [%a0], 1;"
    report = run(body, words(1), block=64)
    (counters,) = report.counters
    for opcode in ("mma", "ex2", "red"):
        assert by_name(counters, "executions", opcode) == 2
        assert by_name(counters, "working", opcode) == working
    done = work(counters)
    assert done.get("tensor 16-bit", 0) == 2048 * working
    assert (done.get("xu", 0), done.get("issue", 0)) == (32 * working, 3 * 32 * working)
    assert counters.by_class().get("atomic", {}).get("global_requests", 0) == working


def test_a_guard_that_the_instruction_itself_writes_is_that_before_it() -> None:
    report = run("setp.eq.u32 %p1, %warp, 0; @%p1 setp.eq.u32 %p1, %warp, 9; @%p1 ex2.approx.f32 %f0, 0f00000000;", block=64)
    (counters,) = report.counters
    guarded = [index for index, name in enumerate(counters.instructions) if name.startswith("setp")][-1]
    assert counters.by_instruction("working")[guarded] == 1
    assert "xu" not in work(counters)


DIVERGING = """
setp.lt.u32 %p1, %lane, 4; setp.eq.u32 %p2, %warp, 1; and.pred %p3, %p1, %p2;
@%p3 ld.global.u32 %r1, [%a0+4]; @%p3 atom.global.add.u32 %r2, [%a0], 0;
bar.sync 0; @%p2 st.global.u32 [%at1], %lane; bar.sync 0;
"""


def test_counters_are_the_same_under_every_schedule() -> None:
    """Requests of warps without a lane, and waits at barriers, would depend on it."""
    found = {
        json.dumps(under(schedule, DIVERGING, words(2), words(256), block=256).record(), sort_keys=True)
        for schedule in SCHEDULES
    }
    assert len(found) == 1
    classes = json.loads(found.pop())["classes"]
    assert classes["atomic"]["global_requests"] == classes["global load"]["global_requests"] == 1
    assert classes["global store"]["global_requests"] == 1
    assert classes["barrier"]["barriers"] == 2 * 8


SHARED = ".shared .align 8 .b64 bar;"
WAITING = """
setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [bar], 64; bar.sync 0;
mbarrier.arrive.shared.b64 %d1, [bar];
again: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra again;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_wait_at_an_mbarrier_counts_when_it_is_over(schedule: str) -> None:
    """Not how often it is asked: that depends on the time."""
    counters = under(schedule, SHARED + WAITING, block=64)
    assert by_name(counters, "barriers", "mbarrier") == by_name(counters, "barriers", "bar") == 2


def test_a_rule_of_what_was_branched_over_is_not_listed() -> None:
    vote = "vote.sync.ballot.b32 %r1, %p2, -1;"
    body = f"mov.u32 %r1, 0; setp.eq.u32 %p2, %lane, 0; {{}} bra out; {vote} out: st.global.u32 [%at0], %r1;"
    assert "vote" not in run(body.format(""), words()).rules
    assert "vote" in run(body.format("setp.eq.u32 %p1, %lane, 99; @%p1"), words()).rules


def test_checks_and_traffic_are_among_the_rules_if_they_are_on() -> None:
    launch = kernel("st.global.u32 [%at0], %lane;", words())
    both = emulate([launch]).rules
    without = emulate([launch], checks=False).rules
    assert {"causality order", "sectors of a request"} <= both.keys()
    assert "causality order" not in without and "sectors of a request" in without


def test_a_gpu_confirms_the_rules_of_its_own_family_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    h200, a100 = "NVIDIA H200 (sm_90a)", "NVIDIA A100 (sm_80)"
    monkeypatch.setattr(rules, "confirmed", lambda: {"integer": (a100, h200), "sectors of a request": (h200,)})
    launch = kernel("add.u32 %r1, %lane, 1; st.global.u32 [%at0], %r1;", words())
    for target, gpus in (("sm_90a", (h200,)), ("sm_90", (h200,)), ("sm_86", (a100,)), ("sm_120a", ()), ("sm_100a", ())):
        text = launch.ptx.replace(".target sm_100a", f".target {target}")
        rule = emulate([type(launch)(text, "k", launch.grid, launch.block, launch.arguments)]).rules["integer"]
        assert (rule.status, rule.gpus) == ("silicon" if gpus else "independent compiler", gpus), target


def copy(size: int, read: int) -> str:
    return f"cp.async.ca.shared.global [room], [%a0], {size}, {read}; cp.async.wait_all;"


ROOM = ".shared .align 16 .b8 room[16]; setp.eq.u32 %p1, %t, 0; setp.eq.u32 %p2, %t, 32;"


def test_a_short_copy_reads_its_first_bytes_alone() -> None:
    """The last 4 of 16 bytes are another warp's to write meanwhile; sectors and bytes are those that are read."""
    body = f"{ROOM} @%p2 st.global.u32 [%a0+12], %t; @!%p1 bra out; {copy(16, 8)} out:"
    array = np.zeros(4, np.uint32)
    (counters,) = run(body, array, block=64).counters
    assert array[3] == 32
    assert by_name(counters, "global_bytes", "cp") == 8


@pytest.mark.parametrize("read", [16, 12])
def test_what_a_copy_reads_may_nobody_write_meanwhile(read: int) -> None:
    place = 12 if read == 16 else 8
    body = f"{ROOM} @%p2 st.global.u32 [%a0+{place}], %t; @!%p1 bra out; {copy(16, read)} out:"
    fails("global|argument", body, np.zeros(4, np.uint32), block=64)


def test_lanes_may_copy_different_lengths() -> None:
    body = f"""{ROOM.replace("room[16]", "room[512]")} shl.b32 %r1, %lane, 4; cvt.u64.u32 %d1, %r1; add.u64 %d1, %d1, %a0;
    mov.u32 %r2, room; add.u32 %r2, %r2, %r1; and.b32 %r3, %lane, 15;
    @%p2 st.global.u32 [%a0+12], %t; setp.ge.u32 %p3, %t, 32; @%p3 bra out;
    cp.async.ca.shared.global [%r2], [%d1], 16, %r3; cp.async.wait_all; out:"""
    (counters,) = run(body, np.zeros(128, np.uint32), block=64).counters
    assert by_name(counters, "global_bytes", "cp") == 2 * sum(range(16))
