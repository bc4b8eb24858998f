"""How long the emulator takes for an instruction: `python -m tests.cuda.emulator.speed`.

Each kernel is one warp of 32 blocks, or 32 of one block, in step, and executes one instruction many times; what a kernel that
jumps over it takes is subtracted. CPU seconds of one thread, all checks and counters on, forward schedule.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from impls.cuda.emulator.emulate import Kernel, emulate

WARPS = 32
TIMES = 200
HEAD = """.version 9.0
.target sm_120a
.address_size 64
.visible .entry kernel(.param .u64 out)
{
.reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %rd<8>; .reg .f32 %f<40>; .reg .f64 %d<4>; .reg .pred %p<4>;
.shared .align 128 .b8 buffer[4096];
ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x; mov.u32 %r1, %laneid; mov.u32 %r2, %ctaid.x; mad.lo.s32 %r3, %r2, 32, %r0;
mul.wide.u32 %rd1, %r3, 16; add.u64 %rd2, %rd0, %rd1;
mov.u32 %r4, buffer; shl.b32 %r5, %r1, 4; add.u32 %r6, %r4, %r5; shl.b32 %r7, %r1, 2; add.u32 %r8, %r4, %r7;
mov.u32 %r10, 0x3c003c00; mov.u32 %r11, 0x3c003c00; mov.u32 %r12, 0x3c003c00; mov.u32 %r13, 0x3c003c00;
mov.u32 %r14, 0x3c003c00; mov.u32 %r15, 0x3c003c00; mov.u32 %r16, 0x38383838;
mov.f32 %f0, 0f3f800000; mov.f32 %f1, 0f3f800001; mov.f32 %f2, 0f00000000; mov.f32 %f3, %f2; mov.f32 %f4, %f2; mov.f32 %f5, %f2;
mov.f64 %d0, 0d3ff0000000000000; mov.u64 %rd3, 5; setp.eq.s32 %p0, %r1, 3; mov.b16 %h0, 5;
st.shared.v4.u32 [%r6], {%r10, %r10, %r10, %r10};
bar.sync 0;
"""
NVFP4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


@dataclass(frozen=True)
class Measured:
    """One instruction."""

    name: str
    text: str
    products: int = 0
    """Of one warp; 0 for what is no MMA."""


MEASURED = [
    Measured("add.s32", "add.s32 %r20, %r0, %r1;"),
    Measured("mad.lo.s32", "mad.lo.s32 %r20, %r0, %r1, %r2;"),
    Measured("lop3.b32", "lop3.b32 %r20, %r0, %r1, %r2, 0x96;"),
    Measured("prmt.b32", "prmt.b32 %r20, %r0, %r1, 0x5410;"),
    Measured("add.f32", "add.f32 %f10, %f0, %f1;"),
    Measured("fma.rn.f32", "fma.rn.f32 %f10, %f0, %f1, %f2;"),
    Measured("mul.rn.f16x2", "mul.rn.f16x2 %r20, %r10, %r11;"),
    Measured("ex2.approx.ftz.f32", "ex2.approx.ftz.f32 %f10, %f0;"),
    Measured("rcp.rn.f32", "rcp.rn.f32 %f10, %f1;"),
    Measured("div.rn.f32", "div.rn.f32 %f10, %f1, %f0;"),
    Measured("setp.lt.f32", "setp.lt.f32 %p1, %f0, %f1;"),
    Measured("selp.f32", "selp.f32 %f10, %f0, %f1, %p0;"),
    Measured("@%p0 mov.f32", "@%p0 mov.f32 %f10, %f0;"),
    Measured("cvt.rn.f16x2.f32", "cvt.rn.f16x2.f32 %r20, %f0, %f1;"),
    Measured("cvt.rn.f16x2.e4m3x2", "cvt.rn.f16x2.e4m3x2 %r20, %h0;"),
    Measured("cvt.rn.satfinite.e4m3x2.f32", "cvt.rn.satfinite.e4m3x2.f32 %h1, %f0, %f1;"),
    Measured("shfl.sync.bfly.b32", "shfl.sync.bfly.b32 %r20|%p1, %r0, 4, 31, -1;"),
    Measured("vote.sync.any.pred", "vote.sync.any.pred %p1, %p0, -1;"),
    Measured("ld.shared.u32", "ld.shared.u32 %r20, [%r8];"),
    Measured("ld.shared.v4.u32", "ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r6];"),
    Measured("st.shared.u32", "st.shared.u32 [%r8], %r10;"),
    Measured("ldmatrix.x4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r6];"),
    Measured("stmatrix.x4", "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r6], {%r10, %r11, %r12, %r13};"),
    Measured(
        "cp.async 16 B, commit, wait",
        "cp.async.cg.shared.global [%r6], [%rd2], 16; cp.async.commit_group; cp.async.wait_group 0;",
    ),
    Measured("ld.global.v4.u32", "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd2];"),
    Measured("st.global.u32", "st.global.u32 [%rd2], %r10;"),
    Measured("bar.sync", "bar.sync 0;"),
    Measured(
        "mma m16n8k16 f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f20, %f21, %f22, %f23}, "
        "{%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f2, %f3, %f4, %f5};",
        16 * 8 * 16,
    ),
    Measured(
        "mma m16n8k64 mxf4nvf4 4X",
        f"{NVFP4} {{%f20, %f21, %f22, %f23}}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {{%f2, %f3, %f4, %f5}}, "
        "%r16, {0, 0}, %r16, {0, 0};",
        16 * 8 * 64,
    ),
]


def seconds(body: str) -> float:
    """CPU seconds of a kernel with this body, the best of three."""
    out = np.zeros(WARPS * 32 * 4, np.uint32)
    kernel = Kernel(f"{HEAD}{body}\nEND:\nret;\n}}\n", "kernel", (WARPS, 1, 1), (32, 1, 1), (out,))
    found = []
    for _ in range(3):
        started = time.thread_time()
        emulate([kernel], schedules=("forward",))
        found.append(time.thread_time() - started)
    return min(found)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{'instruction':32}{'us a warp':>12}{'ns a product':>14}")
    for one in MEASURED:
        text = "\n".join([one.text] * TIMES)
        # parsed and decoded alike, and jumped over
        spent = (seconds(text) - seconds(f"bra END;\n{text}")) / (TIMES * WARPS)
        print(f"{one.name:32}{1e6 * spent:12.3f}" + (f"{1e9 * spent / one.products:14.2f}" if one.products else ""))


if __name__ == "__main__":
    main()
