"""What ptxas says, attributed to programs and sorted into a few kinds of refusal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from impls.isa.program import Module, Program

KINDS = {
    "syntax": r"Parsing error|syntax error",
    "unknown": r"Unknown modifier|Not a name of any known|Unknown symbol|unknown target|Undefined",
    "version": r"requires? (PTX ISA )?\.version|PTX ISA \.?version|PTX version",
    "target": r"not supported|cannot be compiled for|requires? .*(\.target|sm_|architecture)",
    "limit": r"uses too much|exceeds|[Tt]oo many|out of range",
    "operand": r"[Aa]rgument|[Oo]perand|vector|[Ii]mmediate|[Vv]alue|register|expected|Address",
    "combination": r"[Mm]odifier|[Tt]ype|combination|[Ii]llegal|not allowed|[Ss]hape|[Ll]ayout|[Rr]equire|[Mm]issing",
}
"""Kind of refusal, by the words ptxas uses; where several messages fit, the first kind in this order counts.

syntax       the parser stops                       limit        a resource or a range is exceeded
unknown      this release does not know a word      operand      operands do not fit the instruction
version      needs a newer PTX version              combination  known modifiers that do not go together
target       known, but not on this target
Two more kinds come from how ptxas ended: "crash" and "timeout". "other" is a message that fits none.
"""

_LINE = re.compile(r"^\S+ .*?, line (?P<line>\d+); (?P<level>error|fatal|warning|info)\s*: (?P<text>.*)$")
_BARE = re.compile(r"^\S+ (?P<level>error|fatal|warning|info)\s*: (?P<text>.*)$")
_ENTRY = re.compile(r"(?:Entry function|function|'p\d+'.*function|entry) '(?P<name>p\d+)'|'(?P<quoted>p\d+)'")
_SUMMARY = "Ptx assembly aborted due to errors"


@dataclass(frozen=True)
class Message:
    """One line of ptxas's output; `program` is None when it names none."""

    program: Program | None
    level: str
    text: str

    @property
    def is_error(self) -> bool:
        return self.level in ("error", "fatal")


def messages(output: str, module: Module) -> Iterator[Message]:
    """Every message in ptxas's output but the closing summary, entry names written as 'k'."""
    for line in output.splitlines():
        match = _LINE.match(line) or _BARE.match(line)
        if match is None or match["text"] == _SUMMARY:
            continue
        text = match["text"].strip()
        named = _ENTRY.search(text)
        name = named and (named["name"] or named["quoted"])
        if "line" in match.groupdict():
            program = module.program_at(int(match["line"]))
        else:
            program = module.program_called(name) if name else None
        yield Message(program, match["level"], text.replace(f"'{name}'", "'k'") if name else text)


def kind_of(text: str) -> str:
    """The kind of a refusal, see `KINDS`."""
    return next((kind for kind, words in KINDS.items() if re.search(words, text)), "other")
