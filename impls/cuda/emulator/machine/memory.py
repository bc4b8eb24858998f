"""Memory spaces, and how a generic address tells them apart.

    generic address     2^40 + i        global: allocations, 512 bytes apart at least, with guards between them
                        2^50 + i        shared: byte i of the block's shared memory
                        2^51 + i        local: byte i of the thread's local memory

Addresses depend on the order of allocations alone, so that a kernel sees the same ones on every host.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.errors import EmulationError

GLOBAL_BASE, SHARED_BASE, LOCAL_BASE = 1 << 40, 1 << 50, 1 << 51
ALIGNMENT = 256
"""Of an allocation, as cudaMalloc gives it."""
GUARD = 256
"""Bytes between allocations that belong to none."""
POISON = 0xFF
"""Of a byte that nobody wrote: NaN in every float format."""
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
"""A NumPy type for each access size; that of 16 bytes is only ever copied."""

DEFINED = {size: 0x0101010101010101 & ((1 << 8 * size) - 1) for size in (1, 2, 4, 8)}
"""Words of so many bytes of which each was written."""


@dataclass
class Allocation:
    """One stretch of global memory."""

    name: str
    start: int
    """Generic address."""
    bytes: Array
    """The caller's memory, uint8."""
    read_only: bool = False
    """All arrays that lead here are."""

    @property
    def end(self) -> int:
        return self.start + self.bytes.size


