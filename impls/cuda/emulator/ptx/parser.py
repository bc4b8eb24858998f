"""Reads a PTX module.

    module = parse(kernel.ptx)
    attend = module.functions["attend"]
    attend.body[attend.labels["$L__BB0_2"]].operands

Inline assembly opens scopes with names of their own: in the result all names of a function are distinct, those of inner scopes
renamed where need be (`p`, `p$1`). Debug sections are skipped; `.pragma` and `.loc`'s column say nothing that matters here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from impls.cuda.emulator.ptx import declarations
from impls.cuda.emulator.ptx.errors import BadPTX, quoted, unknown
from impls.cuda.emulator.ptx.scopes import NAME, Scope
from impls.cuda.emulator.ptx.syntax import Function, Guard, Instruction, Label, Module, Register, Source, Symbol, Variable

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_BRACED = r"[^;{}]*+(?:\{[^;{}]*+\}[^;{}]*+)*+"
_STATEMENT = re.compile(
    rf"""\s*+(?:
        (?P<label>{NAME})\s*:(?!:)
      | (?:@\s*(?P<negated>!?)\s*(?P<guard>{NAME})\s+)?
        (?P<opcode>[a-z]\w*+)(?P<modifiers>(?:\.\w++(?:::\w++)*+)*+)(?![\w.:])(?P<operands>{_BRACED});
      | \.loc\s+(?P<file>\d{{1,9}})\s+(?P<line>\d{{1,9}})\s+\d+
        (?:\s*,\s*function_name\s+{NAME}(?:\s*\+\s*\d+)?\s*,\s*inlined_at\s+\d+\s+\d+\s+\d+)?
      | \.(?P<directive>[a-z]\w*+)(?P<rest>{_BRACED});
      | (?P<open>\{{)
      | (?P<close>\}})
    )""",
    re.VERBOSE | re.ASCII,
)
_TOP = re.compile(
    rf"""\s*+(?:
        \.version\s+(?P<major>\d{{1,4}})\.(?P<minor>\d{{1,4}})\b
      | \.target\s+(?P<target>\w+)(?:\s*,\s*\w+)*
      | \.address_size\s+(?P<address_size>\d{{1,4}})\b
      | (?P<skipped>\.file\s+\d+\s*"[^"\n]*"(?:\s*,\s*\d+\s*,\s*\d+)?)
      | (?P<pragma>\.pragma\s*"[^"\n]*"\s*;)
      | (?P<section>\.section\s+[.\w]+\s*\{{[^{{}}]*\}})
      | (?P<linkage>(?:\.(?:visible|extern|weak|common)\s+)*+)(?:
          \.(?P<kind>entry|func)\b\s*(?P<returned>\([^()]*\))?\s*(?P<name>{NAME})\s*(?P<parameters>\([^()]*\))?
          (?P<directives>[^;{{}}]*+)(?P<body>[;{{])
        | (?P<variable>\.\w+{_BRACED});
        )
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
_FILE = re.compile(r'\.file\s+(\d{1,9})\s*"([^"\n]*)"', re.ASCII)
_DIRECTIVE = re.compile(r"\s*\.(\w+)((?:\s*\d{1,9}(?:\s*,\s*\d{1,9})*)?)\s*", re.ASCII)
_KNOWN_DIRECTIVES = frozenset(
    (
        *("maxntid", "reqntid", "minnctapersm", "maxnctapersm", "maxnreg", "noreturn"),
        *("reqnctapercluster", "maxclusterrank", "explicitcluster", "blocksareclusters"),
    )
)
_LIST = re.compile(rf"\s*{NAME}(?:\s*,\s*{NAME})*\s*", re.ASCII)


def parse(text: str) -> Module:
    """Raises BadPTX for text that is no PTX, Unknown for PTX that the emulator has no reading of."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = _COMMENT.sub(_blank, text)
        self.files = {int(number): name for number, name in _FILE.findall(self.text)}
        self._counted, self._line = 0, 1

    def line(self, position: int) -> int:
        """Positions must not fall."""
        self._line += self.text.count("\n", self._counted, position)
        self._counted = position
        return self._line

    def module(self) -> Module:
        version: tuple[int, int] | None = None
        target, address_size = "", 64
        functions: dict[str, Function] = {}
        variables: dict[str, Variable] = {}
        declared: set[str] = set()
        outermost = Scope(None)
        at = 0
        while True:
            found = _TOP.match(self.text, at)
            line = self.line(_visible(self.text, at))
            if found is None:
                raise BadPTX(line, f"{_shown(self.text, at)} is not understood.")
            at = found.end()
            if found["end"] is not None:
                break
            if found["major"]:
                version = int(found["major"]), int(found["minor"])
            elif found["target"]:
                target = found["target"]
            elif found["address_size"]:
                address_size = int(found["address_size"])
            elif found["kind"]:
                name = found["name"]
                if name not in functions and name not in declared:
                    outermost.declare(name, Symbol(name), line)
                declared.add(name)
                if found["body"] == "{":
                    if name in functions:
                        raise BadPTX(line, f"{name} is defined twice.")
                    reader = _Body(self, outermost, frozenset(variables) | declared)
                    functions[name], at = reader.function(found, line)
            elif found["variable"]:
                for variable in declarations.variables(found["variable"], line, external="extern" in found["linkage"]):
                    outermost.declare(variable.name, Symbol(variable.name), line)
                    variables[variable.name] = variable
        if version is None or not target:
            raise BadPTX(1, f"a module states its {'target' if version else 'version'}, and this one does not.")
        return Module(version, target, address_size, functions, frozenset(declared - set(functions)), variables)


@dataclass(frozen=True, slots=True)
class _Statement:
    """An instruction whose operands wait until all labels are known."""

    scope: Scope
    found: re.Match[str]
    line: int
    source: Source | None


class _Body:
    """Reads one function."""

    def __init__(self, parser: _Parser, around: Scope, taken: frozenset[str]) -> None:
        self._parser = parser
        self._scope = Scope(around)
        self._taken = set(taken)
        self._copies: Counter[str] = Counter()
        self._registers: dict[str, str] = {}
        self._variables: dict[str, Variable] = {}
        self._labels: dict[str, int] = {}
        self._targets: dict[str, tuple[Scope, str, int]] = {}
        self._statements: list[_Statement] = []

    def function(self, head: re.Match[str], line: int) -> tuple[Function, int]:
        """The function that `head` opens, and where it ends."""
        parameters, results = (self._parameters(head[group], line) for group in ("parameters", "returned"))
        directives = _directives(head["directives"], line)
        end = self._statements_from(head.end())
        return Function(
            head["name"],
            head["kind"] == "entry",
            parameters,
            results,
            directives,
            self._registers,
            self._variables,
            tuple(map(_instruction, self._statements)),
            self._labels,
            {name: tuple(str(label) for label in self._list(*where)) for name, where in self._targets.items()},
        ), end

    def _parameters(self, text: str | None, line: int) -> tuple[Variable, ...]:
        out: list[Variable] = []
        for part in (text or "()")[1:-1].split(","):
            if not part.strip():
                continue
            if part.lstrip().startswith(".reg"):
                raise unknown(line, "functions with parameters in registers are not known.")
            for variable in declarations.variables(part, line):
                self._scope.declare(variable.name, Symbol(variable.name), line)
                self._taken.add(variable.name)
                out.append(variable)
        return tuple(out)

    def _statements_from(self, at: int) -> int:
        text, parser = self._parser.text, self._parser
        around: list[Scope] = []
        source: Source | None = None
        while True:
            found = _STATEMENT.match(text, at)
            start = _visible(text, at)
            line = parser.line(start)
            if found is None:
                what = f"{_shown(text, at)} is not understood." if start < len(text) else "the text ends within a function."
                raise BadPTX(line, what)
            at = found.end()
            match found.lastgroup:
                case "operands":
                    self._statements.append(_Statement(self._scope, found, line, source))
                case "line":
                    source = self._source(found)
                case "label":
                    name = found["label"]
                    self._labels[self._declared(name, Label, line)] = len(self._statements)
                case "rest":
                    self._directive(found, line)
                case "open":
                    around.append(self._scope)
                    self._scope = Scope(self._scope)
                case _:
                    if not around:
                        return at
                    self._scope = around.pop()

    def _source(self, found: re.Match[str]) -> Source | None:
        """None for line 0: code that compilers ascribe to no line."""
        line = int(found["line"])
        name = self._parser.files.get(int(found["file"]))
        return Source(name, line) if line and name is not None else None

    def _directive(self, found: re.Match[str], line: int) -> None:
        name, rest = found["directive"], found["rest"]
        if name == "reg":
            for register, kind in declarations.registers(rest, line):
                self._registers[self._declared(register, Register, line)] = kind
        elif name in declarations.SPACES:
            for variable in declarations.variables(f".{name}{rest}", line):
                unique = self._declared(variable.name, Symbol, line)
                self._variables[unique] = replace(variable, name=unique)
        elif name == "branchtargets":
            # it follows a label, which names the list and no place
            last = next(reversed(self._labels), None)
            if last is None or self._labels[last] != len(self._statements) or not _LIST.fullmatch(rest):
                raise BadPTX(line, "a .branchtargets follows a label and lists labels.")
            del self._labels[last]
            self._targets[last] = (self._scope, rest, line)
        elif name != "pragma":
            raise unknown(line, f"the directive .{name} in a function is not known.")

    def _declared(self, name: str, kind: type[Register] | type[Symbol] | type[Label], line: int) -> str:
        """Declares `name` here; returns one that nothing else in the function has."""
        unique = name
        while unique in self._taken:
            self._copies[name] += 1
            unique = f"{name}${self._copies[name]}"
        self._scope.declare(name, kind(unique), line)
        self._taken.add(unique)
        return unique

    def _list(self, scope: Scope, text: str, line: int) -> tuple[Label, ...]:
        labels = scope.operands(text, line)
        if not all(isinstance(label, Label) for label in labels):
            raise BadPTX(line, "a .branchtargets follows a label and lists labels.")
        return tuple(label for label in labels if isinstance(label, Label))


def _instruction(statement: _Statement) -> Instruction:
    scope, found, line = statement.scope, statement.found, statement.line
    opcode, modifiers, operands, guard = found.group("opcode", "modifiers", "operands", "guard")
    if "(" in operands and opcode != "call":
        raise unknown(line, f"constant expressions, as in {quoted(operands)}, are not known.")
    return Instruction(
        opcode,
        tuple(modifiers[1:].split(".")) if modifiers else (),
        scope.operands(operands, line) if operands.strip() else (),
        Guard(scope.register(guard, line), bool(found["negated"])) if guard else None,
        line,
        " ".join(found[0].split()),
        statement.source,
    )


def _directives(text: str, line: int) -> Mapping[str, tuple[int, ...]]:
    out: dict[str, tuple[int, ...]] = {}
    at, text = 0, text.strip()
    while at < len(text):
        found = _DIRECTIVE.match(text, at)
        if found is None:
            raise BadPTX(line, f"{_shown(text, at)} between parameters and body is not understood.")
        if found[1] not in _KNOWN_DIRECTIVES:
            raise unknown(line, f"the directive .{found[1]} of a function is not known.")
        out[found[1]] = tuple(int(size) for size in found[2].split(",") if size.strip())
        at = found.end()
    return out


def _blank(comment: re.Match[str]) -> str:
    """A space with the lines that the comment spans. Strings stay; so does a comment without an end, to be refused."""
    stays = comment[0].startswith('"') or (comment[0].startswith("/*") and not comment[0].endswith("*/"))
    return comment[0] if stays else " " + "\n" * comment[0].count("\n")


_SPACE = re.compile(r"\s*")


def _visible(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None  # it matches nothing, if need be
    return match.end()


def _shown(text: str, at: int) -> str:
    """The rest of the line."""
    rest = text[_visible(text, at) :].split("\n", 1)[0]
    return quoted(rest) if rest else "the end of the text"
