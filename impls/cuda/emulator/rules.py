"""How far each rule that the emulator follows is trusted.

Tables give a rule the status that its source deserves. What GPUs have confirmed since is in silicon.json, {rule: [GPU, ...]},
which `nvfp4bench confirm --record` writes, and overrides that for the targets of those GPUs' families, and no others: tensor
cores of another family may add in another way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Status = Literal["silicon", "independent compiler", "documented only"]
"""Recorded vectors of a GPU agree; kernels by another compiler give exact results with it; or it is only written down."""
STATUSES: tuple[Status, ...] = get_args(Status)
SILICON = Path(__file__).with_name("silicon.json")
FAMILIES = (
    ("ampere", {80, 86, 87}),
    ("ada", {89}),
    ("hopper", {90}),
    ("blackwell", {100, 103, 110}),
    ("rtx blackwell", {120, 121}),
)
"""By the number in the target's name: what has the same tensor cores."""


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
    """{rule: the GPUs that agree with it}. Raises ValueError where the file is damaged."""
    return confirmed_in(SILICON)


def confirmed_in(path: Path) -> Mapping[str, tuple[str, ...]]:
    """Of another silicon.json. Raises ValueError that names it where it is none."""
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); it is a part of the emulator, so install it anew.") from error
    lists = known.values() if isinstance(known, dict) else [None]
    if not all(isinstance(gpus, list) and all(isinstance(gpu, str) for gpu in gpus) for gpus in lists):
        raise ValueError(f"{path} does not say {{rule: [GPU, ...]}}; it is a part of the emulator, so install it anew.")
    return {name: tuple(gpus) for name, gpus in known.items()}


def family(target: str) -> str | None:
    """Of a target, or of a GPU with its target behind it, e.g. "hopper" of "NVIDIA H200 (sm_90a)"; None if it is not known."""
    number = re.search(r"\bsm_(\d+)[af]?\)?$", target)
    return next((name for name, numbers in FAMILIES if number and int(number[1]) in numbers), None)


def on_target(name: str, rule: Rule, target: str) -> Rule:
    """The rule of this name, with the status that it has on `target`."""
    wanted = family(target)
    gpus = tuple(gpu for gpu in confirmed().get(name, ()) if wanted is not None and family(gpu) == wanted)
    return replace(rule, status="silicon", gpus=gpus) if gpus else rule
