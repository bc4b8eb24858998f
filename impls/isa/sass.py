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
from collections.abc import Mapping
from typing import Literal

Lowering = Literal["native", "emulated", "nothing"]
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
    """{function: {opcode: how often}} of `nvdisasm --print-code` output.

    The scaffold is left out, and so is the branch to itself with which the assembler ends every function.
    """
    found: dict[str, Counter[str]] = {}
    current: Counter[str] = Counter()
    label = ""
    for line in disassembly.splitlines():
        function, named = _FUNCTION.match(line), _LABEL.match(line)
        if function:
            current = found.setdefault(function[1], Counter())
        if named:
            label = named[1]
        instruction = _INSTRUCTION.match(line)
        if instruction is None:
            continue
        to_itself = instruction["opcode"] == "BRA" and f"`({label})" in instruction["operands"]
        if not to_itself and not SCAFFOLD.match(instruction["opcode"] + instruction["operands"]):
            current[instruction["opcode"]] += 1
        label = ""
    return {name: dict(counts) for name, counts in found.items()}


def lowering(native: str, counts: Mapping[str, int]) -> Lowering:
    """What a program with the family pattern `native` became, by the rule above."""
    if not counts:
        return "nothing"
    return "native" if any(re.match(native, opcode) for opcode in counts) else "emulated"
