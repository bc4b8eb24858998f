"""What a bound counts of PTX is in the machine code that the assembler makes of it. Needs NVRTC and nvdisasm, no GPU.

Both are counted as written, each instruction once. The assembler unrolls and repeats, which only adds; where it drops, joins or
fuses more than `Kind` allows for, there is less of a pipe's work in the machine code than the PTX surely has.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from impls.arch import find
from impls.contract import Problem
from impls.cuda.compiler import Kernel
from impls.cuda.emulator.counting.classes import classify
from impls.isa.processes import Processes
from impls.isa.sass import all_opcodes
from impls.isa.toolchain import disassembler
from impls.registry import implementation
from tests.cuda.needs import needs_nvrtc

INSTRUCTION = re.compile(r"(?:^|[{;])\s*(?:@!?%\w+\s+)?([a-z][a-z0-9]*(?:\.[\w:]+)*)(?=\s|;)")
PIPES = {
    **dict.fromkeys(("FADD", "FMUL", "FFMA"), ("fma", 1)),
    **dict.fromkeys(("FADD2", "FMUL2", "FFMA2"), ("fma", 2)),
    **dict.fromkeys(("FMNMX", "FMNMX3"), ("alu", 1)),
    **dict.fromkeys(("HADD2", "HMUL2", "HFMA2"), ("fp16", 1)),
    **dict.fromkeys(("DADD", "DMUL", "DFMA"), ("fp64", 1)),
    "MUFU": ("xu", 1),
    **dict.fromkeys(("HMMA", "QMMA", "OMMA", "HGMMA"), ("tensor", 1)),
    **dict.fromkeys(("LD", "LDG", "LDS", "LDSM", "LDGSTS", "ST", "STG", "STS", "STSM", "ATOMS", "SHFL"), ("lsu", 1)),
}
"""{opcode of the machine code: (pipe, results a lane)}."""


def surely(ptx: str) -> Counter[str]:
    found: Counter[str] = Counter()
    body = re.sub(r"//.*", "", ptx[ptx.index("\n{") :])
    for line in body.splitlines():
        for name in INSTRUCTION.findall(line):
            kind = classify(name)
            found[kind.pipe] += kind.work
            found["every"] += kind.issues
    return found


def in_machine_code(kernel: Kernel, folder: Path) -> Counter[str]:
    tool = disassembler(Processes())
    if tool is None:
        pytest.skip("there is no nvdisasm here")
    file = folder / "kernel.cubin"
    file.write_bytes(kernel.cubin)
    text = Processes().run([tool.path, "--print-code", file]).output
    found: Counter[str] = Counter()
    for opcode, count in all_opcodes(text, kernel.entry).items():
        pipe, results = PIPES.get(opcode.split(".")[0], ("other", 1))
        found[pipe] += count * results
        found["every"] += count
    return found


@needs_nvrtc
@pytest.mark.parametrize(("target", "q_len"), [("sm_80", 1), ("sm_90a", 2048), ("sm_120a", 1)])
def test_machine_code_has_all_the_work_that_a_bound_counts(target: str, q_len: int, tmp_path: Path) -> None:
    plan = implementation("a4q").plan(Problem(1, 8, 8, q_len, 4096, 128, 128), find(target))
    for kernel in plan.kernels():
        wanted, found = surely(kernel.ptx), in_machine_code(kernel, tmp_path)
        assert wanted["tensor"] + wanted["fma"] > 0
        short = {pipe: (work, found[pipe]) for pipe, work in wanted.items() if pipe != "issue" and found[pipe] < work}
        assert not short, kernel.entry
