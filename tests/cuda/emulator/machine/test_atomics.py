"""atom and red. PTX ISA 9.1, 9.7.13.5 (atom) and 9.7.13.7 (red)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from impls.cuda.emulator.checks.reports import RaceFound
from impls.cuda.emulator.emulate import SchedulesDiffer
from impls.cuda.emulator.errors import Unknown
from tests.cuda.emulator.machine.kernels import fails, run, words

Number = Any
INTEGER: dict[str, Callable[[Number, Number], Number]] = {
    "add": lambda old, value: old + value,
    "min": min,
    "max": max,
    "and": lambda old, value: old & value,
    "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "exch": lambda old, value: value,
    "inc": lambda old, value: 0 if old >= value else old + 1,
    "dec": lambda old, value: value if old == 0 or old > value else old - 1,
}
FORMS = [
    *itertools.product(("add", "min", "max"), ("u32", "s32", "u64")),
    *itertools.product(("min", "max"), ("s64",)),
    *itertools.product(("and", "or", "xor", "exch"), ("b32", "b64")),
    *itertools.product(("inc", "dec"), ("u32",)),
]


@pytest.mark.parametrize(("name", "kind"), FORMS)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_every_operation_leaves_its_result_and_returns_what_was_there(name: str, kind: str, space: str) -> None:
    """Each lane has a place of its own, with edge values among them."""
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")
    limits = np.iinfo(dtype)
    edges = np.array([limits.min, limits.max, limits.min + 1, 0, 1, 5, limits.max // 2], dtype)
    old, value = np.resize(edges, 32), np.resize(np.roll(edges, 3)[:6], 32)
    place, returned = old.copy(), np.zeros_like(old)
    size, register = dtype.itemsize, "d" if dtype.itemsize == 8 else "r"
    width = 8 * size
    atom = (
        f"atom.global.{name}.{kind} %{register}2, [%d10], %{register}1;"
        if space == "global"
        else f"""mov.u32 %r20, room; mad.lo.u32 %r20, %lane, {size}, %r20; ld.global.b{width} %{register}3, [%d10];
            st.shared.b{width} [%r20], %{register}3;
        atom.shared.{name}.{kind} %{register}2, [%r20], %{register}1; ld.shared.b{width} %{register}3, [%r20];
        st.global.b{width} [%d10], %{register}3;"""
    )
    run(
        f"""mad.wide.u32 %d10, %lane, {size}, %a0; mad.wide.u32 %d11, %lane, {size}, %a1; mad.wide.u32 %d12, %lane, {size}, %a2;
        ld.global.b{width} %{register}1, [%d11]; {atom} st.global.b{width} [%d12], %{register}2;""",
        place,
        value,
        returned,
        globals_=".shared .align 8 .b8 room[256];",
        options={"schedules": ("forward",)},
    )
    np.testing.assert_array_equal(returned, old)
    expected = [INTEGER[name](int(a), int(b)) % 2**width for a, b in zip(old, value, strict=True)]
    np.testing.assert_array_equal(place.view(f"u{size}"), np.array(expected, f"u{size}"))


@pytest.mark.parametrize("kind", ["b16", "b32", "b64"])
def test_compare_and_swap(kind: str) -> None:
    size = int(kind[1:]) // 8
    dtype = np.dtype(f"u{size}")
    place, returned = np.arange(32, dtype=dtype), np.zeros(32, dtype)
    r = {2: "h", 4: "r", 8: "d"}[size]
    run(
        f"""mad.wide.u32 %d10, %lane, {size}, %a0; mad.wide.u32 %d11, %lane, {size}, %a1; and.b32 %r1, %lane, 0x1E;
            cvt.u{8 * size}.u32 %{r}2, %r1;
        atom.global.cas.{kind} %{r}3, [%d10], %{r}2, 77; st.global.{kind} [%d11], %{r}3;""",
        place,
        returned,
    )
    lanes = np.arange(32)
    np.testing.assert_array_equal(returned, lanes)
    np.testing.assert_array_equal(place, np.where(lanes % 2 == 0, 77, lanes))


def test_sums_of_floats_in_every_format() -> None:
    """Round to nearest even; f32 in global memory flushes subnormals to zero, and in shared memory does not."""
    single = np.array([1.0, 2.0**24, 1e-39, 1e-39], np.float32)
    out = np.zeros(4, np.float32)
    run(
        """setp.gt.u32 %p1, %lane, 0; @%p1 ret; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f000AE398;
            ld.global.f32 %f9, [%a0+12]; st.shared.f32 [room], %f9;
        red.global.add.f32 [%a0], 0f40000000; red.global.add.f32 [%a0+4], %f1; red.global.add.f32 [%a0+8], %f2;
        red.shared.add.f32 [room], %f2; ld.shared.f32 %f3, [room]; st.global.f32 [%a0+12], %f3;""",
        single,
        out,
        globals_=".shared .f32 room;",
    )
    assert single[:3].tolist() == [3.0, 2.0**24, 0.0]
    assert single[3] == np.float32(1e-39) + np.uint32(0x000AE398).view(np.float32)
    double = np.array([0.1], np.float64)
    run("setp.eq.u32 %p1, %lane, 0; @%p1 red.global.add.f64 [%a0], 0d3FC999999999999A;", double)
    assert double[0] == 0.1 + 0.2
    halves = np.array([1.0, 2048.0], np.float16)
    run("setp.eq.u32 %p1, %lane, 0; mov.b32 %r1, 0x3C003C00; @%p1 red.global.add.noftz.f16x2 [%a0], %r1;", halves)
    assert halves.tolist() == [2.0, 2048.0]
    brains = np.array([0x3F803F80], np.uint32)
    run("setp.eq.u32 %p1, %lane, 0; mov.b32 %r1, 0x3F804000; @%p1 red.global.add.noftz.bf16x2 [%a0], %r1;", brains)
    assert brains[0] == 0x40004040


@pytest.mark.parametrize("space", ["global", "shared"])
def test_threads_of_all_warps_that_update_one_place(space: str) -> None:
    """Every thread draws another number, whether warps run at once or one after the other: all are given out."""
    count, seen = np.zeros(1, np.uint32), np.zeros(128, np.uint32)
    start = "" if space == "global" else "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [room], 0; bar.sync 0; mov.u64 %d1, room;"
    place = "%a0" if space == "global" else "%d1"
    run(
        f"{start} atom.{space}.add.u32 %r1, [{place}], 1; mad.wide.u32 %d2, %r1, 4, %a1; atom.global.add.u32 %r2, [%d2], 1;",
        count,
        seen,
        block=128,
        globals_=".shared .u32 room;",
    )
    np.testing.assert_array_equal(seen, 1)


def test_old_values_that_are_kept_depend_on_the_schedule() -> None:
    out, count = words(128), np.zeros(1, np.uint32)
    body = "atom.global.add.u32 %r1, [%a1], 1; st.global.u32 [%at0], %r1;"
    error = fails(
        "under the schedules forward and reverse .* bytes of global memory differ, the first at byte 0 of argument 0",
        body,
        out,
        count,
        block=128,
        kind=SchedulesDiffer,
    )
    assert isinstance(error, SchedulesDiffer)
    run(body, out, count, block=128, options={"same_bits": False})
    np.testing.assert_array_equal(out, np.arange(128))


def test_sum_of_floats_that_depends_on_the_order() -> None:
    """1e8, a hundred times 1, which it swallows, and -1e8."""
    total = np.zeros(1, np.float32)
    body = """mov.f32 %f1, 0f3F800000; setp.eq.u32 %p1, %t, 0; @%p1 mov.f32 %f1, 0f4CBEBC20; setp.eq.u32 %p1, %t, 127;
        @%p1 mov.f32 %f1, 0fCCBEBC20;
        red.global.add.f32 [%a0], %f1;"""
    fails("differ", body, total, block=128, kind=SchedulesDiffer)
    run(body, total, block=128, options={"same_bits": False})
    assert total[0] == 0


def test_plain_access_beside_an_atomic_one_is_a_race() -> None:
    body = "setp.lt.u32 %p1, %t, 32; @%p1 bra ADD; ld.global.u32 %r1, [%a0]; ret; ADD: atom.global.add.u32 %r2, [%a0], 1;"
    fails("byte 0 of argument 0", body, words(), block=64, kind=RaceFound)


def test_atomic_of_the_block_alone_is_too_narrow_for_two_blocks() -> None:
    body = "atom.{0}.global.add.u32 %r1, [%a0], 1;"
    fails(
        "the scope of at least one of the two leaves the other warp out",
        body.replace("{0}", "cta"),
        words(),
        grid=2,
        kind=RaceFound,
    )
    run(body.replace("{0}", "gpu"), words(), grid=2)


@pytest.mark.parametrize(
    "instruction",
    [
        "atom.global.add.u32 %r1, [%a0], 1, 2;",
        "red.global.add.u32 [%a0], 1, 2;",
        "atom.global.cas.b32 %r1, [%a0], 1;",
        "atom.global.cas.b32 %r1, [%a0], 1, 2, 3;",
        "red.global.max.u32 [%a0];",
    ],
)
def test_as_many_values_as_the_operation_takes(instruction: str) -> None:
    fails(r"PTX line \d+: \d values of (atom|red)", instruction, words(), kind=Unknown)
