"""How far each rule that the emulator follows is trusted.

Tables give a rule the status that its source deserves. What GPUs have confirmed since is in silicon.json, {rule: [GPU, ...]},
which `nvfp4bench confirm --record` writes, and overrides that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

Status = Literal["silicon", "independent compiler", "documented only"]
"""Recorded vectors of a GPU agree; kernels by another compiler give exact results with it; or it is only written down."""
SILICON = Path(__file__).with_name("silicon.json")


@dataclass(frozen=True)
class Rule:
    """One layout, selector, arithmetic or rounding rule."""

    status: Status
    source: str
    """Where it is written."""
    gpus: tuple[str, ...] = ()
    """That agree with it, e.g. "NVIDIA H200 (sm_90a)"."""


@cache
def confirmed() -> Mapping[str, tuple[str, ...]]:
    """{rule: the GPUs that agree with it}."""
    return {name: tuple(gpus) for name, gpus in json.loads(SILICON.read_text()).items()}


def with_silicon(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """`rules`, with the status of those that a GPU has confirmed."""
    seen = confirmed()
    return {name: replace(rule, status="silicon", gpus=seen[name]) if seen.get(name) else rule for name, rule in rules.items()}
