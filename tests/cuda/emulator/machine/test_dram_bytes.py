"""What has to come from DRAM: not what a launch before has read or written, which a cache may hold."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.emulate import Kernel, emulate

COPY = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 to, .param .u64 from)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd1, %r1, 4;
  ld.param.u64 %rd2, [from];
  add.s64 %rd2, %rd2, %rd1;
  ld.global.b32 %r2, [%rd2];
  ld.param.u64 %rd3, [to];
  add.s64 %rd3, %rd3, %rd1;
  st.global.b32 [%rd3], %r2;
  ret;
}
"""


def fetched(*copies: tuple[str, str]) -> list[int]:
    """DRAM bytes of launches that copy 32 words, each (to, from)."""
    arrays = {name: np.ones(32, np.uint32) for name in "abc"}
    kernels = [Kernel(COPY, "copy", (1, 1, 1), (32, 1, 1), (arrays[to], arrays[source])) for to, source in copies]
    return [counters.dram_bytes for counters in emulate(kernels, schedules=("forward",)).counters]


def test_what_the_launch_before_wrote_or_read_is_not_fetched_again() -> None:
    assert fetched(("b", "a"), ("c", "b"), ("c", "a")) == [128, 0, 0]


def test_what_nobody_touched_is() -> None:
    assert fetched(("b", "a"), ("b", "c")) == [128, 128]
