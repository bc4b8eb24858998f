"""Which lane and which bytes hold the scale factors of a block-scaled MMA.

Row m of A takes them from lane 4 (m % 8) + m / 8 + 2 thread-id-a, column n of B from lane 4n + thread-id-b:

    lane                 0    1    2    3  |  4    5    6    7  | ...  28   29   30   31
    A, thread-id-a 0     m0   m8           |  m1   m9           |      m7   m15
    A, thread-id-a 1               m0   m8 |            m1   m9 |                m7   m15
    B, thread-id-b 0     n0                |  n1                |      n7
    B, thread-id-b 3                    n0 |                 n1 |                     n7

Of the lane's word, scale_vec::4X takes bytes 0 to 3 (byte j for the j-th quarter of K), 2X the bytes byte-id and byte-id + 1
(for the halves), 1X the byte byte-id.

PTX ISA 9.1, "Block Scaling for mma.sync".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.tensor_cores.formats import Words

Codes = npt.NDArray[np.uint8]
Selector = int | npt.NDArray[np.integer]
"""An immediate, or a value for each warp, or for each lane of each warp."""

_ROW, _COLUMN = np.arange(16), np.arange(8)
A_LANES = 4 * (_ROW & 7) + (_ROW >> 3)
"""Lane of each row's scales at thread-id-a 0."""
B_LANES = 4 * _COLUMN
_BYTE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}


@dataclass(frozen=True)
class Scales:
    """Where one operand's scale factors are."""

    operand: str
    lanes: npt.NDArray[np.int64]
    thread_step: int
    """Lanes from one thread-id to the next."""
    thread_ids: tuple[int, ...]

    def select(self, data: Words, byte_id: Selector, thread_id: Selector, count: int) -> Codes:
        """Scale bytes [warps, rows, count] that the selectors choose from `data` [warps, 32]."""
        byte = _checked(f"byte-id-{self.operand}", byte_id, _BYTE_IDS[count], len(data))
        thread = _checked(f"thread-id-{self.operand}", thread_id, self.thread_ids, len(data))
        lanes = self.lanes + self.thread_step * thread
        words = np.take_along_axis(data, lanes, axis=1) if lanes.ndim == 2 else data.take(lanes, axis=1)
        words >>= np.asarray(8 * byte, np.uint32)
        return words.view(np.uint8).reshape(*words.shape, 4)[..., :count]


A = Scales("a", A_LANES, 2, (0, 1))
B = Scales("b", B_LANES, 1, (0, 1, 2, 3))


def _checked(name: str, selector: Selector, allowed: tuple[int, ...], warps: int) -> int | npt.NDArray[np.int64]:
    """`selector` as one number, or as [warps, 1] where warps differ. An error if not allowed, or not uniform in a warp."""
    values = np.asarray(selector, np.int64)
    if values.size > warps:
        values = values.reshape(warps, -1)
        if (values != values[:, :1]).any():
            raise EmulationError(f"{name} must have the same value in all threads of a warp.")
        values = values[:, 0]
    distinct = set(values.reshape(-1).tolist())
    for value in sorted(distinct.difference(allowed)):
        raise EmulationError(f"{name} is {value}, but its valid values here are {', '.join(map(str, allowed))}.")
    return distinct.pop() if len(distinct) == 1 else values.reshape(warps, 1)
