"""What depends on the order of warps, blocks and launches is told, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.checks.reports import RaceFound
from impls.cuda.emulator.emulate import Kernel, SchedulesDiffer, emulate
from tests.cuda.emulator.machine.kernels import EmulationError, fails, kernel, run, words

LAST = "setp.ne.u32 %p1, %lane, 0; @%p1 ret; atom.global.exch.b32 %r1, [%a0], %flat;"
"""The last warp's number stays, which is a race of nobody: exchanges are atomic."""


def test_result_that_depends_on_the_order_of_warps() -> None:
    fails(
        "under the schedules forward and reverse 1 bytes of global memory differ, the first at byte 0 of argument 0",
        LAST,
        words(1),
        block=64,
        kind=SchedulesDiffer,
    )


def test_result_that_depends_on_the_order_of_blocks() -> None:
    fails("under the schedules forward and reverse", LAST, words(1), grid=200, kind=SchedulesDiffer)


def test_kernel_that_declares_it() -> None:
    out = words(1)
    run(LAST, out, block=64, options={"same_bits": False})
    assert out[0] == 32, "the arrays hold what the first schedule left"


def test_same_seed_is_the_same_order() -> None:
    found = []
    for seed in (1, 1, 2, 3, 4):
        out = words(1)
        run(LAST, out, block=1024, options={"schedules": ("seeded",), "seed": seed})
        found.append(int(out[0]))
    assert found[0] == found[1] and len(set(found)) > 1


def test_sum_that_does_not_depend_on_the_order() -> None:
    out, report = np.zeros(1, np.uint32), None
    report = run("red.global.add.u32 [%a0], %flat;", out, block=96, grid=70)
    assert out[0] == sum(range(96 * 70)) and report.schedules == ("forward", "reverse", "seeded")


def test_each_schedule_starts_from_the_same_memory() -> None:
    out, count = np.arange(64, dtype=np.uint32), np.zeros(1, np.uint32)
    body = """ld.global.u32 %r1, [%at0]; add.u32 %r1, %r1, 1; st.global.u32 [%at0], %r1; red.global.add.u32 [count], 1;
        setp.eq.u32 %p1, %t, 0; @%p1 red.global.add.u32 [%a1], 1;"""
    run(body, out, count, block=64, globals_=".global .u32 count;")
    assert out.tolist() == list(range(1, 65)) and count[0] == 1


def test_unknown_or_no_schedule() -> None:
    for names, told in (
        (("backward",), "no schedule is called 'backward'; there are forward, reverse, seeded"),
        ((), "no schedule was given"),
    ):
        with pytest.raises(ValueError, match=told):
            emulate([kernel("")], schedules=names)


# Replicated data

TWICE = """and.b32 %r1, %t, 31; mov.u32 %r2, room; mad.lo.u32 %r2, %r1, 4, %r2; add.u32 %r3, %r1, {0};
    st.{1} [{2}], %r3; bar.sync 0; ld.{1} %r4, [{2}]; st.global.u32 [%at1], %r4;"""


@pytest.mark.parametrize(("space", "place"), [("shared.u32", "%r2"), ("global.u32", "%d1")])
def test_warps_that_store_what_they_all_hold(space: str, place: str) -> None:
    """Every warp writes the same 32 words, as compilers have it where a layout replicates data; a different value is a race."""
    room, out = np.zeros(32, np.uint32), words(128)
    body = f"mad.wide.u32 %d1, %lane, 4, %a0; {TWICE}".replace("{1}", space).replace("{2}", place)
    globals_ = ".shared .b8 room[128];"
    run(body.replace("{0}", "7"), room, out, block=128, globals_=globals_)
    np.testing.assert_array_equal(out, np.arange(128) % 32 + 7)
    fails(
        "writes at PTX line .* after block 0, warp .* writes",
        body.replace("{0}", "%warp"),
        room,
        out,
        block=128,
        globals_=globals_,
        kind=RaceFound,
    )
    for schedule in ("forward", "reverse", "seeded"):
        fails(
            "writes at PTX line",
            body.replace("{0}", "%warp"),
            room,
            out,
            block=128,
            globals_=globals_,
            kind=RaceFound,
            options={"schedules": (schedule,)},
        )


def test_equal_value_by_another_instruction_is_a_race() -> None:
    body = "setp.lt.u32 %p1, %t, 32; @%p1 st.shared.u32 [room], 1; @!%p1 st.shared.u32 [room], 1;"
    fails("writes at PTX line", body, block=64, globals_=".shared .u32 room;", kind=RaceFound)


