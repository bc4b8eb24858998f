"""The catalogue: families of instruction forms, each the full product of its axes.

Combinations that no assembler takes are kept on purpose: a refused cell, with the assembler's own words, is what tells
an instruction that does not exist from one that another target has.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from impls.isa.program import Program

GROUPS = (
    "mma_sync",
    "mma_block_scaled",
    "mma_sparse",
    "wgmma",
    "tcgen05_mma",
    "tcgen05_memory",
    "matrix_moves",
    "conversions",
    "async_copy",
    "tensor_copy",
    "barriers",
    "arithmetic",
    "atomics",
    "memory",
)
"""Modules of `impls.isa.families`, in the order of the tables; each has a tuple FAMILIES."""


SOFTWARE = r"(?!)"
"""`Family.native` of what no known unit executes as such: matches nothing, so wherever it is taken it is emulated."""


@dataclass(frozen=True)
class Family:
    """One instruction with its axes: shape, type, modifier, kind of operand.

    A program is made for every combination of axis values; `ptx` takes them by keyword and returns the statements,
    with the operand tokens of `impls.isa.program`.
    """

    name: str
    axes: Mapping[str, Sequence[str]]
    ptx: Callable[..., str]
    native: str
    """See `Program.native`."""
    directives: str = ""
    """Directives of the entry; an axis value is put in where its name stands in braces."""

    def programs(self) -> list[Program]:
        """One program per combination. Its id is the family's name and the values, without their dot, "-" for an absent one."""
        made = []
        for values in itertools.product(*self.axes.values()):
            words = [value.removeprefix(".") or "-" for value in values]
            chosen = dict(zip(self.axes, values, strict=True))
            directives = self.directives.format(**chosen)
            made.append(Program("/".join([self.name, *words]), self.name, self.ptx(**chosen), self.native, directives))
        return made


@cache
def groups() -> dict[str, tuple[Program, ...]]:
    """{group: its programs}. Raises ValueError when two programs share an id."""
    made = {}
    for group in GROUPS:
        families: Sequence[Family] = importlib.import_module(f"impls.isa.families.{group}").FAMILIES
        made[group] = tuple(program for family in families for program in family.programs())
    ids = [program.id for programs in made.values() for program in programs]
    if len(ids) != len(set(ids)):
        raise ValueError(f"two programs are called {next(name for name in ids if ids.count(name) > 1)}.")
    return made


def catalogue() -> tuple[Program, ...]:
    """All programs, in the order of the groups."""
    return tuple(program for programs in groups().values() for program in programs)


@cache
def _by_id() -> dict[str, Program]:
    return {one.id: one for one in catalogue()}


def program(identity: str) -> Program:
    """The program whose id is `identity`. Raises KeyError if there is none."""
    return _by_id()[identity]
