"""float64 operations in exact integers, one element at a time: where NumPy has no such operation or no such rounding."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.arithmetic.rounding import two_sum

_PRECISION = 53
_LEAST_EXPONENT = -1074
_LARGEST = math.ldexp(1 - 2.0**-53, 1024)


def _rounded(numerator: int, denominator: int, mode: str) -> float:
    """numerator / denominator, not zero, as the float that `mode` picks."""
    negative = numerator < 0
    numerator = abs(numerator)
    # 2^exponent is the last place: the quotient below has 53 or 54 bits.
    exponent = max(numerator.bit_length() - denominator.bit_length() - _PRECISION, _LEAST_EXPONENT)
    if (numerator << max(-exponent, 0)) // (denominator << max(exponent, 0)) >> _PRECISION:
        exponent += 1
    whole, rest = divmod(numerator << max(-exponent, 0), denominator << max(exponent, 0))
    half = 2 * rest - (denominator << max(exponent, 0))
    up = {"rn": half > 0 or (half == 0 and whole & 1 == 1), "rz": False, "rm": negative, "rp": not negative}[mode]
    whole += up and rest > 0
    if whole.bit_length() + exponent > 1024:
        size = math.inf if up or mode == "rn" else _LARGEST
    else:
        size = math.ldexp(whole, exponent)
    return -size if negative else size


def _sum(mode: str, *terms: tuple[int, int]) -> float | None:
    """The sum of quotients; None if it is zero."""
    top, bottom = 0, 1
    for numerator, denominator in terms:
        top, bottom = top * denominator + numerator * bottom, bottom * denominator
    return _rounded(top, bottom, mode) if top else None


def _zero(mode: str, *signs: float) -> float:
    """An exact zero sum of terms with these signs: they agree, or it is +0, or -0 when rounding down."""
    negative = [math.copysign(1, sign) < 0 for sign in signs]
    return -0.0 if all(negative) or (any(negative) and mode == "rm") else 0.0


def _add(mode: str, a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    total = _sum(mode, a.as_integer_ratio(), b.as_integer_ratio())
    return _zero(mode, a, b) if total is None else total


def _mul(mode: str, a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)) or a == 0 or b == 0:
        return a * b
    (p, q), (r, s) = a.as_integer_ratio(), b.as_integer_ratio()
    return _rounded(p * r, q * s, mode)


def _fma(mode: str, a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    (p, q), (r, s) = a.as_integer_ratio(), b.as_integer_ratio()
    total = _sum(mode, (p * r, q * s), c.as_integer_ratio())
    return _zero(mode, math.copysign(1, a) * math.copysign(1, b), c) if total is None else total


def _div(mode: str, a: float, b: float) -> float:
    if math.isfinite(a) and math.isfinite(b) and a != 0 and b != 0:
        (p, q), (r, s) = a.as_integer_ratio(), b.as_integer_ratio()
        return _rounded(int(math.copysign(1, r)) * p * s, q * abs(r), mode)
    return float(np.divide(a, b))


def _sqrt(mode: str, a: float) -> float:
    if not a > 0 or math.isinf(a):
        return a if a == 0 or a > 0 else math.nan
    top, bottom = a.as_integer_ratio()
    # The root has over 64 bits, and one more that says whether it goes on.
    shift = 64 + bottom.bit_length()
    scaled, rest = divmod(top << 2 * shift, bottom)
    root = math.isqrt(scaled)
    inexact = root * root != scaled or rest != 0
    return _rounded(2 * root + inexact, 2 << shift, mode)


_SCALAR: dict[str, Callable[..., float]] = {"add": _add, "mul": _mul, "fma": _fma, "div": _div, "sqrt": _sqrt}


def exact64(name: str, mode: str) -> Callable[..., Array]:
    """The operation on float64 arrays."""
    scalar = _SCALAR[name]
    count = {"fma": 3, "sqrt": 1}.get(name, 2)
    each = np.frompyfunc(lambda *values: scalar(mode, *values), count, 1)
    return lambda *arrays: np.asarray(each(*(a.astype(object) for a in arrays)), dtype=np.float64)


def directed64(parts: tuple[Array, Array], mode: str) -> Array:
    """The sum of both parts, which must not overflow, as float64 in the direction of `mode`."""
    total, error = two_sum(*parts)
    bits = total.view(np.int64)
    away = np.where(bits < 0, -1, 1)  # to the pattern of the next number up
    if mode == "rz":
        step = np.where((error != 0) & ((error < 0) == (total > 0)), -1, 0)
    elif mode == "rm":
        step = np.where(error < 0, -away, 0)
    else:
        step = np.where(error > 0, away, 0)
    return (bits + step).view(np.float64)
