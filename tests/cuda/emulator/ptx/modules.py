"""Modules of one kernel, for tests."""

from __future__ import annotations

from impls.cuda.emulator.ptx.parser import parse
from impls.cuda.emulator.ptx.syntax import Function, Instruction

HEAD = ".version 9.0\n.target sm_120a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<30>; .reg .f32 %f<30>; .reg .b64 %rd<9>;"


def text(body: str) -> str:
    """A module whose kernel `k` has the statements `body`, the first of them in line 6."""
    return f"{HEAD}.visible .entry k(.param .u64 data, .param .u32 n)\n{{ {REGISTERS}\n{body}\n}}\n"


def kernel(body: str) -> Function:
    return parse(text(body)).functions["k"]


def one(statement: str) -> Instruction:
    (instruction,) = kernel(statement).body
    return instruction
