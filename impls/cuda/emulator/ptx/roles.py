"""Which operands an instruction writes, and which it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from impls.cuda.emulator.ptx.errors import unknown
from impls.cuda.emulator.ptx.syntax import Address, Arguments, Instruction, Negated, Operand, Pair, Register, Vector

_FIRST = frozenset(
    (
        *(
            "add",
            "addc",
            "bfe",
            "bfi",
            "bfind",
            "bmsk",
            "brev",
            "clz",
            "div",
            "dp2a",
            "dp4a",
            "mad",
            "mad24",
            "madc",
            "max",
            "min",
        ),
        *("mul", "mul24", "popc", "rem", "sad", "sub", "subc", "szext", "fns", "prmt", "shf", "shl", "shr"),
        *("abs", "copysign", "cos", "ex2", "fma", "lg2", "neg", "rcp", "rsqrt", "sin", "sqrt", "tanh", "testp"),
        *("and", "cnot", "lop3", "not", "or", "xor", "selp", "set", "setp", "slct"),
        *("atom", "createpolicy", "cvt", "cvta", "getctarank", "isspacep", "ld", "ldu", "mapa", "mov"),
        *("activemask", "elect", "match", "redux", "shfl", "vote", "ldmatrix", "mma", "movmatrix"),
    )
)
_NONE = frozenset(
    (
        *("applypriority", "cp", "discard", "prefetch", "prefetchu", "red", "st", "stmatrix"),
        *("bra", "brkpt", "brx", "exit", "ret", "trap"),
        *("fence", "griddepcontrol", "membar", "nanosleep", "pmevent", "setmaxnreg"),
    )
)
_FIRST_UNLESS_ADDRESS = frozenset(("mbarrier", "multimem"))
"""Some of their forms begin with what they write (mbarrier.try_wait), others with where in memory (mbarrier.init)."""
_BARRIERS = frozenset(("bar", "barrier"))
"""Only `.red` has a result."""


class Roles(NamedTuple):
    destinations: tuple[Operand, ...]
    sources: tuple[Operand, ...]
    """An address is a source, of stores too: its register is read."""


def operand_roles(instruction: Instruction) -> Roles:
    """Raises Unknown for an opcode of which it does not know."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in _FIRST:
        return Roles(operands[:1], operands[1:])
    if opcode in _NONE:
        return Roles((), operands)
    if opcode in _FIRST_UNLESS_ADDRESS:
        results = 0 if operands and isinstance(operands[0], Address) else 1
    elif opcode in _BARRIERS:
        results = int("red" in instruction.modifiers)
    elif opcode == "call":
        results = int(bool(operands) and isinstance(operands[0], Arguments))
    else:
        raise unknown(instruction.line, f"what {instruction.name} reads and writes is not known.")
    return Roles(operands[:results], operands[results:])


def reads(instruction: Instruction) -> tuple[str, ...]:
    """Registers that it reads, the predicate's first."""
    guard = (instruction.predicate.register.name,) if instruction.predicate else ()
    return (*guard, *_registers(operand_roles(instruction).sources))


def writes(instruction: Instruction) -> tuple[str, ...]:
    """Registers that it writes."""
    return tuple(_registers(operand_roles(instruction).destinations))


def _registers(operands: Iterable[Operand]) -> Iterator[str]:
    for operand in operands:
        match operand:
            case Register(name):
                yield name
            case Negated(register):
                yield register.name
            case Address(Register(name)):
                yield name
            case Vector(elements) | Arguments(elements):
                yield from _registers(elements)
            case Pair(first, second):
                yield from _registers((first, second))
