"""Operands of mma.sync, a regime for each warp: what is large, what cancels and what is lost differs from one to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from impls.cuda.confirm.probe import Words

Array = np.ndarray
WARPS = 512
ANY_BITS, LIKE_EACH_OTHER, FAR_APART, WINDOW, CANCELLING, HUGE_C, TINY_C, MANY_ZEROS = range(8)


@dataclass(frozen=True)
class Element:
    """A floating-point format in its container."""

    exponent_bits: int
    fraction_bits: int
    container: int
    shift: int = 0
    has_infinity: bool = False

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1

    @property
    def largest_exponent(self) -> int:
        """Field of the largest number."""
        return (1 << self.exponent_bits) - 1 - self.has_infinity

    def codes(self, rng: np.random.Generator, exponents: Array) -> Array:
        """Codes with these unbiased exponents, as near as there are."""
        field = np.clip(exponents + self.bias, 0, self.largest_exponent)
        fraction = rng.integers(0, 1 << self.fraction_bits, exponents.shape)
        sign = rng.integers(0, 2, exponents.shape)
        return ((sign << self.exponent_bits | field) << self.fraction_bits | fraction) << self.shift

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1 + self.shift)


ELEMENTS = {
    "f16": Element(5, 10, 16, has_infinity=True),
    "bf16": Element(8, 7, 16, has_infinity=True),
    "tf32": Element(8, 10, 32, shift=13, has_infinity=True),
    "e4m3": Element(4, 3, 8),
    "e5m2": Element(5, 2, 8, has_infinity=True),
    "e3m2": Element(3, 2, 8),
    "e2m3": Element(2, 3, 8),
    "e2m1": Element(2, 1, 8, shift=2),
    "nibble": Element(2, 1, 4),
}
_SINGLE = Element(8, 23, 32, has_infinity=True)
_HALF = ELEMENTS["f16"]


@dataclass(frozen=True)
class Scale:
    """A format of scale factors, 8 bits of no sign."""

    one: int
    step: int
    """Codes from one power of two to the next."""
    mask: int


SCALES = {"ue8m0": Scale(127, 1, 0xFF), "ue4m3": Scale(0x38, 8, 0x7F)}


def operands(a: Element, b: Element, scale: Scale, rng: np.random.Generator) -> Words:
    """Words [threads, 14] of A, B, both kinds of C and the scales."""
    regimes = rng.permutation(np.arange(WARPS) % 8)
    spread = rng.choice([6, 13, 26], WARPS)
    elements_a, elements_b = _elements(a, rng, regimes, spread, 4), _elements(b, rng, regimes, spread, 2)
    cancels = regimes == CANCELLING
    within = cancels & (rng.integers(0, 2, WARPS) == 0)
    _cancel(elements_a, elements_b, a, rng, cancels & ~within, within)
    offset = {HUGE_C: (4, 36), TINY_C: (-44, -14), WINDOW: (-30, 31)}
    low, high = (np.array([offset.get(regime, (-3, 9))[side] for regime in regimes]) for side in (0, 1))
    exponents = rng.integers(low[:, None, None], high[:, None, None], (WARPS, 32, 4))
    single, half = (_accumulator(each, rng, regimes, exponents) for each in (_SINGLE, _HALF))
    scales = _scales(scale, rng, regimes)
    halves = half[..., ::2] | half[..., 1::2] << 16
    words = np.concatenate([_words(a, elements_a), _words(b, elements_b), single, halves, scales], axis=2)
    return words.reshape(WARPS * 32, -1).astype(np.uint32)


def _elements(each: Element, rng: np.random.Generator, regimes: Array, spread: Array, registers: int) -> Array:
    """Codes [warps, 32, registers, elements of a register]."""
    shape = (WARPS, 32, registers, 32 // each.container)
    regime, wide = regimes[:, None, None, None], spread[:, None, None, None]
    anything = rng.integers(0, 1 << min(32, each.container), shape)
    near = each.codes(rng, rng.integers(-2, 3, shape))
    far = each.codes(rng, rng.integers(-each.bias, each.largest_exponent - each.bias + 1, shape))
    below = each.codes(rng, 3 - rng.integers(0, wide + 1, shape) * (rng.integers(0, 6, shape) > 0))
    small = each.codes(rng, rng.integers(-each.bias, 3 - each.bias, shape))
    zeros = np.where(rng.integers(0, 10, shape) < 7, rng.choice([0, each.sign], shape), near)
    tables = {ANY_BITS: anything, FAR_APART: far, WINDOW: below, TINY_C: np.where(wide == 6, small, near), MANY_ZEROS: zeros}
    return np.select([regime == number for number in tables], list(tables.values()), near)


def _cancel(a: Array, b: Array, element: Element, rng: np.random.Generator, across: Array, within: Array) -> None:
    """Products in pairs that differ in the sign: of the two halves of K, or of neighbours in a register. Some miss by a bit."""
    slips = (rng.integers(0, 12, a.shape) == 0) << element.shift
    a[across, :, 2:] = a[across, :, :2] ^ element.sign
    b[across, :, 1] = b[across, :, 0]
    if a.shape[3] > 1:
        a[within, ..., 1::2] = a[within, ..., ::2] ^ element.sign
        b[within, ..., 1::2] = b[within, ..., ::2]
    cancels = across | within
    a[cancels] ^= slips[cancels]


def _accumulator(each: Element, rng: np.random.Generator, regimes: Array, exponents: Array) -> Array:
    regime = regimes[:, None, None]
    codes = each.codes(rng, exponents)
    anything = rng.integers(0, 1 << each.bits, exponents.shape)
    zero = rng.choice([0, each.sign], exponents.shape)
    zero = np.where(rng.integers(0, 3, exponents.shape) == 0, codes, zero)
    return np.select([regime == ANY_BITS, (regime == MANY_ZEROS) | (regime == CANCELLING)], [anything, zero], codes)


def _scales(each: Scale, rng: np.random.Generator, regimes: Array) -> Array:
    """Words [warps, 32, 2] of scales: near 1, anything in some regimes."""
    shape = (WARPS, 32, 2, 4)
    near = each.one + rng.integers(-2 * each.step, 2 * each.step + 1, shape)
    wide = each.one + rng.integers(-6 * each.step, 6 * each.step + 1, shape)
    anything = rng.integers(0, 256, shape)
    regime = regimes[:, None, None, None]
    codes = np.select([regime == ANY_BITS, (regime == FAR_APART) | (regime == WINDOW)], [anything, wide], near) & each.mask
    return (codes << (8 * np.arange(4))).sum(axis=3)


def _words(each: Element, codes: Array) -> Array:
    """[warps, 32, registers], the first element in the lowest bits."""
    return (codes << (each.container * np.arange(32 // each.container))).sum(axis=3)


def integers(rng: np.random.Generator) -> Words:
    """Words [threads, 14]: any bytes, and sums next to where they clamp."""
    words = rng.integers(0, 2**32, (WARPS * 32, 14))
    ends = rng.choice([2**31 - 1, 2**31, 0, 2**32 - 1], (WARPS * 32, 4)) + rng.integers(-20_000, 20_000, (WARPS * 32, 4))
    words[: len(words) // 2, 6:10] = ends[: len(words) // 2]
    return (words & 0xFFFF_FFFF).astype(np.uint32)
