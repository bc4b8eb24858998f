"""Inputs for what a lane does by itself: random, near each other, far apart, at the edges of formats, and special.

Each regime fills a part of the threads; which part is mixed, so that any stretch of warps has them all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impls.cuda.confirm.probe import Words

THREADS = 4096


@dataclass(frozen=True)
class Layout:
    """Of a floating-point format."""

    exponent_bits: int
    fraction_bits: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1

    def pack(self, sign: np.ndarray, exponent: np.ndarray, fraction: np.ndarray) -> np.ndarray:
        """Codes from sign bits, exponent fields, which are clamped to those of numbers, and fractions."""
        field = np.clip(exponent, 0, (1 << self.exponent_bits) - 2).astype(np.uint64)
        top = sign.astype(np.uint64) << np.uint64(self.bits - 1)
        return top | field << np.uint64(self.fraction_bits) | fraction.astype(np.uint64)


LAYOUTS = {"f64": Layout(11, 52), "f32": Layout(8, 23), "f16": Layout(5, 10), "bf16": Layout(8, 7)}


def floats(kind: str, operands: int, rng: np.random.Generator) -> Words:
    """Words [THREADS, ...] of so many operands. A word holds two 16-bit numbers; a 64-bit one takes two words."""
    layout = LAYOUTS[kind]
    per_word = 32 // layout.bits
    count = operands * max(per_word, 1)
    codes = np.concatenate([regime(layout, rng, THREADS // 8, count) for regime in _REGIMES for _ in range(2)])
    codes = rng.permutation(codes)
    if layout.bits == 64:
        return np.ascontiguousarray(codes).view(np.uint32)
    if per_word == 1:
        return codes.astype(np.uint32)
    pairs = codes.reshape(THREADS, operands, 2)
    return (pairs[..., 0] | pairs[..., 1] << np.uint64(16)).astype(np.uint32)


def _any_bits(layout: Layout, rng: np.random.Generator, rows: int, count: int) -> np.ndarray:
    return (
        rng.integers(0, 1 << layout.bits, (rows, count), np.uint64, endpoint=False)
        if layout.bits < 64
        else _words64(rng, rows, count)
    )


def _words64(rng: np.random.Generator, rows: int, count: int) -> np.ndarray:
    return rng.integers(0, 2**64 - 1, (rows, count), np.uint64, endpoint=True)


def _near_one(layout: Layout, rng: np.random.Generator, rows: int, count: int) -> np.ndarray:
    """Exponents within 4 of each other around a few: sums cancel, functions are in their interesting range. A third of the
    rows is ties: fractions of few bits, at the top or at the bottom."""
    exponent = layout.bias + rng.integers(-4, 9, (rows, count)) + rng.choice([0, 0, 0, -12, 12], (rows, 1))
    fraction = rng.integers(0, 1 << layout.fraction_bits, (rows, count))
    few = rng.integers(0, 4, (rows, count)) << rng.choice([0, layout.fraction_bits - 2], (rows, count))
    fraction = np.where(np.arange(rows)[:, None] % 3 == 0, few, fraction)
    return layout.pack(rng.integers(0, 2, (rows, count)), exponent, fraction)


def _cancelling(layout: Layout, rng: np.random.Generator, rows: int, count: int) -> np.ndarray:
    """The operands differ in the sign and in few last bits, or one is the other's, one rounding step further down."""
    first = _near_one(layout, rng, rows, 1)
    codes = np.repeat(first, count, axis=1) ^ rng.integers(0, 4, (rows, count)).astype(np.uint64)
    codes = codes ^ rng.integers(0, 2, (rows, count)).astype(np.uint64) << np.uint64(layout.bits - 1)
    below = rng.integers(0, layout.fraction_bits + 4, (rows, count)).astype(np.uint64) << np.uint64(layout.fraction_bits)
    return np.where(rng.integers(0, 3, (rows, count)) == 0, codes - np.minimum(below, codes >> np.uint64(1)), codes)


def _at_the_edges(layout: Layout, rng: np.random.Generator, rows: int, count: int) -> np.ndarray:
    """Special values, and numbers next to what converts, overflows or underflows."""
    top = ((1 << layout.exponent_bits) - 1) << layout.fraction_bits
    whole = {
        e: (layout.bias + e) << layout.fraction_bits
        for e in range(-16, 17)
        if 0 < layout.bias + e < top >> layout.fraction_bits
    }
    small = [0, 1, 2, 3, (1 << layout.fraction_bits) - 1, 1 << layout.fraction_bits, (1 << layout.fraction_bits) + 1]
    great = [top - 1, top - 2, top, top + 1, top | (1 << layout.fraction_bits - 1), (1 << layout.bits - 1) - 1]
    further = [
        (layout.bias + e) << layout.fraction_bits for e in (-149, -126, -30, 30, 31, 32, 62, 63, 64, 126) if layout.bias + e > 0
    ]
    further = [code for code in further if code < top]
    known = np.array([*small, *great, *whole.values(), *further], np.uint64)
    codes = rng.choice(known, (rows, count)) + rng.integers(-1, 2, (rows, count)).astype(np.uint64) * (
        rng.integers(0, 2, (rows, count)).astype(np.uint64)
    )
    codes &= np.uint64((1 << layout.bits - 1) - 1)
    return codes | rng.integers(0, 2, (rows, count)).astype(np.uint64) << np.uint64(layout.bits - 1)


_REGIMES = (_any_bits, _near_one, _cancelling, _at_the_edges)


def integers(rng: np.random.Generator) -> Words:
    """Three words: any, small ones, and those next to powers of two."""
    shape = (THREADS // 4, 3)
    anything = rng.integers(0, 2**32, (2 * shape[0], 3))
    small = rng.integers(-40, 41, shape)
    edges = (1 << rng.integers(0, 33, shape)) + rng.integers(-1, 2, shape)
    edges = np.where(rng.integers(0, 2, shape) == 0, edges, -edges)
    words = np.concatenate([anything, small, edges]) & 0xFFFF_FFFF
    words[: THREADS // 4, 2] %= 64  # shift amounts and selectors
    return rng.permutation(words).astype(np.uint32)


def every_byte_pair(rng: np.random.Generator) -> Words:
    """Every byte beside every eighth byte, and above them any bits."""
    low, high = np.divmod(np.arange(256 * 32), 32)
    words = low | (8 * high + low % 8) << 8 | rng.integers(0, 1 << 16, 256 * 32) << 16
    return rng.permutation(words)[:, None].astype(np.uint32)