def test_replicated_store_does_not_hide_a_missing_barrier() -> None:
    body = TWICE.replace("{0}", "7").replace("{1}", "shared.u32").replace("{2}", "%r2").replace("bar.sync 0;", "")
    for schedule in ("forward", "reverse"):
        body_of = body.replace(
            "ld.shared.u32 %r4, [%r2]", "setp.eq.u32 %p1, %warp, 1; @%p1 ld.shared.u32 %r4, [%r2]; @!%p1 mov.u32 %r4, 0"
        )
        fails(
            "reads at PTX line|writes at PTX line",
            body_of,
            words(),
            words(128),
            block=128,
            globals_=".shared .b8 room[128];",
            options={"schedules": (schedule,)},
        )


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("schedule", ["forward", "reverse", "seeded"])
def test_strong_stores_of_several_warps_to_one_place(space: str, schedule: str) -> None:
    """Morally strong: no race, and no fault. The schedule's order says which stays; lanes of one warp have to agree."""
    place = "[%a0]" if space == "global" else "[room]"
    body = f"""st.relaxed.gpu.{space}.u32 {place}, {{0}}; bar.sync 0; ld.relaxed.gpu.{space}.u32 %r1, {place};
        st.global.u32 [%at1], %r1;"""
    out, options, globals_ = words(128), {"schedules": (schedule,)}, ".shared .u32 room;"
    run(body.replace("{0}", "%warp"), words(), out, block=128, globals_=globals_, options=options)
    assert len(set(out.tolist())) == 1 and out[0] in {"forward": [3], "reverse": [0], "seeded": range(4)}[schedule]
    told = r"warp \d, lane \d+: another lane of the same instruction writes something else"
    fails(told, body.replace("{0}", "%t"), words(), out, block=128, globals_=globals_, options=options)


@pytest.mark.parametrize(
    "store",
    [
        "st.shared.u32 [room], %r2;",
        "st.shared.v2.u32 [room], {%r2, %r2};",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r2};",
    ],
)
def test_weak_stores_of_several_warps_to_one_place_come_in_the_schedules_order(store: str) -> None:
    """Without the checks, which tell of the race."""
    body = f"""add.u32 %r2, %warp, 7; and.b32 %r3, %lane, 7; mov.u32 %r4, room; mad.lo.u32 %r3, %r3, 16, %r4; {store}
        bar.sync 0; ld.shared.u32 %r1, [room]; st.global.u32 [%at0], %r1;"""
    for schedule, left in (("forward", 10), ("reverse", 7)):
        out = words(128)
        options = {"schedules": (schedule,), "checks": False}
        run(body, out, block=128, globals_=".shared .align 16 .b8 room[128];", options=options)
        np.testing.assert_array_equal(out, left)


def test_rows_of_one_stmatrix_at_one_place() -> None:
    body = "mov.u32 %r1, room; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%lane};"
    fails("lane 0: another lane of the same instruction", body, globals_=".shared .align 16 .b8 room[128];")


# Launches that follow each other

WRITE = "add.u32 %r1, %flat, 5; st.global.u32 [%at0], %r1;"
DOUBLE = "xor.b32 %r2, %flat, 63; mad.wide.u32 %d1, %r2, 4, %a0; {0} ld.global.u32 %r1, [%d1]; st.global.u32 [%at1], %r1;"


def launches(first: str, second: str, overlaps: bool) -> list[Kernel]:
    middle, out = words(64), words(64)
    return [kernel(first, middle, grid=2), kernel(second, middle, out, grid=2, overlaps=overlaps)]


def test_launch_sees_what_the_one_before_it_left() -> None:
    each = launches(WRITE, DOUBLE.replace("{0}", ""), False)
    report = emulate(each)
    np.testing.assert_array_equal(each[1].arguments[1], 63 - np.arange(64) + 5)
    assert len(report.counters) == 2


