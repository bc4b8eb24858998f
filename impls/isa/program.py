"""One minimal PTX program: an instruction, its operands loaded before it and stored after it.

The instruction is written with operand tokens, which name a register type and a role:

    $in(b32)      a register, loaded before the instruction           $in(b32*4)   a vector {r, r, r, r}
    $out(b32)     a register, stored after the instruction            $out(b32*4)
    $io(b32)      loaded before and stored after                      $io(b32*4)
    $true         a predicate that holds

Types are b8 (only out), b16, b32, b64, b128 and pred: PTX lets an untyped register stand for any type of its size.
Loads and stores are volatile and generic, so that no operand is a constant, nothing is dead, and the scaffold's own
machine code (`LD.E...STRONG.SYS`, `ST.E...STRONG.SYS`) cannot be mistaken for what the instruction became.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_OPERAND = re.compile(r"\$(?P<role>in|out|io)\((?P<type>b8|b16|b32|b64|b128|pred)(?:\*(?P<count>\d+))?\)")
_SLOT_BYTES = 16
"""Distance between two operands in the buffer: the widest, b128, fits."""


@dataclass(frozen=True)
class Program:
    """One cell's row: an instruction form that is either accepted or refused by an assembler."""

    id: str
    """Family and axis values, e.g. "mma.sync/mxf4nvf4/4X/ue4m3/row.col": stable, the key of results."""
    family: str
    ptx: str
    """Statements with operand tokens, each ended by a semicolon."""
    native: str
    """Regular expression that a SASS opcode matches from its start when hardware executes this instruction as such."""
    directives: str = ""
    """Directives of the entry, e.g. ".reqntid 128 .maxnreg 64"."""


class _Registers:
    """Names the registers of one program and writes the lines that load and store them."""

    def __init__(self) -> None:
        self.declarations: list[str] = []
        self.loads: list[str] = []
        self.stores: list[str] = []
        self._slots = 0

    def operand(self, match: re.Match[str]) -> str:
        role, kind, count = match["role"], match["type"], match["count"]
        names = [self._register(role, kind) for _ in range(int(count or 1))]
        return f"{{{', '.join(names)}}}" if count else names[0]

    def _register(self, role: str, kind: str) -> str:
        name = f"%{kind}_{self._slots}"
        at = f"[%io+{_SLOT_BYTES * self._slots}]"
        self._slots += 1
        self.declarations.append(f".reg .{kind} {name};")
        if role != "out":
            self.loads.append(_load(name, kind, at, self.declarations))
        if role != "in":
            self.stores.append(_store(name, kind, at, self.declarations))
        return name


def _load(name: str, kind: str, at: str, declarations: list[str]) -> str:
    if kind == "pred":
        declarations.append(f".reg .b32 {name}_w;")
        return f"ld.volatile.b32 {name}_w, {at}; setp.ne.b32 {name}, {name}_w, 0;"
    if kind == "b128":
        declarations.append(f".reg .b64 {name}_l, {name}_h;")
        return f"ld.volatile.v2.b64 {{{name}_l, {name}_h}}, {at}; mov.b128 {name}, {{{name}_l, {name}_h}};"
    if kind == "b8":
        raise ValueError("a b8 register cannot be loaded; the narrow conversions only write it.")
    return f"ld.volatile.{kind} {name}, {at};"


def _store(name: str, kind: str, at: str, declarations: list[str]) -> str:
    if kind == "pred":
        declarations.append(f".reg .b32 {name}_s;")
        return f"selp.b32 {name}_s, 1, 0, {name}; st.volatile.b32 {at}, {name}_s;"
    if kind == "b128":
        declarations.append(f".reg .b64 {name}_u, {name}_v;")
        return f"mov.b128 {{{name}_u, {name}_v}}, {name}; st.volatile.v2.b64 {at}, {{{name}_u, {name}_v}};"
    if kind == "b8":  # a .b8 register goes nowhere but into a wider one
        declarations.append(f".reg .b16 {name}_s;")
        return f"mov.b16 {name}_s, {{{name}, {name}}}; st.volatile.b16 {at}, {name}_s;"
    return f"st.volatile.{kind} {at}, {name};"


def entry(program: Program, name: str) -> str:
    """`program` as an entry function called `name`, one parameter: the buffer of its operands."""
    registers = _Registers()
    statements = _OPERAND.sub(registers.operand, program.ptx)
    if "$true" in statements:
        registers.declarations.append(".reg .pred %true;")
        registers.loads.append("setp.eq.u32 %true, 1, 1;")
        statements = statements.replace("$true", "%true")
    if "$" in statements:
        raise ValueError(f"program {program.id} has an operand token that is not known: {statements}")
    head = f".visible .entry {name}(.param .b64 buffer)"
    return "\n".join(
        [
            f"{head} {program.directives}".rstrip(),
            "{",
            ".reg .b64 %io;",
            *registers.declarations,
            "ld.param.b64 %io, [buffer];",
            *registers.loads,
            *statements.splitlines(),
            *registers.stores,
            "ret;",
            "}",
        ]
    )


def digest(programs: Iterable[Program]) -> str:
    """Hash over the names and the text of `programs`: changes when one of them does."""
    parts = [f"{program.id}\n{entry(program, 'k')}" for program in programs]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Module:
    """PTX of several programs, and which lines are whose."""

    text: str
    programs: tuple[Program, ...]
    first_lines: tuple[int, ...]
    """Line, from 1, on which each program's entry starts."""

    def program_at(self, line: int) -> Program | None:
        """The program that holds `line`; None for the module's header."""
        owner = None
        for program, first in zip(self.programs, self.first_lines, strict=True):
            if first > line:
                break
            owner = program
        return owner

    def program_called(self, name: str) -> Program | None:
        """The program whose entry function is `name`."""
        number = name.removeprefix("p")
        return self.programs[int(number)] if number.isdigit() and int(number) < len(self.programs) else None


def module(programs: Sequence[Program], version: str, target: str) -> Module:
    """`programs` as one PTX module of ISA `version` for `target`; the entries are called p0, p1, ..."""
    lines = [f".version {version}", f".target {target}", ".address_size 64"]
    first_lines = []
    for number, program in enumerate(programs):
        first_lines.append(len(lines) + 1)
        lines += entry(program, f"p{number}").splitlines()
    return Module("\n".join(lines) + "\n", tuple(programs), tuple(first_lines))
