"""What one memory instruction of n warps moves: sectors of global memory, wavefronts of shared memory.

Global memory is moved in sectors of 32 bytes. Shared memory has 32 banks, each giving one word of 4 bytes a wavefront, to as
many lanes as want that word. An instruction whose lanes want 8 or 16 bytes each is served half a warp or a quarter at a time.

All are pure functions of arrays [warps, 32]; every access is aligned to its own size, which the caller has checked. What
cp.async and bulk copies put into shared memory goes another way, and is not counted here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from impls.cuda.emulator.hardware import LANES, SECTOR
from impls.cuda.emulator.rules import Rule

WORD = 4
"""Bytes of a bank in one wavefront."""
WAVEFRONT = 128
"""Bytes that one wavefront moves at most: a word of each bank."""
ROW = 16
"""Bytes of a row of the matrices that ldmatrix and stmatrix move."""
ROWS = 8
"""Of such a matrix."""

RULES: dict[str, Rule] = {
    "sectors of a request": Rule("documented only", 'CUDA C++ Programming Guide 13.0, "Compute Capability 5.x", Global Memory'),
    "wide accesses go by halves and quarters of a warp": Rule(
        "documented only", 'CUDA C Programming Guide 4.2, "Compute Capability 2.x", Global Memory and Shared Memory'
    ),
    "banks of shared memory": Rule(
        "documented only", 'CUDA C++ Programming Guide 13.0, "Compute Capability 5.x", Shared Memory'
    ),
    "parts of a warp that want the same words go together": Rule(
        "documented only",
        "an NVIDIA engineer's answer, forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228",
    ),
    "matrix rows": Rule("documented only", 'PTX ISA 9.1, "ldmatrix": eight rows of 16 bytes a matrix'),
}

_UNUSED = np.int64(1) << 60
"""A sector that no lane has: idle lanes get it."""
_CHUNK_BITS = 16
"""Chunks of shared memory, words or wider, have numbers below 2^16: no SM has more than 256 KiB."""
_IDLE = np.int32(-1)
"""A chunk that no lane has: idle lanes get it."""


def sectors(addresses: NDArray[np.integer], size: int, active: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Sectors that each warp's access of `size` bytes a lane touches, [warps].

    Lanes of one part of the warp that touch the same sector share it; the parts of a wide access (see above) do not.
    """
    requests = _parts(size)
    if _contiguous(addresses, size, active) and not (addresses[:, 0] % SECTOR).any():
        return np.full(len(addresses), LANES * size // SECTOR or 1)
    per_lane = max(1, size // SECTOR)
    first = (addresses >> (SECTOR.bit_length() - 1)).astype(np.int64)
    touched = np.where(active, first, _UNUSED).reshape(-1, LANES // requests)
    if per_lane > 1:
        touched = np.concatenate([np.where(touched == _UNUSED, _UNUSED, touched + step) for step in range(per_lane)], axis=1)
    return _distinct(touched).reshape(-1, requests).sum(axis=1)


class Wavefronts(NamedTuple):
    """What shared memory does for one instruction of each warp; arrays [warps]."""

    taken: NDArray[np.int64]
    ideal: NDArray[np.int64]
    """Without bank conflicts: one for each part of the warp that is served apart."""
    least_bytes: NDArray[np.int64]
    """What the banks deliver for it at least, however the assembler divides the work: it may join narrow accesses to
    neighbouring words into one of up to 16 bytes a lane, which has other conflicts. Never more than 128 a wavefront taken."""


def wavefronts(offsets: NDArray[np.unsignedinteger], size: int, active: NDArray[np.bool_]) -> Wavefronts:
    """Of a load from, or a store to, `offsets` of shared memory, `size` bytes a lane (1 to 16).

    A part of a warp takes as many wavefronts as there are different words wanted of one bank.
    """
    parts, chunk = _parts(size), max(size, WORD)
    chunks = (offsets >> (chunk.bit_length() - 1)).astype(np.int32).reshape(-1, LANES // parts)
    everyone = bool(active.all())
    if everyone and _is_conflict_free(chunks):
        taken = np.full(len(offsets), parts)
        return Wavefronts(taken, taken, np.full(len(offsets), LANES * size))
    if not everyone:
        chunks[~active.reshape(chunks.shape)] = _IDLE
    served = _served(chunks, LANES // parts)
    if parts > 1:
        pairs = chunks.reshape(-1, 2 * LANES // parts)
        alike = _in_pairs(pairs)  # of 16 bytes a half is judged by itself: never more than the rule, which speaks of all lanes
        served = served[:, 0::2] + served[:, 1::2]
        if alike.any():  # then the two parts are served together
            served = np.where(alike, _served(pairs, LANES // parts), served)
        if parts > 2:
            served = served[:, 0::2] + served[:, 1::2]
    taken, ideal, distinct = served
    least = WAVEFRONT * taken if size == ROW else np.maximum(distinct * size, 8 * size * ideal.astype(np.bool_))
    return Wavefronts(taken, ideal, least)


def matrix_wavefronts(rows: NDArray[np.unsignedinteger], matrices: int) -> Wavefronts:
    """Of ldmatrix or stmatrix: the first 8 * `matrices` lanes of `rows` [warps, 32] hold the offsets of rows."""
    chunks = (rows[:, : ROWS * matrices] >> (ROW.bit_length() - 1)).astype(np.int32).reshape(-1, ROWS)
    ideal = np.full(len(rows), matrices)
    if _is_conflict_free(chunks):
        return Wavefronts(ideal, ideal, WAVEFRONT * ideal)
    taken = _served(chunks, ROWS)[0].reshape(-1, matrices).sum(axis=1)
    return Wavefronts(taken, ideal, WAVEFRONT * taken)


def _parts(size: int) -> int:
    """Into how many parts a warp's access of `size` bytes a lane is divided."""
    return max(1, min(size, 16) // WORD)


def _contiguous(addresses: NDArray[np.integer], size: int, active: NDArray[np.bool_]) -> bool:
    """Whether every lane of every warp is active and stands `size` bytes after the one before it."""
    return bool(active.all()) and bool((addresses[:, 1:] - addresses[:, :-1] == size).all())


def _distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many different ones each row has, without those that idle lanes hold."""
    ordered = np.sort(numbers, axis=1)
    new = ordered[:, 1:] != ordered[:, :-1]
    new &= ordered[:, 1:] != _UNUSED
    return np.count_nonzero(new, axis=1) + (ordered[:, 0] != _UNUSED)


def _is_conflict_free(chunks: NDArray[np.int32]) -> bool:
    """Whether the chunks of every row lie in different banks; there are as many banks as lanes, and all are active."""
    banks = chunks.shape[1]
    bits = np.left_shift(np.uint32(1), (chunks & (banks - 1)).astype(np.uint32))
    return bool((np.bitwise_or.reduce(np.ascontiguousarray(bits.T), axis=0) == (1 << banks) - 1).all())


def _served(chunks: NDArray[np.int32], banks: int) -> NDArray[np.int64]:
    """[3, rows]: the most different chunks of one bank, whether there are any, and how many different ones.

    A bank is here as wide as a chunk.
    """
    rows = len(chunks)
    if banks * rows > 1 << (32 - _CHUNK_BITS):  # more than sort fast, as 32 bits
        return np.concatenate([_served(half, banks) for half in np.array_split(chunks, 2)], axis=1)
    place = (chunks & (banks - 1)) * rows + np.arange(rows, dtype=np.int32)[:, None]
    keys = (place.astype(np.uint32) << _CHUNK_BITS) + chunks.view(np.uint32)
    ordered = keys[chunks != _IDLE]
    ordered.sort()
    different = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=different[1:])
    counts = np.bincount(ordered[different] >> _CHUNK_BITS, minlength=banks * rows).reshape(banks, rows)
    most = counts.max(axis=0)
    return np.stack((most, most > 0, counts.sum(axis=0)))


def _in_pairs(chunks: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether in each row every lane wants what lane ^ 1 wants, or every lane what lane ^ 2 wants; idle lanes want anything."""
    fours = chunks.reshape(len(chunks), -1, 4)
    found = np.zeros(len(chunks), np.bool_)
    if not ((fours[:, 0, 1:3] == fours[:, 0, :1]) | (fours[:, 0, :3] == _IDLE).any(axis=1, keepdims=True)).any():
        return found
    for first, second in ((fours[:, :, 0::2], fours[:, :, 1::2]), (fours[:, :, :2], fours[:, :, 2:])):
        alike = (first == second) | (first == _IDLE) | (second == _IDLE)
        found |= alike.reshape(len(chunks), -1).all(axis=1)
    return found
