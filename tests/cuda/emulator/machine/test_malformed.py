"""Text that parses and is no program all the same: always a sentence of the emulator's, never an exception of Python's."""

from __future__ import annotations

import numpy as np
import pytest

from impls.cuda.emulator.emulate import Kernel, emulate
from impls.cuda.emulator.errors import BadLaunch, EmulationError, Unknown
from impls.cuda.emulator.ptx.errors import BadPTX

HEAD = """.version 8.5
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
.reg .b64 %rd<4>;
.reg .b32 %r<8>; .reg .b16 %h<4>;
.reg .pred %p<2>;
"""


def run(body: str, before: str = "") -> None:
    head = HEAD.replace(".address_size 64", f".address_size 64 {before}")
    emulate([Kernel(f"{head}{body}\n}}\n", "k", (1, 1, 1), (32, 1, 1), (np.zeros(4, np.uint32),))])


@pytest.mark.parametrize(
    "instruction",
    [
        *("ld;", "atom;", "mov.u32 %r1;", "ld.global.u32 %r1;", "st.global.u32;", "bar.sync;", "mma.sync;", "cp.async;"),
        *("shfl.sync.idx.b32 %r1;", "mbarrier.init;", "bra;", "add.u32 %r1;", "setp.eq.u32 %p1;", "vote.sync;", "cvta;"),
    ],
)
def test_missing_operands_are_named(instruction):
    with pytest.raises((Unknown, BadPTX), match=instruction.partition(" ")[0].rstrip(";")):
        run(f"{instruction}\nret;")


@pytest.mark.parametrize(
    "instruction",
    [
        "ld.global.v4.u32 {%r1, %r2}, [%rd1];",
        "ld.global.u32 {%r1, %r2}, [%rd1];",
        "mov.u32 %r1, word;",
        "mov.b64 {%r1, %r2, %r3}, %rd1;",
        "mov.b64 {%r1}, %rd1;",
        "mov.b64 {%h1, %h2}, %rd1;",
        "mov.b64 %rd1, {%h1, %h2};",
        "mov.b32 %r1, {%r2, %h1};",
        "mbarrier.arrive.b64 %rd1;",
    ],
)
def test_operands_of_another_shape_are_named(instruction):
    with pytest.raises(Unknown, match=f"PTX line 9.*{instruction.partition(' ')[0]}"):
        run(f"{instruction}\nret;", before=".global .b32 word;")


def test_entry_without_instructions_is_refused():
    with pytest.raises(BadLaunch, match="k has no instructions"):
        run("")


@pytest.mark.parametrize("body", ["mov.u32 %r1, 1;", "setp.eq.u32 %p1, 0, 1;\n@%p1 ret;", "bra end;\nend:"])
def test_falling_off_the_end_is_told(body):
    """Through the last instruction, past a `ret` that no lane takes, and by a jump behind the last."""
    with pytest.raises(EmulationError, match=r"PTX line \d+, block \(0, 0, 0\), warp 0: the function ends without ret"):
        run(body)
