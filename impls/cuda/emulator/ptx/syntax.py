"""The syntax tree of a PTX module: names resolved, scopes flattened, literals kept to the bit.

Printing an operand or an instruction gives PTX that parses to the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

TYPE_BYTES = {
    **dict.fromkeys(("b8", "u8", "s8"), 1),
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16"), 2),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2"), 4),
    **dict.fromkeys(("b64", "u64", "s64", "f64"), 8),
    "b128": 16,
}
"""Types that a variable can have. A register has one of these or `pred`."""

Space = Literal["global", "const", "shared", "local", "param"]


@dataclass(frozen=True, slots=True)
class Register:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer; or the bits of a float.

    PTX's decimal floats are doubles, and so of kind f64: an f32 instruction rounds them. 0fXXXXXXXX is of kind f32.
    """

    value: int
    kind: Literal["int", "f32", "f64"] = "int"

    def __str__(self) -> str:
        if self.kind == "int":
            return str(self.value)
        return f"0f{self.value:08X}" if self.kind == "f32" else f"0d{self.value:016X}"


@dataclass(frozen=True, slots=True)
class Special:
    """A register that the hardware sets."""

    name: str
    """With its component: "%tid.x", "%laneid"."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or parameter, plus `offset` bytes; or a function's name."""

    name: str
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.name}{_offset(self.offset)}"


@dataclass(frozen=True, slots=True)
class Label:
    """A place in the function, or a list of places that `.branchtargets` names."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result that nobody wants."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True, slots=True)
class Negated:
    """`!%p`."""

    register: Register

    def __str__(self) -> str:
        return f"!{self.register}"


@dataclass(frozen=True, slots=True)
class Address:
    """`[base+offset]`; without a base `offset` is the address."""

    base: Register | Symbol | None
    offset: int = 0

    def __str__(self) -> str:
        return f"[{self.offset}]" if self.base is None else f"[{self.base}{_offset(self.offset)}]"


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b}`; one element in braces is a vector too."""

    elements: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{{{', '.join(map(str, self.elements))}}}"


@dataclass(frozen=True, slots=True)
class Pair:
    """`first|second`: two results."""

    first: Register | Sink
    second: Register | Sink

    def __str__(self) -> str:
        return f"{self.first}|{self.second}"


@dataclass(frozen=True, slots=True)
class Arguments:
    """`(a, b)` of a call."""

    elements: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


Operand = Register | Immediate | Special | Symbol | Label | Sink | Negated | Address | Vector | Pair | Arguments


class Guard(NamedTuple):
    """`@%p` or `@!%p` before an instruction."""

    register: Register
    negated: bool

    def __str__(self) -> str:
        return f"@{'!' if self.negated else ''}{self.register}"


class Source(NamedTuple):
    """The line that `.loc` names; of inlined code its own line, not that of the call."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Instruction:
    opcode: str
    """Up to the first dot: "mma" of mma.sync.aligned."""
    modifiers: tuple[str, ...]
    """What follows, dot by dot, as written: "sync", "m16n8k64", "kind::mxf4nvf4"."""
    operands: tuple[Operand, ...]
    predicate: Guard | None
    line: int
    """Of the PTX, from 1."""
    text: str
    """As written, on one line."""
    source: Source | None

    @property
    def name(self) -> str:
        """Opcode and modifiers, as written."""
        return ".".join((self.opcode, *self.modifiers))

    def __str__(self) -> str:
        guard = f"{self.predicate} " if self.predicate else ""
        return f"{guard}{self.name} {', '.join(map(str, self.operands))}".rstrip() + ";"


@dataclass(frozen=True, slots=True)
class Variable:
    """Memory, or a parameter, by name."""

    name: str
    space: Space
    type: str
    """Of one element."""
    alignment: int
    count: int | None
    """Elements; None for `name[]`, whose size the launch decides."""
    initial: bytes | None = None
    external: bool = False

    @property
    def bytes(self) -> int:
        """0 while the launch decides."""
        return (self.count or 0) * TYPE_BYTES[self.type]


@dataclass(frozen=True)
class Function:
    name: str
    is_entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    """Empty for an entry."""
    directives: Mapping[str, tuple[int, ...]]
    """What stands between parameters and body: {"reqntid": (128,), "minnctapersm": (2,)}."""
    registers: Mapping[str, str]
    """Name to type, of all scopes: a name that an inner scope uses again has been given another there."""
    variables: Mapping[str, Variable]
    """What the body declares in shared, local, const and param space."""
    body: tuple[Instruction, ...]
    labels: Mapping[str, int]
    """Name to index into `body`; the index is its length where the label is the last thing."""
    branch_targets: Mapping[str, tuple[str, ...]]
    """The lists that `brx.idx` chooses from, by name."""

    @cached_property
    def required_block(self) -> tuple[int, int, int] | None:
        """The block that `.reqntid` demands."""
        return _three(self.directives.get("reqntid"))

    @cached_property
    def largest_block(self) -> tuple[int, int, int] | None:
        """The most threads that `.maxntid` allows: their product counts."""
        return _three(self.directives.get("maxntid"))


@dataclass(frozen=True)
class Module:
    version: tuple[int, int]
    target: str
    """With its suffix: "sm_120a"."""
    address_size: int
    functions: Mapping[str, Function]
    """Entries and others that have a body."""
    declared: frozenset[str]
    """Functions without one here, e.g. vprintf."""
    globals: Mapping[str, Variable]
    """In global, const and shared space, `.extern .shared` too."""


def _offset(offset: int) -> str:
    return f"+{offset}" if offset else ""


def _three(sizes: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    if sizes is None:
        return None
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
