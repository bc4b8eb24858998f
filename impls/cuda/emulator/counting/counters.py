"""What one launch executed, counted by the index of its instructions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from impls.cuda.emulator.counting import traffic
from impls.cuda.emulator.counting.classes import classify, mma
from impls.cuda.emulator.hardware import SECTOR

_Place = TypeVar("_Place", bound=Hashable)

COUNTED = (
    "executions",
    "working",
    "lanes",
    "global_bytes",
    "global_requests",
    "sectors",
    "shared_bytes",
    "wavefronts",
    "ideal_wavefronts",
    "shared_least_bytes",
    "barriers",
    "divergent_branches",
)
"""executions and what follows are per warp, working those of which a lane has a guard that holds; lanes are those that come to
the instruction, whatever their guard; bytes are what the lanes asked for that execute it."""

EXECUTED = slice(COUNTED.index("executions"), COUNTED.index("lanes") + 1)
GLOBAL = slice(COUNTED.index("global_bytes"), COUNTED.index("sectors") + 1)
SHARED = slice(COUNTED.index("shared_bytes"), COUNTED.index("shared_least_bytes") + 1)
"""Of `COUNTED`: what an access to a memory adds to."""
BARRIERS, DIVERGENT = COUNTED.index("barriers"), COUNTED.index("divergent_branches")


class Counters:
    """Adds up what the warps of one launch do. All times of the same instruction are one number, whatever their order."""

    def __init__(self, instructions: Sequence[str], blocks: int) -> None:
        """`instructions` are names with all modifiers, e.g. "add.rn.f32". Raises Unknown where one has no class."""
        self.instructions = tuple(instructions)
        self.kinds = tuple(classify(name) for name in self.instructions)
        self.blocks = blocks
        """At most as many SMs have worked."""
        self.dram_bytes = 0
        """Bytes that had to come from DRAM if no cache held them before: see `Footprint`."""
        self._counts = np.zeros((len(COUNTED), len(self.instructions)), np.int64)
        self._sectors: dict[Hashable, tuple[int, int, int]] = {}
        self._wavefronts: dict[Hashable, NDArray[np.int64]] = {}
        """What patterns of addresses cost that have been seen: a loop repeats them."""

    def by_instruction(self, counted: str) -> NDArray[np.int64]:
        """One of `COUNTED`, by index of the instruction."""
        return self._counts[COUNTED.index(counted)]

    def executed(self, warps: NDArray[np.int64], working: NDArray[np.int64], lanes: NDArray[np.int64]) -> None:
        """Of each instruction: how many warps came to it, how many of these did it, and how many lanes came."""
        self._counts[EXECUTED] += (warps, working, lanes)

    def global_access(
        self,
        instruction: int,
        addresses: NDArray[np.integer],
        size: int,
        active: NDArray[np.bool_] | None,
        asked: int | None = None,
    ) -> None:
        """A load, store, copy or atomic of `size` bytes a lane; arrays are [warps, 32], `active` None is all. A warp without an
        active lane asks for nothing. `asked`: bytes in all, where lanes want only the first of their `size`, in one sector."""
        pattern = _pattern(addresses, size, active, SECTOR)
        if pattern not in self._sectors:
            active = np.ones(addresses.shape, np.bool_) if active is None else active
            requests = int(np.count_nonzero(active.any(axis=1)))
            sectors = int(traffic.sectors(addresses, size, active).sum())
            self._sectors[pattern] = size * int(np.count_nonzero(active)), requests, sectors
        requested, requests, sectors = self._sectors[pattern]
        self._counts[GLOBAL, instruction] += (requested if asked is None else asked, requests, sectors)

    def bulk_access(self, instruction: int, address: int, size: int) -> None:
        """A bulk copy of `size` bytes, one or more, from global memory."""
        self._counts[GLOBAL, instruction] += (size, 1, (address + size - 1) // SECTOR - address // SECTOR + 1)

    def shared(self, instruction: int, cost: NDArray[np.int64]) -> None:
        """An access to shared memory of this `shared_cost` or `matrix_cost`."""
        self._counts[SHARED, instruction] += cost

    def shared_cost(self, offsets: NDArray[np.unsignedinteger], size: int, active: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Of a load or store of `size` bytes a lane; arrays are [warps, 32]."""
        pattern = _pattern(offsets, size, active, traffic.WAVEFRONT)
        if pattern not in self._wavefronts:
            self._wavefronts[pattern] = _sums(int(size * np.count_nonzero(active)), traffic.wavefronts(offsets, size, active))
        return self._wavefronts[pattern]

    def met(self, instruction: int, warps: int) -> None:
        """`warps` came to a barrier, or found that the phase of an mbarrier was over."""
        self._counts[BARRIERS, instruction] += warps

    def diverged(self, instruction: int, warps: int) -> None:
        """`warps` went two ways at a branch."""
        self._counts[DIVERGENT, instruction] += warps

    def totals(self) -> dict[str, int]:
        return dict(zip(COUNTED, self._counts.sum(axis=1).tolist(), strict=True))

    def by_class(self) -> dict[str, dict[str, int]]:
        """{class: {counted: sum}}, classes that were executed, in the order of the alphabet."""
        return dict(sorted(self._grouped([kind.name for kind in self.kinds]).items()))

    def by_source_line(self, places: Sequence[_Place | None]) -> dict[_Place | None, dict[str, int]]:
        """{place: {counted: sum}} in the order of the program; `places` holds each instruction's, None where it has none."""
        return self._grouped(places)

    def mma_by_kind(self) -> dict[str, dict[str, int]]:
        """{MMA: {"working": ..., "products": ...}}, products being multiply-accumulates of all warps that work."""
        found: dict[str, dict[str, int]] = {}
        for name, working in zip(self.instructions, self.by_instruction("working").tolist(), strict=True):
            described = mma(name)
            if described is not None and working:
                entry = found.setdefault(described.name, {"working": 0, "products": 0})
                entry["working"] += working
                entry["products"] += working * described.products
        return dict(sorted(found.items()))

    def products_by_class(self) -> dict[str, int]:
        """{class: multiply-accumulates}, e.g. {"tensor 16-bit": 4096}."""
        found: dict[str, int] = {}
        for name, kind, working in zip(self.instructions, self.kinds, self.by_instruction("working").tolist(), strict=True):
            described = mma(name)
            if described is not None and working:
                found[kind.name] = found.get(kind.name, 0) + working * described.products
        return dict(sorted(found.items()))

    def record(self) -> dict[str, Any]:
        """All of it but the single instructions, for JSON: equal for equal executions, whatever their order."""
        return {
            "blocks": self.blocks,
            "dram_bytes": self.dram_bytes,
            "totals": self.totals(),
            "classes": self.by_class(),
            "mma": self.mma_by_kind(),
        }

    def _grouped(self, groups: Sequence[_Place]) -> dict[_Place, dict[str, int]]:
        numbers: dict[_Place, int] = {}
        columns = np.array([numbers.setdefault(group, len(numbers)) for group in groups], np.intp)
        sums = np.zeros((len(COUNTED), len(numbers)), np.int64)
        np.add.at(sums.T, columns, self._counts.T)
        return {
            group: dict(zip(COUNTED, sums[:, number].tolist(), strict=True))
            for group, number in numbers.items()
            if sums[:, number].any()
        }


def _pattern(addresses: NDArray[Any], size: int, active: NDArray[np.bool_] | None, unit: int) -> Hashable:
    """Equal for accesses that differ by a multiple of `unit` bytes, which cost the same."""
    first = addresses.min() // unit * unit
    return size, addresses.shape, (addresses - first).tobytes(), None if active is None else active.tobytes()


def matrix_cost(rows: NDArray[np.unsignedinteger], matrices: int) -> NDArray[np.int64]:
    """Of ldmatrix or stmatrix of `matrices` 8x8 matrices; `rows` [warps, 8 a matrix or more] are offsets."""
    return _sums(len(rows) * matrices * traffic.WAVEFRONT, traffic.matrix_wavefronts(rows, matrices))


def _sums(asked: int, served: traffic.Wavefronts) -> NDArray[np.int64]:
    """In the order of `COUNTED`."""
    return np.array([asked, served.taken.sum(), served.ideal.sum(), served.least_bytes.sum()], np.int64)
