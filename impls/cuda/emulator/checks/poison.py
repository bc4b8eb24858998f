"""Which bytes have been written: a read of any other is an error, though the memory that emulates it holds zeros."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from impls.cuda.emulator.errors import EmulationError

_PADDING = 32
"""Bytes at the end, always written, that inactive lanes are sent to; as many as the widest access."""
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class Uninitialised(EmulationError):
    """A lane read bytes that nobody wrote."""

    def __init__(self, at: tuple[int, ...], offset: int, size: int) -> None:
        super().__init__(f"Of the {size} bytes at {offset} not all have been written.")
        self.at = at
        """Index of the first such lane."""
        self.offset = offset


class Written:
    """One bit of knowledge a byte, for any number of blocks or threads, whose memories lie one behind another.

    Accesses are aligned: each offset is a multiple of the size, which is 1, 2, 4, 8, 16 or 32.
    """

    def __init__(self, size: int) -> None:
        self._padding = -(-size // _PADDING) * _PADDING
        self._bytes = np.zeros(self._padding + _PADDING, np.uint8)
        self._bytes[self._padding :] = 0xFF

    def mark(self, offsets: NDArray[np.integer], size: int, active: NDArray[np.bool_] | None = None) -> None:
        """Lanes write `size` bytes at `offsets`, of any shape."""
        words = self._words(size)
        words[self._rows(offsets, size, active)] = np.iinfo(words.dtype).max

    def mark_range(self, offset: int, size: int) -> None:
        """All of `size` bytes are written, by an asynchronous copy or from outside."""
        self._bytes[offset : offset + size] = 0xFF

    def check(self, offsets: NDArray[np.integer], size: int, active: NDArray[np.bool_] | None = None) -> None:
        """Lanes read; `Uninitialised` names the first that may not."""
        words = self._words(size)
        written = words[self._rows(offsets, size, active)] == np.iinfo(words.dtype).max
        if not written.all():
            at = tuple(np.argwhere(~written)[0, : offsets.ndim].tolist())
            raise Uninitialised(at, int(offsets[at]), size)

    def _words(self, size: int) -> NDArray[np.unsignedinteger]:
        """The bytes as one element an access, or as rows of 64 bits for wide ones."""
        if size in _WORDS:
            return self._bytes.view(_WORDS[size])
        words = self._bytes.view(np.uint64)
        return words if size == 8 else words.reshape(-1, size // 8)

    def _rows(self, offsets: NDArray[np.integer], size: int, active: NDArray[np.bool_] | None) -> NDArray[np.intp]:
        rows = offsets.astype(np.intp) // size
        return rows if active is None else np.where(active, rows, self._padding // size)
