"""Which sectors of global memory a run of kernels must fetch: those it reads before it has written them.

What is fetched again is not counted, since a cache may have kept it; nor is what is written, since the L2 may keep that until
after the end. So it is what DRAM must deliver at least, if no cache held any of it at the start.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from impls.cuda.emulator.hardware import SECTOR

_SECTOR_BITS = SECTOR.bit_length() - 1


class Footprint:
    """Of one range of addresses, one allocation as a rule."""

    def __init__(self, start: int, size: int) -> None:
        """`size` bytes from address `start`."""
        self._first = start // SECTOR
        sectors = (start + size - 1) // SECTOR - self._first + 1
        self._known = np.zeros(sectors, np.bool_)
        """Read or written before."""
        self._fetched = np.zeros(sectors, np.bool_)

    def read(self, addresses: NDArray[np.integer], size: int) -> None:
        """Reads of `size` bytes (a power of two) at `addresses`, any shape, of active lanes alone, each aligned to its size."""
        for sectors in self._sectors(addresses, size):
            known = self._known.take(sectors)
            if not known.all():
                self._fetched[sectors[~known]] = True
                self._known[sectors] = True

    def write(self, addresses: NDArray[np.integer], size: int) -> None:
        """Writes, likewise."""
        for sectors in self._sectors(addresses, size):
            self._known[sectors] = True

    @property
    def fetched_bytes(self) -> int:
        return SECTOR * int(np.count_nonzero(self._fetched))

    def _sectors(self, addresses: NDArray[np.integer], size: int) -> list[NDArray[np.int64]]:
        first = (addresses >> _SECTOR_BITS).astype(np.int64, copy=False)
        return [first + (step - self._first) for step in range(max(1, size // SECTOR))]
