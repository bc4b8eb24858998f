"""Assembles many programs in few processes and says of each what it would have got alone.

A module of many entries is assembled; when it is refused, each message's line says whose it is, those programs are
refused and the rest is tried again, until a module passes. So every accepted program was part of a module that passed as
a whole, and every refused one was named by ptxas. Where ptxas crashes, hangs, or names nobody, the module is halved
until one program is left.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
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
    return _Assembly(target, assembler, disassembler, processes).cells(programs)


@dataclass(frozen=True)
class _Assembly:
    """Assembling for one target with one pair of tools."""

    target: str
    assembler: Assembler
    disassembler: Disassembler | None
    processes: Processes

    def cells(self, programs: Sequence[Program]) -> dict[str, Cell]:
        cells: dict[str, Cell] = {}
        left = list(programs)
        while left:
            with tempfile.TemporaryDirectory(prefix="nvfp4bench-isa-") as folder:
                source, cubin = Path(folder) / "programs.ptx", Path(folder) / "programs.cubin"
                made = module(left, self.assembler.ptx_version, self.target)
                source.write_text(made.text)
                ended = self.processes.run([self.assembler.path, f"-arch={self.target}", source, "-o", cubin], len(left))
                if ended.status == 0 and cubin.is_file():
                    return cells | self._accepted(made, ended, cubin)
            refused = _refused(made, ended) if ended.status is not None and ended.status > 0 else {}
            if not refused and len(left) > 1:
                return cells | self._halves(left)
            cells |= refused or {left[0].id: Cell(error=_how_it_ended(ended, self.processes))}
            left = [program for program in left if program.id not in cells]
        return cells

    def _halves(self, programs: Sequence[Program]) -> dict[str, Cell]:
        half = len(programs) // 2
        return self.cells(programs[:half]) | self.cells(programs[half:])

    def _accepted(self, made: Module, ended: Finished, cubin: Path) -> dict[str, Cell]:
        """Cells of a module that passed, with the opcodes in `cubin`."""
        warnings: dict[str, list[str]] = {program.id: [] for program in made.programs}
        for message in messages(ended.errors + ended.output, made):
            if message.program and message.level == "warning" and message.text not in warnings[message.program.id]:
                warnings[message.program.id].append(message.text)
        code, complaint = self._disassemble(made, cubin)
        if complaint:
            if len(made.programs) > 1 and self._disassembler_knows_target():
                return self._halves(made.programs)  # one program's code may be all that it fails on
            for texts in warnings.values():
                texts.append(complaint)
        return {
            program.id: Cell(opcodes=code.get(f"p{number}"), warnings=tuple(warnings[program.id]))
            for number, program in enumerate(made.programs)
        }

    def _disassemble(self, made: Module, cubin: Path) -> tuple[dict[str, dict[str, int]], str | None]:
        """Opcodes of each entry, and what the disassembler complained of when it failed (there are no opcodes then)."""
        if self.disassembler is None:
            return {}, None
        command: list[str | Path] = [self.disassembler.path, "--print-code", "--no-dataflow", cubin]
        ended = self.processes.run(command, len(made.programs))
        if ended.status == 0:
            return sass.opcodes(ended.output), None
        said = next((line for line in ended.errors.splitlines() if line.strip()), f"no answer, status {ended.status}")
        return {}, f"the assembled code cannot be disassembled: {' '.join(said.split())}"

    def _disassembler_knows_target(self) -> bool:
        """Whether it reads an empty program's code."""
        empty = Program(id="", family="", ptx="", native="")
        return self.cells([empty])[""].opcodes is not None


def _refused(made: Module, ended: Finished) -> dict[str, Cell]:
    """The programs that ptxas named in an error, each with all it said of them."""
    texts: dict[str, list[str]] = {}
    for message in messages(ended.errors + ended.output, made):
        if message.program and message.is_error and message.text not in texts.setdefault(message.program.id, []):
            texts[message.program.id].append(message.text)
    return {name: Cell(error=Refusal(kind_of("; ".join(said)), "; ".join(said))) for name, said in texts.items() if said}


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
