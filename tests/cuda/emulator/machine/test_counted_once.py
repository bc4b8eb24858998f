"""What executes is counted once, also where lanes of a warp wait for each other on the way."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.emulate import Kernel, emulate

PTX = """.version 8.5
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
.reg .b32 %r<4>;
.reg .pred %p;
mov.u32 %r1, %tid.x;
setp.ge.u32 %p, %r1, 8;
@%p bra meet;
add.u32 %r2, %r1, 1;
add.u32 %r2, %r2, 1;
meet:
bar.sync 0;
ret;
}
"""


def test_lanes_that_arrive_apart_at_a_barrier():
    """8 of 32 lanes make two additions; then they wait for the others, or the others for them."""
    for schedule in ("forward", "reverse", "seeded"):
        report = emulate(
            [Kernel(PTX, "k", (1, 1, 1), (64, 1, 1), (np.zeros(1, np.uint32),))], schedules=[schedule], limit=2 * 5 + 2
        )
        (counters,) = report.counters
        assert counters.by_instruction("executions").tolist() == [2, 2, 2, 1, 1, 2, 2]
        assert counters.by_instruction("lanes").tolist() == [64, 64, 64, 8, 8, 64, 64]
