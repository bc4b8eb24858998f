"""Which allocation an address lies in; one that lies in none, or is misaligned, is an error that says how far off it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from impls.cuda.emulator.errors import EmulationError


@dataclass(frozen=True)
class Allocation:
    """A stretch of addresses that a kernel may use."""

    name: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size

    def __str__(self) -> str:
        return f"{self.name} ({self.size} bytes from {self.start:#x})"


class BadAddress(EmulationError):
    """A lane's access lies out of bounds or is misaligned."""

    def __init__(self, at: tuple[int, ...], address: int, text: str) -> None:
        super().__init__(text)
        self.at = at
        """Index of the first such lane."""
        self.address = address


class Allocations:
    """All that a launch may access, in the order of addresses, which is the order of `index` below."""

    def __init__(self, allocations: list[Allocation]) -> None:
        self.allocations = sorted(allocations, key=lambda one: one.start)
        for before, after in zip(self.allocations, self.allocations[1:], strict=False):
            if before.end > after.start:
                raise ValueError(f"{before} overlaps {after}.")
        # An empty one at the very end: what lies below all others is looked up there, at index -1.
        self._starts = np.array([*(one.start for one in self.allocations), 2**64 - 1], np.uint64)
        self._sizes = np.array([*(one.size for one in self.allocations), 0], np.uint64)

    def locate(
        self, addresses: NDArray[np.uint64], size: int, active: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """Index of the allocation and offset in it of `size` bytes at each address, of any shape; of inactive lanes anything.

        `size` is a power of two, which addresses are multiples of.
        """
        index = np.searchsorted(self._starts, addresses, side="right") - 1
        offsets = addresses - self._starts[index]
        bad = (offsets >= self._sizes[index]) | (self._sizes[index] - offsets < size) | (addresses & np.uint64(size - 1) != 0)
        if active is not None:
            bad &= active
        if bad.any():
            at = tuple(np.argwhere(bad)[0].tolist())
            raise BadAddress(at, int(addresses[at]), self._complaint(int(addresses[at]), size))
        return index, offsets

    def _complaint(self, address: int, size: int) -> str:
        what = f"{size} bytes at {address:#x}"
        if address % size:
            return f"{what}: the address is no multiple of {size}."
        inside = next((one for one in self.allocations if one.start <= address < one.end), None)
        if inside is not None:
            return f"{what} reach {address + size - inside.end} bytes beyond the end of {inside}."
        before = [one for one in self.allocations if one.end <= address]
        after = [one for one in self.allocations if one.start > address]
        places = [f"{address - one.end} bytes after the end of {one}" for one in before[-1:]]
        places += [f"{one.start - address} bytes before {one}" for one in after[:1]]
        return f"{what} are in no allocation: {' and '.join(places) or 'there is none'}."
