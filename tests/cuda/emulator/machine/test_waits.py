"""A wait at an mbarrier that says no: to who only asks it is an answer, to who asks again for ever it is a deadlock."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.emulate import Kernel, emulate
from impls.cuda.emulator.machine.execution import Deadlock

HEAD = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry ask(.param .u64 out)
{
  .reg .b32 %r<2>;
  .reg .b64 %a<2>;
  .reg .pred %p<3>;
  .shared .align 8 .b64 bar;
  mov.u32 %r0, %tid.x;
  setp.eq.u32 %p0, %r0, 0;
  @%p0 mbarrier.init.shared.b64 [bar], 33;
  bar.sync 0;
"""
TAIL = """
  selp.b32 %r1, 1, 2, %p1;
  ld.param.u64 %a0, [out];
  mad.wide.u32 %a1, %r0, 4, %a0;
  st.global.b32 [%a1], %r1;
  ret;
}
"""
ASK = "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;"


def run(middle: str) -> np.ndarray:
    out = np.zeros(32, np.uint32)
    emulate([Kernel(HEAD + middle + TAIL, "ask", (1, 1, 1), (32, 1, 1), (out,))])
    return out


def test_who_asks_and_is_told_no_goes_on():
    assert (run(ASK) == 2).all()


def test_who_asks_twice_goes_on():
    assert (run(ASK + ASK) == 2).all()


def test_who_waits_in_a_loop_for_what_never_comes_is_a_deadlock():
    with pytest.raises(Deadlock, match="waits for what nobody will do"):
        run(f"again: {ASK} @!%p1 bra again;")


def test_who_is_told_no_may_be_the_one_that_others_wait_for():
    everyone = "mbarrier.arrive.shared.b64 %a0, [bar];"
    thirty_third = f"{ASK} @%p0 mbarrier.arrive.shared.b64 %a0, [bar];"
    assert (run(f"{everyone} {thirty_third} again: {ASK} @!%p1 bra again;") == 1).all()
