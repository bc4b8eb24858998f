"""What a race is, in numbers and as a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from impls.cuda.emulator.errors import EmulationError, NotExecuted

Missing = Literal["order", "scope", "completion", "proxy fence"]

_REASON: dict[Missing, str] = {
    "order": "nothing orders the two",
    "scope": "the scope of at least one of the two leaves the other warp out",
    "completion": "nobody has waited for the asynchronous copy",
    "proxy fence": "no fence.proxy.async stands between the generic and the asynchronous access",
}


@dataclass(frozen=True)
class Access:
    """One warp's access to the place in question."""

    does: str
    """A verb: "reads", "writes", "updates atomically", "copies into"..."""
    block: int
    warp: int
    """Within its block."""
    lane: int | None
    """None where only the warp is known: earlier readers are kept a warp at a time."""
    where: int
    """Index of the instruction."""

    def __str__(self) -> str:
        lane = "" if self.lane is None else f", lane {self.lane}"
        return f"instruction {self.where} of block {self.block}, warp {self.warp}{lane} {self.does}"


@dataclass(frozen=True)
class Race:
    """Two accesses to one place, at least one of which writes, that could have happened the other way round."""

    kind: Missing
    """What is missing between them."""
    space: str
    offset: int
    """Of the first grain in question, in bytes; for shared memory within the block's."""
    size: int
    """Bytes of a grain."""
    first: Access
    second: Access

    def __str__(self) -> str:
        place = f"{self.space} memory at {self.offset} ({self.size} bytes)"
        return f"{place}: {self.second}, after {self.first}, but {self.reason}."

    @property
    def reason(self) -> str:
        """What is missing, as a sentence."""
        return _REASON[self.kind]


class RaceFound(EmulationError):
    """The first race; `race` has its parts."""

    def __init__(self, race: Race) -> None:
        super().__init__(str(race))
        self.race = race


class TooMuch(NotExecuted):
    """The checks cannot remember all that the launch does; without them it can run."""