def test_launch_that_overlaps_has_to_wait_for_the_one_before() -> None:
    each = launches(WRITE, DOUBLE.replace("{0}", "griddepcontrol.wait;"), True)
    emulate(each)
    np.testing.assert_array_equal(each[1].arguments[1], 63 - np.arange(64) + 5)
    for late in ("", "griddepcontrol.launch_dependents;", "setp.eq.u32 %p1, %t, 99; @%p1 griddepcontrol.wait;"):
        with pytest.raises(
            RaceFound,
            match=r"block \(., 0, 0\), warp 0, lane \d+: byte \d+ of argument 0: block ., warp 0, lane \d+ reads at PTX line "
            r"\d+, after block ., warp 0, lane \d+ writes at PTX line \d+",
        ):
            emulate(launches(WRITE, DOUBLE.replace("{0}", late), True))
    with pytest.raises(RaceFound):
        emulate(launches(WRITE, "st.global.u32 [%at0], 1;", True))


def test_equal_value_by_the_same_instruction_of_an_overlapping_launch_is_a_race() -> None:
    out = words(64)
    one = kernel("st.global.u32 [%at0], 1;", out, block=64)
    with pytest.raises(RaceFound):
        emulate([one, Kernel(one.ptx, "k", one.grid, one.block, one.arguments, overlaps=True)])


# The last block combines what all have left

COMBINE = """mul.lo.u32 %r1, %flat, 3; st.global.u32 [%at0], %r1; {0} bar.sync 0; setp.eq.u32 %p1, %t, 0; @!%p1 bra MEET;
    atom.global.add.u32 %r2, [%a1], 1; {1} st.shared.u32 [last], %r2; MEET: bar.sync 0; ld.shared.u32 %r2, [last];
    setp.ne.u32 %p2, %r2, 3; @%p2 ret; {2}
    mov.u32 %r3, 0; mov.u32 %r4, 0; LOOP: mad.lo.u32 %r5, %r4, %n, %t; mad.wide.u32 %d1, %r5, 4, %a0;
    ld.global.u32 %r6, [%d1]; add.u32 %r3, %r3, %r6;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 4; @%p3 bra LOOP; mad.wide.u32 %d2, %t, 4, %a2; st.global.u32 [%d2], %r3;"""


@pytest.mark.parametrize(
    "fences",
    [
        ("membar.gl;", "", "membar.gl;"),
        ("membar.gl;", "membar.gl;", ""),
        ("fence.sc.gpu;", "fence.sc.gpu;", ""),
        ("membar.sys;", "", "fence.sc.sys;"),
    ],
)
def test_last_block_combines(fences: tuple[str, str, str]) -> None:
    text = COMBINE
    for number, each in enumerate(fences):
        text = text.replace(f"{{{number}}}", each)
    out = words(64)
    run(text, words(256), np.zeros(1, np.uint32), out, block=64, grid=4, globals_=".shared .u32 last;")
    np.testing.assert_array_equal(out, 3 * sum(np.arange(64) + 64 * block for block in range(4)))


@pytest.mark.parametrize(
    "fences",
    [
        ("", "", ""),
        ("", "membar.gl;", "membar.gl;"),
        ("membar.gl;", "", ""),
        ("membar.cta;", "membar.gl;", "membar.gl;"),
        ("membar.gl;", "membar.cta;", "membar.cta;"),
    ],
)
@pytest.mark.parametrize("schedule", ["forward", "reverse", "seeded"])
def test_last_block_combines_without_its_fences(fences: tuple[str, str, str], schedule: str) -> None:
    text = COMBINE
    for number, each in enumerate(fences):
        text = text.replace(f"{{{number}}}", each)
    arguments = words(256), np.zeros(1, np.uint32), words(64)
    fails(
        "of argument 0: block ., warp ., lane . reads at",
        text,
        *arguments,
        block=64,
        grid=4,
        globals_=".shared .u32 last;",
        kind=RaceFound,
        options={"schedules": (schedule,)},
    )


def test_last_block_combines_without_its_barriers() -> None:
    for number in (0, 1):
        parts = COMBINE.replace("{0}", "membar.gl;").replace("{1}", "").replace("{2}", "membar.gl;").split("bar.sync 0;")
        text = "bar.sync 0;".join(parts[: number + 1]) + "bar.sync 0;".join(parts[number + 1 :])
        fails(
            "reads at|writes at|never written",
            text,
            words(256),
            np.zeros(1, np.uint32),
            words(64),
            block=64,
            grid=4,
            globals_=".shared .u32 last;",
        )


def test_array_of_two_launches_is_as_it_was_after_an_error_in_the_second() -> None:
    out = words()
    with pytest.raises(EmulationError, match="trapped"):
        emulate([kernel("st.global.u32 [%at0], 1;", out), kernel("trap;")])
    np.testing.assert_array_equal(out, words())
