"""In which order fronts run. A right kernel gives the same bits in any of them.

forward     all warps in step: what lies first in the program goes first
reverse     one warp of each block at a time, from the last to the first, as far as it gets
seeded      random groups of warps in a random order
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.machine.fronts import Front

SCHEDULES = ("forward", "reverse", "seeded")
MOST_GROUPS = 3


class Schedule(ABC):
    """An order."""

    ascending = True
    """Blocks that do not reside at one time come in the order of their numbers."""

    @abstractmethod
    def groups(self, warps: Array, slots: Array) -> list[Array]:
        """How warps that may go on are split into fronts; `slots`: the number of each within its block."""

    @abstractmethod
    def pick(self, fronts: Sequence[Front]) -> list[Front]:
        """Those of the fronts, none of which waits for lanes, that run next, together: at one instruction."""

    @abstractmethod
    def order(self, count: int) -> Array:
        """In which order `count` warps of a front do what only one can do at a time."""


class Forward(Schedule):
    def groups(self, warps: Array, slots: Array) -> list[Array]:
        return [warps]

    def pick(self, fronts: Sequence[Front]) -> list[Front]:
        first = min(fronts, key=lambda front: (front.turn, front.pc))
        return [front for front in fronts if front.pc == first.pc]

    def order(self, count: int) -> Array:
        return np.arange(count)


class Reverse(Schedule):
    ascending = False

    def groups(self, warps: Array, slots: Array) -> list[Array]:
        return [warps[slots == slot] for slot in np.unique(slots)]

    def pick(self, fronts: Sequence[Front]) -> list[Front]:
        # what was waited for may come from any warp: turns before slots
        first = min(fronts, key=lambda front: (front.turn, -int(front.warps[-1]), front.pc))
        return [front for front in fronts if front is first or (front.pc == first.pc and _share_warps(front, first))]

    def order(self, count: int) -> Array:
        return np.arange(count)[::-1]


class Seeded(Schedule):
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def groups(self, warps: Array, slots: Array) -> list[Array]:
        group = np.array([self._random.randrange(MOST_GROUPS) for _ in range(warps.size)])
        return [warps[group == number] for number in range(MOST_GROUPS) if (group == number).any()]

    def pick(self, fronts: Sequence[Front]) -> list[Front]:
        turn = min(front.turn for front in fronts)
        first = self._random.choice([front for front in fronts if front.turn == turn])
        return [front for front in fronts if front is first or (front.pc == first.pc and _share_warps(front, first))]

    def order(self, count: int) -> Array:
        order = list(range(count))
        self._random.shuffle(order)
        return np.array(order)


def schedule(name: str, seed: int) -> Schedule:
    """The one of this name. Raises ValueError if there is none."""
    if name == "forward":
        return Forward()
    if name == "reverse":
        return Reverse()
    if name == "seeded":
        return Seeded(seed)
    raise ValueError(f"no schedule is called {name!r}; there are {', '.join(SCHEDULES)}.")


def _share_warps(one: Front, other: Front) -> bool:
    return not set(one.warps.tolist()).isdisjoint(other.warps.tolist())
