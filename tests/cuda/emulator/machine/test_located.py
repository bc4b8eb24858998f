"""What is kept of an access to shared memory is right for those that are equal, and for no others."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.emulate import emulate
from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.machine.steps import access
from tests.cuda.emulator.machine.kernels import kernel

ROOM = ".shared .align 16 .b8 room[512];"


def test_lanes_that_store_the_same_and_later_something_else_to_one_place() -> None:
    """By one instruction at equal addresses: only what they store tells whether that is a fault."""
    body = """
        mov.u32 %r1, 0;
        again: mul.lo.u32 %r2, %r1, %lane; shr.u32 %r2, %r2, {shift};
        bar.warp.sync -1; st.shared.u32 [0], %r2;
        add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 3; @%p1 bra again;"""
    emulate([kernel(body.format(shift=8), globals_=ROOM, shared=512)])
    with pytest.raises(EmulationError, match="another lane of the same instruction writes something else"):
        emulate([kernel(body.format(shift=5), globals_=ROOM, shared=512)])


def test_guard_that_changes_between_accesses_to_equal_addresses() -> None:
    out = np.zeros(4 * 32, np.uint32)
    body = """
        shl.b32 %r1, %lane, 2; add.u32 %r3, %lane, 100; st.shared.u32 [%r1], %r3;
        mov.u32 %r2, 0; mov.u64 %d1, %at0;
        again: and.b32 %r4, %lane, 3; setp.eq.u32 %p1, %r4, %r2;
        mov.u32 %r5, 0;
        @%p1 ld.shared.u32 %r5, [%r1];
        add.u32 %r6, %r5, 1000;
        @%p1 st.shared.u32 [%r1], %r6;
        st.global.u32 [%d1], %r5;
        add.u64 %d1, %d1, 128; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 4; @%p2 bra again;"""
    report = emulate([kernel(body, out, globals_=ROOM, shared=512)])
    lanes = np.arange(32)
    wanted = [np.where(lanes % 4 == turn, lanes + 100, 0) for turn in range(4)]
    np.testing.assert_array_equal(out.reshape(4, 32), wanted)
    assert report.counters[0].totals()["shared_bytes"] == 4 * (32 + 2 * 32)


def test_block_that_resides_later_has_written_nothing() -> None:
    """It reads where the blocks of before it did, at their place."""
    body = """
        setp.lt.u32 %p1, %block, {writers}; shl.b32 %r1, %lane, 2;
        @%p1 st.shared.u32 [%r1], %r1;
        ld.shared.u32 %r2, [%r1];"""
    emulate([kernel(body.format(writers=130), globals_=ROOM, shared=512, grid=130)])
    with pytest.raises(EmulationError, match=r"block \(129, 0, 0\).*never written"):
        emulate([kernel(body.format(writers=129), globals_=ROOM, shared=512, grid=130)], schedules=["forward"])


@pytest.mark.parametrize("most", [1, 2])
def test_how_many_are_kept_changes_nothing(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    body = """
        shl.b32 %r1, %t, 2; mov.u32 %r2, 0; mov.u32 %r7, 0;
        again: xor.b32 %r3, %r2, %t; shl.b32 %r3, %r3, 2;
        st.shared.u32 [%r1], %r3; bar.sync 0;
        ld.shared.u32 %r4, [%r3]; add.u32 %r7, %r7, %r4; bar.sync 0;
        add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 6; @%p1 bra again;
        st.global.u32 [%at0], %r7;"""

    def run() -> tuple[np.ndarray, dict[str, int]]:
        out = np.zeros(2 * 64, np.uint32)
        report = emulate([kernel(body, out, globals_=ROOM, shared=512, grid=2, block=64)])
        return out, report.counters[0].totals()

    wanted, counted = run()
    monkeypatch.setattr(access, "MOST_KEPT", most)
    found, again = run()
    np.testing.assert_array_equal(found, wanted)
    assert counted == again
