"""Reads that wait for each other: their time is the latency of whatever memory serves them, an L2 or DRAM.

Bandwidth would tell the two apart badly: a buffer that fits into the L2 is read hardly faster from it than from HBM, once the
launch is counted.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.environment import triton_ptxas
from impls.arch import Arch

if TYPE_CHECKING:
    import torch

READS = 512
LINE_BYTES = 128

PTX = """\
.version 7.0
.target sm_80
.address_size 64

// One thread. The buffer holds zeros; adding what was read to the address makes the next read wait for it.
.visible .entry chase(.param .u64 buffer, .param .u32 stride, .param .u32 reads, .param .u64 end)
{
    .reg .pred %more;
    .reg .u32 %value, %left, %stride32;
    .reg .u64 %address, %read, %stride64, %result;

    ld.param.u64 %address, [buffer];
    ld.param.u32 %stride32, [stride];
    ld.param.u32 %left, [reads];
    ld.param.u64 %result, [end];
    cvta.to.global.u64 %address, %address;
    cvta.to.global.u64 %result, %result;
    cvt.u64.u32 %stride64, %stride32;
NEXT:
    ld.global.cg.u32 %value, [%address];
    cvt.u64.u32 %read, %value;
    add.u64 %address, %address, %read;
    add.u64 %address, %address, %stride64;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra NEXT;
    st.global.u64 [%result], %address;
    ret;
}
"""


def chase(span: int, device: torch.device) -> Callable[[], None]:
    """A call of `READS` reads, spread evenly over `span` bytes, past the L1. It puts one kernel on torch's current stream.

    Raises RuntimeError where it cannot be assembled or loaded.
    """
    import torch

    from impls.contract import Launch, Scalar
    from impls.cuda.driver import Program
    from impls.host import arch_of

    stride = span // READS // LINE_BYTES * LINE_BYTES
    buffer = torch.zeros(READS * stride, dtype=torch.uint8, device=device)
    end = torch.zeros(1, dtype=torch.int64, device=device)
    launch = Launch(
        ptx=PTX,
        cubin=assembled(arch_of(device)),
        entry="chase",
        grid=(1, 1, 1),
        block=(1, 1, 1),
        shared_bytes=0,
        args=(buffer, Scalar("i32", stride), Scalar("i32", READS), end),
    )
    program = Program([launch], device)
    return lambda: program.launch(torch.cuda.current_stream(device).cuda_stream)


def assembled(arch: Arch) -> bytes:
    """The cubin, by Triton's ptxas: the driver's own compiler is not on every machine. Raises RuntimeError without it."""
    ptxas = triton_ptxas(blackwell=arch.compute_capability >= (10, 0))
    if ptxas is None:
        raise RuntimeError("proving the L2 cold takes the ptxas that comes with triton; install triton.")
    with tempfile.TemporaryDirectory(prefix="nvfp4bench-") as folder:
        source, cubin = Path(folder) / "chase.ptx", Path(folder) / "chase.cubin"
        source.write_text(PTX)
        ended = subprocess.run([ptxas, f"-arch={arch.name}", source, "-o", cubin], capture_output=True, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"ptxas does not assemble the reads that prove the L2 cold: {ended.stderr.strip()[:200]}")
        return cubin.read_bytes()
