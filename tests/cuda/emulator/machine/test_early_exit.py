"""Lanes that end early: `if (i >= n) return;` as compilers write it, a branch to a `ret` at the end."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.emulate import SchedulesDiffer
from tests.cuda.emulator.machine.kernels import fails, run, words

LEAVES_LATE = "setp.ge.u32 %p1, %t, 20; @%p1 bra END; {} END: ret;"
"""The lanes that leave do so after the others have come to what waits for all that are left."""


@pytest.mark.parametrize(
    "waits",
    [
        "bar.sync 0;",
        "bar.warp.sync -1;",
        "vote.sync.ballot.b32 %r1, 1, -1; st.global.u32 [%at0], %r1;",
        "redux.sync.add.u32 %r1, %t, -1; st.global.u32 [%at0], %r1;",
        "shfl.sync.idx.b32 %r1, %t, 3, 31, -1; st.global.u32 [%at0], %r1;",
    ],
    ids=["barrier", "warp", "ballot", "redux", "shfl"],
)
def test_nobody_waits_for_lanes_that_have_ended(waits: str) -> None:
    run(LEAVES_LATE.format(waits), words())


def test_a_product_takes_all_lanes_of_a_warp() -> None:
    product = (
        "mov.b32 %r1, 0; mov.f32 %f1, 0f00000000; "
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f1, %f1, %f1}, {%r1, %r1}, {%r1}, {%f1, %f1, %f1, %f1};"
    )
    fails("all 32 lanes of a warp", product, words(), block=24)


def test_atomics_take_no_unwritten_bytes() -> None:
    shared = ".shared .align 4 .b32 ticket; "
    fails("never written", f"{shared}atom.shared.add.u32 %r1, [ticket], 1;", words())
    run(f"{shared}atom.shared.exch.b32 %r1, [ticket], 1; ld.shared.u32 %r2, [ticket];", words())


def test_lanes_are_not_always_in_order() -> None:
    """A ticket of an atomic tells the order: no kernel may rest on it."""
    ticket = "atom.global.add.u32 %r1, [%a1], 1; st.global.u32 [%at0], %r1;"
    fails("schedules forward and reverse", ticket, words(), np.zeros(1, np.uint32), kind=SchedulesDiffer)
