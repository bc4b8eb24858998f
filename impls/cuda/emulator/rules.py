"""How far each rule that the emulator follows is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["silicon", "independent compiler", "documented only"]
"""Recorded vectors of a GPU agree; kernels by another compiler give exact results with it; or it is only written down."""


@dataclass(frozen=True)
class Rule:
    """One layout, selector, arithmetic or rounding rule."""

    status: Status
    source: str
    """Where it is written."""
