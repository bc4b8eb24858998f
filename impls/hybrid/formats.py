"""What an NVFP4 cache is converted to. Plain data: importing this imports neither torch nor triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from impls.contract import Problem

Kind = Literal["16-bit", "e4m3", "folded"]


@dataclass(frozen=True)
class Format:
    """The types of a converted K and V, as torch calls them, and what is in their values."""

    k: str
    v: str
    folded: bool = False
    """The global scales are multiplied in, which rounds; else they stay out."""

    @property
    def e4m3(self) -> bool:
        """The values are relative to a power of two for each head, see `convert_kernels.unit_of`."""
        return self.k == "float8_e4m3fn"

    @property
    def words(self) -> str:
        """As `Cache.layout` says it."""
        if self.e4m3:
            return "float8_e4m3fn, relative to a power of two for each head"
        types = self.k if self.k == self.v else f"K {self.k}, V {self.v}"
        return types if self.folded else f"{types}, global scales apart"


def format_for(problem: Problem, kind: Kind) -> Format:
    """16-bit: both exact, V in the type that the softmax numerators are multiplied in. folded: what other libraries read."""
    if kind == "e4m3":
        return Format("float8_e4m3fn", "float8_e4m3fn")
    if kind == "folded":
        return Format(problem.dtype, problem.dtype, folded=True)
    return Format(problem.dtype, "float16")
