"""Assembles many programs in few processes and says of each what it would have got alone.

A module of many entries is assembled; when it is refused, each message's line says whose it is, those programs are
refused and the rest is tried again, until a module passes. So every accepted program was part of a module that passed as
a whole, and every refused one was named by ptxas. Where ptxas crashes, hangs, or names nobody, the module is halved
until one program is left.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from impls.isa import sass
from impls.isa.diagnostics import kind_of, messages
from impls.isa.processes import Finished, Processes
from impls.isa.program import Module, Program, module
from impls.isa.result import Cell, Refusal
from impls.isa.toolchain import Assembler, Disassembler


def assemble(
    programs: Sequence[Program], target: str, assembler: Assembler, disassembler: Disassembler | None, processes: Processes
) -> dict[str, Cell]:
    """{program id: cell} of `programs` on `target`."""
    cells: dict[str, Cell] = {}
    left = list(programs)
    while left:
        with tempfile.TemporaryDirectory(prefix="nvfp4bench-isa-") as folder:
            source, cubin = Path(folder) / "programs.ptx", Path(folder) / "programs.cubin"
            made = module(left, assembler.ptx_version, target)
            source.write_text(made.text)
            ended = processes.run([assembler.path, f"-arch={target}", source, "-o", cubin], len(left))
            if ended.status == 0 and cubin.is_file():
                return {**cells, **_accepted(made, ended, cubin, target, assembler, disassembler, processes)}
        refused = _refused(made, ended) if ended.status is not None and ended.status > 0 else {}
        if not refused:
            return {**cells, **_halved(left, target, assembler, disassembler, processes, ended)}
        cells |= refused
        left = [program for program in left if program.id not in refused]
    return cells


def _accepted(
    made: Module,
    ended: Finished,
    cubin: Path,
    target: str,
    assembler: Assembler,
    disassembler: Disassembler | None,
    processes: Processes,
) -> dict[str, Cell]:
    warnings: dict[str, list[str]] = {}
    for message in messages(ended.errors + ended.output, made):
        if message.program and message.level == "warning" and message.text not in warnings.setdefault(message.program.id, []):
            warnings[message.program.id].append(message.text)
    code = _disassemble(cubin, len(made.programs), disassembler, processes) if disassembler else {}
    if disassembler and not code and len(made.programs) > 1:  # one program's code may be what the disassembler fails on
        half = len(made.programs) // 2
        parts = made.programs[:half], made.programs[half:]
        first, second = (assemble(part, target, assembler, disassembler, processes) for part in parts)
        return first | second
    return {
        program.id: Cell(opcodes=code.get(f"p{number}"), warnings=tuple(warnings.get(program.id, ())))
        for number, program in enumerate(made.programs)
    }


def _disassemble(cubin: Path, programs: int, disassembler: Disassembler, processes: Processes) -> dict[str, dict[str, int]]:
    """Opcodes of each entry; empty when the disassembler does not know this machine code."""
    ended = processes.run([disassembler.path, "--print-code", "--no-dataflow", cubin], programs)
    return sass.opcodes(ended.output) if ended.status == 0 else {}


def _refused(made: Module, ended: Finished) -> dict[str, Cell]:
    """The programs that ptxas named in an error, each with all it said of them."""
    texts: dict[str, list[str]] = {}
    for message in messages(ended.errors + ended.output, made):
        if message.program and message.is_error and message.text not in texts.setdefault(message.program.id, []):
            texts[message.program.id].append(message.text)
    return {name: Cell(error=Refusal(kind_of("; ".join(said)), "; ".join(said))) for name, said in texts.items() if said}


def _halved(
    programs: Sequence[Program],
    target: str,
    assembler: Assembler,
    disassembler: Disassembler | None,
    processes: Processes,
    ended: Finished,
) -> dict[str, Cell]:
    """Nobody was named: the two halves apart, or for a single program how ptxas ended."""
    if len(programs) == 1:
        return {programs[0].id: Cell(error=_how_it_ended(ended, processes))}
    half = len(programs) // 2
    first, second = (assemble(part, target, assembler, disassembler, processes) for part in (programs[:half], programs[half:]))
    return first | second


def _how_it_ended(ended: Finished, processes: Processes) -> Refusal:
    if ended.status is None:
        return Refusal("timeout", f"ptxas was ended after {processes.time_limit:.0f} s.")
    if ended.status < 0:
        return Refusal("crash", f"ptxas was ended by signal {-ended.status}.")
    said = (ended.errors + ended.output).strip()
    if ended.status == 0 or not said:
        return Refusal("crash", f"ptxas ended with status {ended.status}, without a cubin and without a message.")
    text = "; ".join(line.split(":", 1)[-1].strip() for line in said.splitlines() if "aborted due to errors" not in line)
    return Refusal(kind_of(text), text)
