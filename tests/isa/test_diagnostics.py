"""A message laid on the wrong program refuses what is accepted, and accepts what is refused."""

from __future__ import annotations

import pytest

from impls.isa.diagnostics import kind_of, messages
from impls.isa.program import Program, module

FIRST = Program("first", "f", "a.b;", "A")
SECOND = Program("second", "f", "c.d;", "C")


def test_messages_go_to_the_program_of_their_line_or_of_their_entry() -> None:
    made = module([FIRST, SECOND], "9.0", "sm_90a")
    line = made.text.splitlines().index("c.d;") + 1
    output = (
        f"ptxas /tmp/x.ptx, line {line}; error   : Not a name of any known instruction: 'c'\n"
        "ptxas error   : Entry function 'p0' uses too much shared data (0x19000 bytes, 0x18c00 max)\n"
        f"ptxas x.ptx, line {line}; warning : Advisory\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n"
    )
    found = list(messages(output, made))
    assert [(message.program, message.level) for message in found] == [(SECOND, "error"), (FIRST, "error"), (SECOND, "warning")]
    assert found[1].text == "Entry function 'k' uses too much shared data (0x19000 bytes, 0x18c00 max)"
    assert [message.is_error for message in found] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "kind"),
    [  # texts of ptxas 13.0, facts of the toolchain and not of this code
        ("Instruction 'mma with block scale' not supported on .target 'sm_100a'", "target"),
        ("Instruction 'wgmma.fence' cannot be compiled for architecture 'sm_120a'", "target"),
        ("Feature '.bf16x2' requires .target sm_80 or higher", "target"),
        ("Illegal modifier '.scale_vec::4X' for instruction 'mma' with type '.ue8m0'", "combination"),
        ("Operation .max requires .u32 or .s32 type for instruction 'atom'", "combination"),
        ("Entry function 'k' uses too much shared data (0x19000 bytes, 0x18c00 max)", "limit"),
        ("Unknown modifier '.ue4m3x2'; Unexpected instruction types specified for 'cvt'", "unknown"),
        ("Arguments mismatch for instruction 'mma'", "operand"),
        ("Parsing error near '{': syntax error", "syntax"),
        ("something never said before", "other"),
    ],
)
def test_kind_of_refusal(text: str, kind: str) -> None:
    assert kind_of(text) == kind
