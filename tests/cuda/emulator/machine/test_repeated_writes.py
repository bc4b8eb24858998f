"""Warps that write the same bytes to one place, as compilers make them where a tile is the same in several warps, race with
nobody; those that write other bytes do, whatever the order that they come in."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.checks.reports import RaceFound
from impls.cuda.emulator.emulate import Kernel, emulate
from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.machine.schedules import SCHEDULES

# %r1 is the thread's lane, %r2 its warp, %r3 the word that it writes, %r4 the address of a word for its lane.
KERNEL = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry writes(.param .u64 out)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    .shared .align 16 .b8 tile[512];
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 31;
    shr.u32 %r2, %r0, 5;
    mov.u32 %r5, tile;
    shl.b32 %r6, %r1, 2;
    add.u32 %r4, %r5, %r6;
    {word}
    {store}
    bar.sync 0;
    ld.shared.b32 %r8, [%r4];
    ld.param.u64 %rd0, [out];
    mul.wide.u32 %rd1, %r1, 4;
    add.u64 %rd2, %rd0, %rd1;
    setp.eq.u32 %p1, %r2, 0;
    @%p1 st.global.b32 [%rd2], %r8;
    ret;
}}
"""
SAME = "mov.u32 %r3, 0xffc00001;"  # as a float a NaN, which equals nothing
OTHER = "add.u32 %r3, %r2, 7;"
STORES = {
    "st": "st.shared.b32 [%r4], %r3;",
    "st.v4": "and.b32 %r7, %r1, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5; st.shared.v4.b32 [%r7], {%r3, %r3, %r3, %r3};",
    "stmatrix": "and.b32 %r7, %r1, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r5; "
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r7], {%r3};",
    "some lanes": "setp.lt.u32 %p0, %r1, 32; @%p0 st.shared.b32 [%r4], %r3;",
}


def launch(word: str, store: str, schedule: str) -> np.ndarray:
    out = np.zeros(32, np.uint32)
    emulate([Kernel(KERNEL.format(word=word, store=store), "writes", (1, 1, 1), (64, 1, 1), (out,))], schedules=(schedule,))
    return out


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("store", STORES)
def test_the_same_bytes_by_two_warps_are_no_race(store: str, schedule: str) -> None:
    assert (launch(SAME, STORES[store], schedule) == 0xFFC00001).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("store", STORES)
def test_other_bytes_by_two_warps_are_a_fault(store: str, schedule: str) -> None:
    with pytest.raises(EmulationError, match="writes"):
        launch(OTHER, STORES[store], schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_unordered_write_of_what_was_there_before_the_last_write_is_a_race(schedule: str) -> None:
    """Both warps write 1, then 2: a late 1 may come over an early 2."""
    store = "mov.u32 %r3, 1; st.shared.b32 [%r4], %r3; mov.u32 %r3, 2; st.shared.b32 [%r4], %r3;"
    with pytest.raises(RaceFound):
        launch("", store, schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lanes_that_do_not_write_are_not_asked(schedule: str) -> None:
    """Of each warp one lane writes, the others hold something else."""
    word = "add.u32 %r3, %r1, 5; setp.eq.u32 %p0, %r1, 0; st.shared.b32 [%r4], 0; bar.sync 0;"
    assert launch(word, "@%p0 st.shared.b32 [%r4], %r3;", schedule).tolist() == [5, *[0] * 31]
