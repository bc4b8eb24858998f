"""What an emulation is said to take."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulation.memory import needed
from impls.cuda.emulator.checks.grid_reads import LARGEST, LINE
from impls.cuda.emulator.emulate import Kernel

PTX = """.version 8.5
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
.reg .b32 %r<4>; .reg .b64 %rd<4>;
.shared .align 16 .b8 buffer[40000];
ld.param.u64 %rd1, [p];
mov.u32 %r1, buffer;
st.shared.u32 [%r1], %r1;
ret;
}
"""


def checks_of(blocks: int, ptx: str = PTX) -> int:
    """Bytes that the checks add for a launch of blocks of 8 warps."""
    kernel = Kernel(ptx, "k", (blocks, 1, 1), (256, 1, 1), (np.zeros(4, np.uint32),))
    with_checks, without = (needed([kernel], 16, checks=checks, shared_limit=None) for checks in (True, False))
    return with_checks - without


def test_shared_memory_of_blocks_counts_while_they_reside() -> None:
    """10,000 words, 16 bytes for each and 4 for each warp; 64 warps reside, which are 8 blocks."""
    block = 10_000 * (16 + 4 * 8)
    assert block < checks_of(1) < 1.1 * block
    assert 8 * block < checks_of(8) < 8.1 * block
    assert checks_of(512) < 10 * block


def test_each_load_is_remembered_for_each_warp() -> None:
    loads = PTX.replace("ret;", 3 * "ld.global.u32 %r2, [%rd1];\n" + "ret;")
    assert checks_of(512, loads) - checks_of(512) == 3 * 512 * 8 * LINE
    assert checks_of(1 << 22, loads) - checks_of(1 << 22) == LARGEST
