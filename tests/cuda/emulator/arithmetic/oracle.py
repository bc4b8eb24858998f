"""Floating-point arithmetic from its definition: exact rational numbers, and their neighbours among all numbers of a format.

Slow and independent of NumPy: a result is found by bisection over the bit patterns, which are ordered as the magnitudes are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from impls.cuda.emulator.arithmetic import operation, register


@dataclass(frozen=True)
class Binary:
    """Sign, exponent and fraction bits of an IEEE 754 format, and the NaN that a GPU makes."""

    exponent: int
    fraction: int
    nan: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def least_normal(self) -> int:
        return 1 << self.fraction

    def parts(self, pattern: int) -> tuple[int, int]:
        """m and e of the value m * 2^e of a pattern without sign; infinity counts as the number after the largest."""
        exponent, fraction = divmod(pattern, 1 << self.fraction)
        bias = (1 << (self.exponent - 1)) - 1
        if exponent:
            fraction += 1 << self.fraction
        return fraction, max(exponent, 1) - bias - self.fraction

    def magnitude(self, pattern: int) -> Fraction:
        """The value of a pattern without sign."""
        fraction, exponent = self.parts(pattern)
        return Fraction(fraction << exponent) if exponent >= 0 else Fraction(fraction, 1 << -exponent)

    def reaches(self, size: Fraction, pattern: int) -> bool:
        """Whether `size` is at least the value of a pattern without sign."""
        fraction, exponent = self.parts(pattern)
        return size.numerator << max(-exponent, 0) >= fraction * size.denominator << max(exponent, 0)


FORMATS = {
    "f16": Binary(5, 10, 0x7FFF),
    "bf16": Binary(8, 7, 0x7FFF),
    "f32": Binary(8, 23, 0x7FFF_FFFF),
    "f64": Binary(11, 52, 0xFFF8 << 48),
}


@dataclass(frozen=True)
class Number:
    """A decoded register: a NaN, an infinity, or an exact value with the sign of its zero."""

    kind: str
    negative: bool
    value: Fraction = Fraction(0)

    @property
    def rough(self) -> float:
        """A float of the same sign and kind: finite numbers that are not zero become 1."""
        size = {"nan": math.nan, "inf": math.inf, "zero": 0.0}.get(self.kind, 1.0)
        return -size if self.negative else size


def decode(pattern: int, form: Binary) -> Number:
    negative, size = bool(pattern & form.sign), pattern & (form.sign - 1)
    if size >= form.infinity:
        return Number("inf" if size == form.infinity else "nan", negative)
    value = form.magnitude(size)
    return Number("finite" if value else "zero", negative, -value if negative else value)


def rounded(value: Fraction, form: Binary, mode: str) -> int:
    """The pattern of `value`, which is not zero, rounded once."""
    negative, size = value < 0, abs(value)
    low, high = 0, form.infinity  # magnitude(low) <= size < magnitude(high), or size is beyond all
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if form.reaches(size, middle) else (low, middle)
    below, above = form.magnitude(low), form.magnitude(low + 1)
    up = {
        "rn": (size - below, low & 1) > (above - size, 0) or (size - below == above - size and low & 1 == 1),
        "rna": size - below >= above - size,
        "rz": False,
        "rm": negative,
        "rp": not negative,
    }[mode]
    pattern = low + (size != below and up)
    return pattern | (form.sign if negative else 0)


def _of_float(x: float, form: Binary) -> int:
    """The pattern of a NaN, an infinity or a zero."""
    if x != x:
        return form.nan
    return (form.infinity if x else 0) | (form.sign if math.copysign(1, x) < 0 else 0)


def compute(name: str, arguments: list[Number], form: Binary, mode: str) -> int:
    """The pattern that IEEE 754 gives for `name` of `arguments`."""
    rough = [x.rough for x in arguments]
    values = [x.value for x in arguments]
    if any(x.kind == "nan" for x in arguments):
        return form.nan
    if name == "sub":
        flipped = Number(arguments[1].kind, not arguments[1].negative, -values[1])
        return compute("add", [arguments[0], flipped], form, mode)
    if name == "rcp":
        return compute("div", [Number("finite", False, Fraction(1)), arguments[0]], form, mode)
    if name == "sqrt":
        return _root(arguments[0], form, mode)
    if name == "div":
        if arguments[0].kind == arguments[1].kind == "finite":
            return rounded(values[0] / values[1], form, mode)
        sign = math.copysign(1, rough[0]) * math.copysign(1, rough[1])
        if arguments[1].kind == "zero":
            return _of_float(math.nan if arguments[0].kind == "zero" else sign * math.inf, form)
        if arguments[1].kind == "inf":
            return _of_float(math.nan if arguments[0].kind == "inf" else sign * 0.0, form)
        return _of_float(rough[0] * sign * math.copysign(1, rough[0]), form)
    if name == "mul":
        product = rough[0] * rough[1]
        return rounded(values[0] * values[1], form, mode) if abs(product) == 1 else _of_float(product, form)
    if name == "fma":
        product = rough[0] * rough[1]
        kind = {0.0: "zero", math.inf: "inf", 1.0: "finite"}.get(abs(product), "nan")
        first = Number(kind, math.copysign(1, product) < 0, values[0] * values[1])
        return compute("add", [first, arguments[2]], form, mode)
    assert name == "add"
    if any(x.kind == "inf" for x in arguments):
        return _of_float(
            rough[0] + rough[1] if len({r for r in rough if math.isinf(r)}) == 2 else next(r for r in rough if math.isinf(r)),
            form,
        )
    total = values[0] + values[1]
    if total:
        return rounded(total, form, mode)
    if arguments[0].negative == arguments[1].negative:
        return form.sign if arguments[0].negative else 0
    return form.sign if mode == "rm" else 0


def _root(x: Number, form: Binary, mode: str) -> int:
    if x.kind == "zero" or (x.kind == "inf" and not x.negative):
        return _of_float(x.rough, form)
    if x.negative:
        return form.nan
    low, high = 0, form.infinity
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if form.magnitude(middle) ** 2 <= x.value else (low, middle)
    below, above = form.magnitude(low), form.magnitude(low + 1)
    if below**2 == x.value:
        return low
    nearer_above = ((below + above) / 2) ** 2 < x.value  # no root is on a midpoint
    return low + {"rn": nearer_above, "rz": False, "rm": False, "rp": True}[mode]


def flush(pattern: int, form: Binary) -> int:
    size = pattern & (form.sign - 1)
    return pattern & form.sign if size < form.least_normal else pattern


def result_flushed(form: Binary, compute_in: Callable[[Binary], int]) -> int:
    """What .ftz leaves of a result, given as a function of its format: zero where, with all bits but no least exponent, it is
    below the normal numbers."""
    found = compute_in(form)
    if found & (form.sign - 1) > form.least_normal:
        return found
    unlimited = replace(form, exponent=form.exponent + 3)
    size = abs(decode(compute_in(unlimited), unlimited).value)
    return found & form.sign if size < form.magnitude(form.least_normal) else found


def specials(form: Binary) -> list[int]:
    """Zeros, subnormal numbers, limits, infinities and NaNs, of both signs, and ones."""
    one = ((1 << (form.exponent - 1)) - 1) << form.fraction
    sizes = [
        0,
        1,
        2,
        form.least_normal - 1,
        form.least_normal,
        form.least_normal + 1,
        one - 1,
        one,
        one + 1,
        one + form.least_normal,
    ]
    sizes += [form.infinity - 1, form.infinity, form.infinity + 1, form.sign - 1]
    return [size | sign for size in sizes for sign in (0, form.sign)]


def numbers(form: Binary, count: int, seed: int) -> list[int]:
    """Patterns of any exponent, half of them near one and few-bit so that sums cancel and ties occur."""
    random_ = random.Random(seed)
    one = ((1 << (form.exponent - 1)) - 1) << form.fraction
    found = []
    for _ in range(count):
        if random_.random() < 0.4:
            found.append(random_.getrandbits(form.bits))
            continue
        exponent = random_.randint(-form.fraction - 2, form.fraction + 2)
        fraction = random_.getrandbits(form.fraction)
        if random_.random() < 0.5:
            fraction &= -1 << (form.fraction - 4)
        found.append((one + (exponent << form.fraction)) | fraction | (form.sign if random_.random() < 0.5 else 0))
    return [pattern & (2 * form.sign - 1) for pattern in found]


_PIECE = 16


def run(opcode: str, modifiers: str, *columns: list[int], results: int = 1) -> list[int]:
    """The emulator's results for columns of operands.

    Computed at once and in small pieces: functions take short cuts when no lane needs more, which must not show.
    """
    op = operation(opcode, tuple(modifiers.split(".")), results=results, operands=len(columns))
    arrays = [np.array(column, dtype=register(kind)) for column, kind in zip(columns, op.operands, strict=True)]
    with np.errstate(all="ignore"):
        found = op.function(*arrays)
        pieces = [op.function(*(a[i : i + _PIECE] for a in arrays)) for i in range(0, len(columns[0]), _PIECE)]
    assert found.dtype == register(op.results[0])
    assert np.array_equal(found, np.concatenate(pieces))
    return [int(x) for x in found]
