"""Registers, variables and parameters, read from the directives that declare them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import cast

from impls.cuda.emulator.ptx.errors import BadPTX, quoted, unknown
from impls.cuda.emulator.ptx.literals import number, stored
from impls.cuda.emulator.ptx.scopes import NAME
from impls.cuda.emulator.ptx.syntax import TYPE_BYTES, Immediate, Space, Variable

SPACES = ("global", "const", "shared", "local", "param")
_MOST = 1 << 20
"""Registers of one declaration, and elements with initial values: more is a slip of the pen, and would exhaust the host."""
_REGISTERS = re.compile(
    rf"\s*\.(?P<type>\w+(?:\s+\.\w+)*)\s+(?P<names>{NAME}(?:\s*<\d{{1,9}}>)?(?:\s*,\s*{NAME}(?:\s*<\d{{1,9}}>)?)*)\s*", re.ASCII
)
_REGISTER = re.compile(rf"(?P<name>{NAME})(?:\s*<(?P<count>\d{{1,9}})>)?", re.ASCII)
_PROPERTIES = re.compile(r"(?:\s*\.\w+(?:\s+\d{1,9}(?![\w$]))?)*+", re.ASCII)
_PROPERTY = re.compile(r"\.(\w+)(?:\s+(\d+))?", re.ASCII)
_VARIABLE = re.compile(
    rf"\s*(?P<name>{NAME})\s*(?P<sizes>(?:\[\s*\w*\s*\]\s*)*)(?:=\s*(?P<initial>\{{[^{{}}]*\}}|[^,{{}}]+?)\s*)?(?P<more>,|\Z)",
    re.ASCII,
)


def registers(text: str, line: int) -> Iterator[tuple[str, str]]:
    """Name and type of each that `.reg TEXT` declares."""
    declared = _REGISTERS.fullmatch(text)
    if declared is None:
        raise BadPTX(line, f"the registers {quoted(text)} are not understood.")
    kind = declared["type"]
    if kind != "pred" and kind not in TYPE_BYTES:
        raise unknown(line, f"registers of type {quoted(kind)} are not known.")
    for each in _REGISTER.finditer(declared["names"]):
        if each["count"] is None:
            yield each["name"], kind
        else:
            for index in range(_at_most(int(each["count"]), line)):
                yield f"{each['name']}{index}", kind


def variables(text: str, line: int, *, external: bool = False) -> Iterator[Variable]:
    """What `TEXT`, e.g. ".shared .align 16 .b8 tile[1024]", declares."""
    match = _PROPERTIES.match(text)
    assert match is not None  # it matches nothing, if need be
    space, kind, alignment, lanes = _properties(match[0], line)
    at, more = match.end(), True
    while more:
        one = _VARIABLE.match(text, at)
        if one is None:
            raise BadPTX(line, f"the declaration {quoted(text)} is not understood.")
        at, more = one.end(), bool(one["more"])
        count = _count(one["sizes"], line)
        if count is not None:
            count *= lanes
        initial = None
        if one["initial"] is not None:
            initial = _initial(one["initial"], kind, count, line)
            count = count or len(initial) // TYPE_BYTES[kind]
        yield Variable(one["name"], space, kind, alignment or lanes * TYPE_BYTES[kind], count, initial, external)


def _properties(text: str, line: int) -> tuple[Space, str, int, int]:
    """Space, type, alignment (0: not said) and lanes of a vector."""
    space, kind, alignment, lanes = "", "", 0, 1
    pointer = False
    for name, size in _PROPERTY.findall(text):
        if pointer and (name in SPACES or name == "align"):
            continue  # what follows .ptr describes the memory that it points at
        if name in SPACES:
            space = name
        elif name == "align" and size:
            alignment = _at_most(int(size), line)
        elif name in TYPE_BYTES:
            kind = name
        elif name in ("v2", "v4", "v8"):
            lanes = int(name[1:])
        elif name == "ptr":
            pointer = True
        else:
            raise unknown(line, f".{name} in a declaration is not known.")
    if not space or not kind:
        raise BadPTX(line, f"a declaration needs a state space and a type; this one has {quoted(text)}.")
    return cast(Space, space), kind, alignment, lanes


def _count(sizes: str, line: int) -> int | None:
    """Elements that "[2][3]" has; None for "[]"."""
    lengths = [part.strip(" \t\r\n]") for part in sizes.split("[")[1:]]
    if lengths == [""]:
        return None
    out = []
    for length in lengths:
        literal = number(length)
        if literal is None or literal.kind != "int" or literal.value < 0:
            raise BadPTX(line, f"{quoted(sizes)} is no array size.")
        out.append(literal.value)
    return math.prod(out)


def _initial(text: str, kind: str, count: int | None, line: int) -> bytes:
    listed = text.strip("{}").split(",") if text.startswith("{") else [text]
    out = []
    for part in listed:
        literal = number(part.strip())
        if literal is None:
            raise unknown(line, f"{quoted(part)} as an initial value is not known.")
        out.append(_element(literal, kind, line))
    given = len(out)
    if count is not None and given > count:
        raise BadPTX(line, f"{given} initial values are given to {count} elements.")
    zeros = _at_most(given if count is None else count, line) - given
    return b"".join(out) + bytes(zeros * TYPE_BYTES[kind])


def _element(literal: Immediate, kind: str, line: int) -> bytes:
    found = stored(literal, kind)
    if found is None:
        raise BadPTX(line, f"{literal} cannot be the initial value of a .{kind}.")
    return found


def _at_most(count: int, line: int) -> int:
    if count > _MOST:
        raise BadPTX(line, f"{count} is more than the {_MOST} that a declaration may have here.")
    return count
