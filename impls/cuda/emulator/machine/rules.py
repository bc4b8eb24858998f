"""Rules of what lanes tell each other and of asynchronous work, and how far each is trusted."""

from __future__ import annotations

from impls.cuda.emulator.rules import Rule

RULES: dict[str, Rule] = {
    "shfl": Rule("independent compiler", "PTX ISA 9.1, 9.7.9 (shfl.sync)"),
    "vote": Rule("documented only", "PTX ISA 9.1, 9.7.14 (vote.sync)"),
    "match": Rule("documented only", "PTX ISA 9.1, 9.7.14 (match.sync)"),
    "redux": Rule("documented only", "PTX ISA 9.1, 9.7.14 (redux.sync), integers"),
    "redux f32": Rule("documented only", "PTX ISA 9.1, 9.7.14 (redux.sync), .f32: a NaN counts as missing without .NaN"),
    "elect": Rule("documented only", "PTX ISA 9.1, 9.7.14 (elect.sync); which lane is open: the lowest here"),
    "cp.async": Rule("independent compiler", "PTX ISA 9.1, 9.7.9 (cp.async): what is not read becomes zero"),
    "mbarrier": Rule("documented only", "PTX ISA 9.1, 9.7.13 (mbarrier)"),
}
_ASYNCHRONOUS = ("async", "ca"), ("async", "cg")


def rule_of(opcode: str, modifiers: tuple[str, ...]) -> tuple[str, ...]:
    """Which of RULES an instruction follows."""
    if opcode == "redux" and modifiers[-1] == "f32":
        return ("redux f32",)
    if opcode == "cp":
        return ("cp.async",) if modifiers[:2] in _ASYNCHRONOUS else ()
    return (opcode,) if opcode in RULES else ()
