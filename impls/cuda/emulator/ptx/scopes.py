"""Scopes of a function's body: which thing a name stands for, and operands read with that knowledge."""

from __future__ import annotations

import re

from impls.cuda.emulator.ptx.errors import BadPTX, quoted, unknown
from impls.cuda.emulator.ptx.literals import number
from impls.cuda.emulator.ptx.syntax import (
    Address,
    Arguments,
    Immediate,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

NAME = r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)"
_ONE = re.compile(r"\s*(\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)|[^,{}\[\]()]+?)\s*(,|\Z)")
_BRACKETS = re.compile(r"[\[{(]")
_NAME = re.compile(NAME, re.ASCII)
_OFFSET = re.compile(rf"({NAME})\s*\+\s*(-?\w+)", re.ASCII)
_SPECIAL = re.compile(
    r"%(?:(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyzw]"
    r"|laneid|warpid|nwarpid|smid|nsmid|gridid|is_explicit_cluster|cluster_ctarank|cluster_nctarank"
    r"|lanemask_(?:eq|le|lt|ge|gt)|clock|clock_hi|clock64|pm\d+(?:_64)?|envreg\d+|globaltimer(?:_lo|_hi)?"
    r"|reserved_smem_offset_\w+|total_smem_size|aggr_smem_size|dynamic_smem_size|current_graph_exec)",
    re.ASCII,
)
_WARP_SIZE = Immediate(32)
_SINK = Sink()


class Scope:
    """Names that `{ ... }` declares, before those around it."""

    def __init__(self, around: Scope | None) -> None:
        self._around = around
        self._names: dict[str, Register | Symbol | Label] = {}
        self._read: dict[str, Operand] = {}

    def declare(self, name: str, thing: Register | Symbol | Label, line: int) -> None:
        if name in self._names:
            raise BadPTX(line, f"{name} is declared twice in one scope.")
        self._names[name] = thing

    def operands(self, text: str, line: int) -> tuple[Operand, ...]:
        """The operands of an instruction, once everything has been declared."""
        known = self._read
        parts = text.split(",") if not _BRACKETS.search(text) else _split(text, line)
        out = []
        for part in parts:
            operand = known.get(part)
            if operand is None:
                operand = known[part] = self._operand(part.strip(), line)
            out.append(operand)
        return tuple(out)

    def register(self, name: str, line: int) -> Register:
        found = self._find(name)
        if not isinstance(found, Register):
            raise BadPTX(line, f"{quoted(name)} is not a register.")
        return found

    def _find(self, name: str) -> Register | Symbol | Label | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope._names.get(name)
            if found is not None:
                return found
            scope = scope._around
        return None

    def _operand(self, text: str, line: int) -> Operand:
        found = self._find(text)
        if found is not None:
            return found
        literal = number(text)
        if literal is not None:
            return literal
        match text[:1]:
            case "{":
                return Vector(self._list(text, line))
            case "(":
                return Arguments(self._list(text, line))
            case "[":
                return self._address(text[1:-1].strip(), line)
            case "!":
                return Negated(self.register(text[1:].strip(), line))
        if text == "_":
            return _SINK
        if text == "WARP_SZ":
            return _WARP_SIZE
        if _SPECIAL.fullmatch(text):
            return Special(text)
        if "|" in text:
            first, _, second = text.partition("|")
            return Pair(self._result(first.strip(), line), self._result(second.strip(), line))
        base, offset = self._sum(text, line)
        if isinstance(base, Symbol):
            return Symbol(base.name, offset)
        raise BadPTX(line, f"the operand {quoted(text)} is not understood.")

    def _list(self, text: str, line: int) -> tuple[Operand, ...]:
        inner = text[1:-1].strip()
        return self.operands(inner, line) if inner else ()

    def _result(self, name: str, line: int) -> Register | Sink:
        return _SINK if name == "_" else self.register(name, line)

    def _address(self, text: str, line: int) -> Address:
        if "," in text:
            raise unknown(line, f"addresses with coordinates, as in {quoted(text)}, are not known.")
        literal = number(text)
        if literal is not None and literal.kind == "int":
            return Address(None, literal.value)
        found = self._find(text)
        base, offset = (found, 0) if found is not None else self._sum(text, line)
        if isinstance(base, (Register, Symbol)):
            return Address(base, offset)
        raise BadPTX(line, f"the address {quoted(text)} is not understood.")

    def _sum(self, text: str, line: int) -> tuple[Register | Symbol | Label | None, int]:
        """`name+offset`; raises BadPTX for a name that nothing declares."""
        match = _OFFSET.fullmatch(text)
        name = match[1] if match else text
        base = self._find(name)
        if base is None and _NAME.fullmatch(name):
            raise BadPTX(line, f"{name} is not declared.")
        if match is None:
            return None, 0
        offset = number(match[2])
        return (base, offset.value) if offset is not None and offset.kind == "int" else (None, 0)


def _split(text: str, line: int) -> list[str]:
    """At the commas outside brackets."""
    parts, at = [], 0
    while match := _ONE.match(text, at):
        parts.append(match[1])
        at = match.end()
        if not match[2]:
            return parts
    raise BadPTX(line, f"the operands {quoted(text)} are not understood.")