@dataclass
class GlobalMemory:
    """All allocations, side by side in one array while kernels run.

    memory.reserve(arrays)              room for the memory of arrays, with names; arrays that share some share an allocation
    address = memory.place(array)       the address of the array's first element
    memory.load()                       take the callers' contents over
    memory.store()                      give the contents back
    """

    allocations: list[Allocation] = field(default_factory=list)
    arena: Array = field(default_factory=lambda: np.empty(0, np.uint8))
    _next: int = GLOBAL_BASE
    _starts: list[int] = field(default_factory=list)
    _hosts: list[tuple[int, int, Allocation]] = field(default_factory=list)
    """(first address, end in the caller's process, allocation)."""
    _views: dict[int, Array] = field(default_factory=dict)
    _variables: dict[tuple[int, str], int] = field(default_factory=dict)

    def reserve(self, arrays: Sequence[tuple[Any, str]]) -> None:
        """Room for the memory that these arrays, each with its name, are part of: in the order of the first of each allocation,
        whose name it has. Raises ValueError if a part of one is in an allocation of before."""
        extents = [_extent(array)[1:] for array, _ in arrays]
        new = [number for number, (base, size) in enumerate(extents) if size and self._holding(base, size) is None]
        groups: list[list[int]] = []
        end = 0
        for number in sorted(new, key=lambda number: extents[number][0]):
            base, size = extents[number]
            if base < end:
                groups[-1].append(number)
            else:
                groups.append([number])
            end = max(end, base + size)
        for group in sorted(map(sorted, groups)):
            start = min(extents[number][0] for number in group)
            end = max(sum(extents[number]) for number in group)
            if any(start < theirs_end and theirs < end for theirs, theirs_end, _ in self._hosts):
                raise ValueError("arrays that share memory have to be reserved together.")
            one = self._allocate(arrays[group[0]][1], start, end - start, [arrays[number][0] for number in group])
            self._hosts.append((start, end, one))

    def place(self, array: Any, name: str = "") -> int:
        """The address of the first element of a NumPy array or of a tensor of torch in the CPU's memory."""
        first, base, size = _extent(array)
        if not size:
            return self._allocate(name, base, 0, [array]).start
        self.reserve([(array, name)])
        held = self._holding(base, size)
        assert held is not None
        host, one = held
        return one.start + first - host

    def variable(self, owner: object, contents: bytes, name: str) -> int:
        """The address of a variable of the module `owner`: one for all its launches."""
        key = id(owner), name
        if key not in self._variables:
            self._variables[key] = self.place(np.frombuffer(contents, np.uint8).copy(), name)
        return self._variables[key]

    def read_only(self, positions: Array) -> list[tuple[Allocation, Array]]:
        """Allocations that nobody may write, and which of these positions of the arena each holds."""
        return [
            (one, (positions >= one.start - GLOBAL_BASE) & (positions < one.end - GLOBAL_BASE))
            for one in self.allocations
            if one.read_only
        ]

    def load(self) -> None:
        """Copy the callers' memory to where kernels see it."""
        self.arena = np.zeros(-(-(self._next - GLOBAL_BASE) // ALIGNMENT) * ALIGNMENT, np.uint8)
        self._views = {size: self.arena.view(word) for size, word in WORDS.items()}
        for one in self.allocations:
            self._of(one)[...] = one.bytes

    def store(self) -> None:
        """Copy what kernels left to the callers' memory."""
        for one in self.allocations:
            if not one.read_only:
                one.bytes[...] = self._of(one)

    def view(self, size: int) -> Array:
        """All of it as words of so many bytes; word i is at GLOBAL_BASE + i * size."""
        return self._views[size]

    def describe(self, position: int) -> str:
        """Which byte of which allocation is at this position of the arena."""
        one = self.allocation_at(GLOBAL_BASE + position)
        return (
            f"byte {GLOBAL_BASE + position - one.start} of {one.name}" if one else f"byte {position}, which is in no allocation"
        )

    def offsets(self, addresses: Array, size: int) -> Array:
        """int64, from GLOBAL_BASE, of accesses, each in one allocation. Raises `OutOfBounds` with the first that is not."""
        low, high = int(addresses.min()), int(addresses.max())
        index = bisect_right(self._starts, low) - 1
        if index < 0 or high + size > self.allocations[index].end:
            self._check(addresses, size)
        return (addresses - np.uint64(GLOBAL_BASE)).view(np.int64)

    def allocation_at(self, address: int) -> Allocation | None:
        """The one that holds this byte."""
        index = bisect_right(self._starts, address) - 1
        return self.allocations[index] if index >= 0 and address < self.allocations[index].end else None

    def _allocate(self, name: str, host: int, size: int, members: Sequence[Any]) -> Allocation:
        """The next allocation: `size` bytes at `host` in the caller's process, which `members` are part of."""
        called = name or f"allocation {len(self.allocations)}"
        one = Allocation(called, self._next, _bytes_at(host, size, members), all(_is_read_only(each) for each in members))
        self.allocations.append(one)
        self._starts.append(one.start)
        self._next += -(-(size + GUARD) // ALIGNMENT) * ALIGNMENT
        return one

    def _holding(self, base: int, size: int) -> tuple[int, Allocation] | None:
        """Where in the caller's process the allocation that has these bytes begins, and which that is."""
        found = ((start, one) for start, end, one in self._hosts if start <= base and base + size <= end)
        return next(found, None)

    def _of(self, one: Allocation) -> Array:
        return self.arena[one.start - GLOBAL_BASE : one.end - GLOBAL_BASE]

    def _check(self, addresses: Array, size: int) -> None:
        starts = np.array([0, *self._starts], np.uint64)
        ends = np.array([0, *(one.end for one in self.allocations)], np.uint64)
        end = ends[np.searchsorted(starts, addresses, side="right") - 1]
        outside = (addresses >= end) | (end - addresses < np.uint64(size))
        if outside.any():
            where = tuple(int(i) for i in np.argwhere(outside)[0])
            raise OutOfBounds(where, self._sentence(int(addresses[where]), size))

    def _sentence(self, address: int, size: int) -> str:
        if address < GLOBAL_BASE or not self.allocations:
            return f"{size} B at {address:#x}, which is no global memory"
        index = max(bisect_right(self._starts, address) - 1, 0)
        one = self.allocations[index]
        return f"{size} B at {address:#x}, {address - one.start} B from the start of {one.name}, which has {one.bytes.size} B"


class OutOfBounds(EmulationError):
    """Which of the accesses of an instruction is at fault, and how."""

    def __init__(self, where: tuple[int, ...], sentence: str) -> None:
        super().__init__(sentence)
        self.where = where


class BlockMemory:
    """Memory of which each owner has its own: the shared memory of blocks, the local memory of threads.

    `defined` knows which bytes were ever written: reading another is an error.
    """

    def __init__(self, owners: int, size: int) -> None:
        self.size = -(-size // 16) * 16
        self.limit = size
        self.bytes = np.full(owners * self.size, POISON, np.uint8)
        self.defined = np.zeros(owners * self.size, bool)
        self._views: dict[int, Array] = {word_size: self.bytes.view(word) for word_size, word in WORDS.items()}
        self._defined: dict[int, Array] = {word_size: self.defined.view(word) for word_size, word in WORDS.items()}

    def forget(self) -> None:
        """As if nothing had been written."""
        self.bytes[...] = POISON
        self.defined[...] = False

    def view(self, size: int) -> Array:
        """All of it as words of so many bytes; owner o's byte i is byte o * self.size + i."""
        return self._views[size]

    def offsets(self, owners: Array, inside: Array, size: int) -> Array:
        """Positions of accesses at byte `inside` of their owner's memory, unsigned. Raises `OutOfBounds` with the first that is
        outside."""
        if int(inside.max(initial=0)) + size > self.limit:
            outside = inside > self.limit - size if size <= self.limit else np.ones(inside.shape, bool)
            where = tuple(int(i) for i in np.argwhere(outside)[0])
            raise OutOfBounds(where, f"{size} B at byte {int(inside[where])} of {self.limit}")
        return owners + inside.astype(np.int64)

    def first_undefined(self, words: Array, size: int) -> tuple[int, ...] | None:
        """Which of these words of `size` bytes has a byte that nobody wrote."""
        found = self._defined[size].take(words).view(self._defined[min(size, 8)].dtype)
        whole = DEFINED[found.itemsize]
        if found.min() == whole:
            return None
        undefined = (found != whole).reshape(*words.shape, -1).any(axis=-1)
        return tuple(int(i) for i in np.argwhere(undefined)[0])

    def define(self, words: Array, size: int, *, defined: bool = True) -> None:
        """These words of `size` bytes were written; or, with `defined` false, are about to be: nobody may read them before."""
        self._defined[size][words] = np.full(size, defined).view(WORDS[size])[0]


def _extent(array: Any) -> tuple[int, int, int]:
    """(address of the first element, address and bytes of the memory that it is part of)."""
    if isinstance(array, np.ndarray):
        owner = _owner(array)
        steps = [(size - 1) * stride for size, stride in zip(owner.shape, owner.strides, strict=True)] if owner.size else []
        low = owner.ctypes.data + sum(min(step, 0) for step in steps)
        size = sum(abs(step) for step in steps) + owner.itemsize if owner.size else 0
        return array.ctypes.data, low, size
    storage = array.untyped_storage()
    return array.data_ptr(), storage.data_ptr(), storage.nbytes()


def _owner(array: Array) -> Array:
    """The array that it is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _is_read_only(array: Any) -> bool:
    return isinstance(array, np.ndarray) and not array.flags.writeable


def _bytes_at(address: int, size: int, members: Sequence[Any]) -> Array:
    """`size` bytes at `address`, which live as long as `members`, the arrays that are part of them."""
    for array in members:
        owner = _owner(array) if isinstance(array, np.ndarray) else None
        if owner is not None and owner.flags.c_contiguous and (owner.ctypes.data, owner.nbytes) == (address, size):
            return owner.reshape(-1).view(np.uint8)
    buffer = (ctypes.c_uint8 * size).from_address(address) if size else (ctypes.c_uint8 * 0)()
    buffer._keeps = members  # type: ignore[attr-defined]
    return np.asarray(buffer)
