"""Machine code of a program: which opcodes it became, without those of the scaffold around it.

What an accepted program became is one of three:

    native    one of its opcodes matches its family's `native` pattern: the opcode of the unit that executes this operation
              on this operand type (QMMA for an fp8 MMA, OMMA for an NVFP4 one, UTCOMMA for the tcgen05 one)
    emulated  none does: the assembler built it from other instructions (fp8 `mma.sync` on sm_90a becomes F2FP conversions
              and HMMA on f16)
    nothing   no instruction is left: the hardware keeps this order anyway, or the assembler tracks it

The rule says nothing of speed, and nothing of a GPU that executes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

Lowering = Literal["native", "emulated", "nothing"]
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_FUNCTION = re.compile(r"^\.text\.(\S+):$")
_LABEL = re.compile(r"^(\.L_\w+):$")
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P[T\d]\w*\s+)?(?P<opcode>[A-Z][\w.]*)(?P<operands>[^;]*);"
)

SCAFFOLD = re.compile(
    r"(LD|ST)\.E(\.\w+)*\.STRONG\.SYS "  # volatile loads and stores of the operands
    r"|(LDC|LDCU|ULDC)(\.64)? "  # the parameter, the memory descriptor
    r"|(MOV|MOV\.64|UMOV|UMOV\.64|IMAD\.MOV(\.U32)?|R2UR(\.\w+)*) "  # operands brought to the registers an instruction wants
    r"|CS2R(\.\w+)? \w+, SRZ"  # zero
    r"|(HFMA2|IMAD|UIMAD)(\.\w+)* \w+, -?U?RZ, U?RZ, "  # a move or a constant, as 0 * 0 + x
    r"|UIADD3(\.X)? "  # addresses of the operands, on targets whose LD takes no uniform base with an offset
    r"|NOP|EXIT"
)
"""Instructions that only carry operands to the one under test and results from it; not counted."""


def opcodes(disassembly: str) -> dict[str, dict[str, int]]:
    """{function: {opcode: how often}} of `nvdisasm --print-code` output, without the scaffold."""
    found: dict[str, Counter[str]] = {}
    for function, opcode, operands in instructions(disassembly):
        counts = found.setdefault(function, Counter())
        if opcode and not SCAFFOLD.match(opcode + operands):
            counts[opcode] += 1
    return {name: dict(counts) for name, counts in found.items()}


def all_opcodes(disassembly: str, function: str) -> dict[str, int]:
    """{opcode: how often} of one function, in the order of the alphabet. What pads it to a whole line is left out."""
    counts = Counter(opcode for name, opcode, _ in instructions(disassembly) if name == function)
    return {opcode: counts[opcode] for opcode in sorted(counts) if opcode not in ("", "NOP")}


def instructions(disassembly: str) -> Iterator[tuple[str, str, str]]:
    """(function, opcode, operands), in order; each function begins with an empty opcode.

    The branch to itself with which the assembler ends every function is left out.
    """
    function = label = ""
    for line in disassembly.splitlines():
        begins, named = _FUNCTION.match(line), _LABEL.match(line)
        if begins:
            function = begins[1]
            yield function, "", ""
        if named:
            label = named[1]
        instruction = _INSTRUCTION.match(line)
        if instruction is None:
            continue
        to_itself = instruction["opcode"] == "BRA" and f"`({label})" in instruction["operands"]
        if not to_itself:
            yield function, instruction["opcode"], instruction["operands"]
        label = ""


def local_traffic(counts: Mapping[str, int]) -> int:
    """Bytes of a thread that the LDL and STL in `counts` move, each executed once: what is spilled moves through them."""
    moved = 0
    for opcode, count in counts.items():
        name, *modifiers = opcode.split(".")
        if name in ("LDL", "STL"):
            moved += count * next((_BYTES[word] for word in modifiers if word in _BYTES), 4)
    return moved


def lowering(native: str, counts: Mapping[str, int]) -> Lowering:
    """What a program with the family pattern `native` became, by the rule above."""
    if not counts:
        return "nothing"
    return "native" if any(re.match(native, opcode) for opcode in counts) else "emulated"
