"""Bitwise logic, shifts, bit fields and byte permutation."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.forms import (
    BITS,
    SIGNED,
    Array,
    Builder,
    Form,
    Function,
    Operation,
    register,
    signed_register,
)

_BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_ALL32 = np.uint32(0xFFFF_FFFF)


def _bitwise(form: Form) -> Operation:
    kind = form.one("pred", "b16", "b32", "b64")
    return form.done((kind,), (kind, kind), _BITWISE[form.opcode], "logic")


def _not(form: Form) -> Operation:
    kind = form.one("pred", "b16", "b32", "b64")
    return form.done((kind,), (kind,), np.bitwise_not, "logic")


def _cnot(form: Form) -> Operation:
    kind = form.one("b16", "b32", "b64")
    bits = register(kind)
    return form.done((kind,), (kind,), lambda a: (a == 0).astype(bits), "logic")


# lop3

_OF_TWO: dict[int, Function] = {
    # Truth tables of two inputs: bit 2a + b of the key. Without 0 and 15, which are constants.
    0b1000: np.bitwise_and,
    0b1110: np.bitwise_or,
    0b0110: np.bitwise_xor,
    0b1100: lambda a, b: a,
    0b1010: lambda a, b: b,
    0b0011: lambda a, b: ~a,
    0b0101: lambda a, b: ~b,
    0b0111: lambda a, b: ~(a & b),
    0b0001: lambda a, b: ~(a | b),
    0b1001: lambda a, b: ~(a ^ b),
    0b0100: lambda a, b: a & ~b,
    0b0010: lambda a, b: ~a & b,
    0b1101: lambda a, b: a | ~b,
    0b1011: lambda a, b: ~a | b,
}


@cache
def _of_three(table: int) -> Function:
    """The function with truth table `table`, bit 4a + 2b + c, as off(a, b) ^ (c & turns(a, b))."""
    off = sum((table >> 2 * i & 1) << i for i in range(4))
    on = sum((table >> 2 * i + 1 & 1) << i for i in range(4))
    turns = off ^ on
    base = {0: lambda a, b: a ^ a, 15: lambda a, b: a | _ALL32}.get(off) or _OF_TWO[off]
    if turns == 0:
        return lambda a, b, c: base(a, b)
    change: Function = (lambda a, b, c: c) if turns == 15 else (lambda a, b, c, f=_OF_TWO[turns]: f(a, b) & c)
    if off == 0:
        return change
    return lambda a, b, c: base(a, b) ^ change(a, b, c)


def _lop3(form: Form) -> Operation:
    combine = form.maybe("and", "or")
    form.one("b32")
    if not combine:
        return form.done(("b32",), ("b32",) * 4, lambda a, b, c, table: _of_three(int(table.flat[0]) & 0xFF)(a, b, c), "lop3")
    join = _BITWISE[combine]

    def with_predicate(a: Array, b: Array, c: Array, table: Array, p: Array) -> tuple[Array, Array]:
        d = _of_three(int(table.flat[0]) & 0xFF)(a, b, c)
        return d, join(d != 0, p)

    return form.done(("b32", "pred"), ("b32",) * 4 + ("pred",), with_predicate, "lop3")


# Shifts: amounts from the width on shift everything out; NumPy's shifts do the same.


def _shl(form: Form) -> Operation:
    kind = form.one("b16", "b32", "b64")
    if kind == "b16":
        return form.done((kind,), (kind, "u32"), lambda a, n: (a << n).astype(np.uint16), "shift")
    return form.done((kind,), (kind, "u32"), np.left_shift, "shift")


def _right(kind: str) -> Function:
    bits, signed = register(kind), signed_register(kind)
    if kind == "s32":  # an amount above 2^31 is negative here, and NumPy shifts everything out for it too
        return lambda a, n: (a.view(np.int32) >> n.view(np.int32)).view(np.uint32)
    if kind in SIGNED:
        return lambda a, n: (a.view(signed) >> np.minimum(n, np.uint32(63)).astype(signed)).view(bits)
    if BITS[kind] == 16:
        return lambda a, n: (a >> n).astype(np.uint16)
    return np.right_shift


def _shr(form: Form) -> Operation:
    kind = form.one("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
    return form.done((kind,), (kind, "u32"), _right(kind), "shift")


def _shf(form: Form) -> Operation:
    left = form.one("l", "r") == "l"
    clamp = form.one("clamp", "wrap") == "clamp"
    form.one("b32")
    width = np.uint32(32)

    def funnel(a: Array, b: Array, c: Array) -> Array:
        n = np.minimum(c, width) if clamp else c & np.uint32(31)
        return (b << n) | (a >> (width - n)) if left else (b << (width - n)) | (a >> n)

    return form.done(("b32",), ("b32", "b32", "u32"), funnel, "funnel shift")


# Bit fields


def _bfe(form: Form) -> Operation:
    kind = form.one("u32", "s32", "u64", "s64")
    bits, signed, width = register(kind), signed_register(kind), BITS[kind]
    one, byte = bits(1), np.uint32(0xFF)

    def unsigned(a: Array, at: Array, length: Array) -> Array:
        return (a >> (at & byte)) & ((one << (length & byte)) - one)

    def extended(a: Array, at: Array, length: Array) -> Array:
        spare = width - np.minimum(length & byte, np.uint32(width)).astype(signed)
        return ((a.view(signed) >> (at & byte).astype(signed)) << spare >> spare).view(bits)

    return form.done((kind,), (kind, "u32", "u32"), extended if kind in SIGNED else unsigned, "bit field")


def _bfi(form: Form) -> Operation:
    kind = form.one("b32", "b64")
    one, byte = register(kind)(1), np.uint32(0xFF)

    def insert(a: Array, b: Array, at: Array, length: Array) -> Array:
        at = at & byte
        mask = ((one << (length & byte)) - one) << at
        return b ^ ((b ^ (a << at)) & mask)

    return form.done((kind,), (kind, kind, "u32", "u32"), insert, "bit field")


def _bmsk(form: Form) -> Operation:
    clamp = form.one("clamp", "wrap") == "clamp"
    form.one("b32")
    last, most = np.uint32(31), np.uint32(32)

    def mask(a: Array, b: Array) -> Array:
        at, length = (np.minimum(a, most), np.minimum(b, most)) if clamp else (a & last, b & last)
        return (_ALL32 << at) & ~(_ALL32 << (at + length))

    return form.done(("b32",), ("b32", "b32"), mask, "bit field")


def _szext(form: Form) -> Operation:
    clamp = form.one("clamp", "wrap") == "clamp"
    kind = form.one("u32", "s32")

    def extend(a: Array, n: Array) -> Array:
        n = np.minimum(n, np.uint32(32)) if clamp else n & np.uint32(31)
        spare = np.uint32(32) - n
        raised = a << spare
        return (raised.view(np.int32) >> spare.view(np.int32)).view(np.uint32) if kind == "s32" else raised >> spare

    return form.done((kind,), (kind, "u32"), extend, "bit field")


# Counting


def _smeared(a: Array) -> Array:
    """`a` with every bit below its highest one set."""
    shift = 1
    while shift < 8 * a.dtype.itemsize:
        a = a | (a >> a.dtype.type(shift))
        shift *= 2
    return a


def _popc(form: Form) -> Operation:
    kind = form.one("b32", "b64")
    return form.done(("u32",), (kind,), lambda a: np.bitwise_count(a).astype(np.uint32), "bit count")


def _clz(form: Form) -> Operation:
    kind = form.one("b32", "b64")
    width = np.uint32(BITS[kind])
    return form.done(("u32",), (kind,), lambda a: width - np.bitwise_count(_smeared(a)).astype(np.uint32), "bit count")


def _bfind(form: Form) -> Operation:
    amount = form.has("shiftamt")
    kind = form.one("u32", "s32", "u64", "s64")
    signed, bits = signed_register(kind), register(kind)
    top = np.uint32(BITS[kind] - 1)

    def find(a: Array) -> Array:
        if kind in SIGNED:
            number = a.view(signed)
            a = (number ^ (number >> signed(top))).view(bits)
        at = np.bitwise_count(_smeared(a)).astype(np.uint32) - np.uint32(1)
        return np.where(at == _ALL32, at, top - at) if amount else at

    return form.done(("u32",), (kind,), find, "bit count")


def _brev(form: Form) -> Operation:
    kind = form.one("b32", "b64")
    bits, width = register(kind), BITS[kind]

    def reverse(a: Array) -> Array:
        shift = width // 2
        mask = (1 << width) - 1
        while shift:
            mask ^= mask << shift & (1 << width) - 1
            a = ((a >> bits(shift)) & bits(mask)) | ((a & bits(mask)) << bits(shift))
            shift //= 2
        return a

    return form.done((kind,), (kind,), reverse, "bit count")


# prmt

_FIXED = {
    # Byte selectors of the modes, by the two low bits of the third operand.
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


@cache
def _permutation(selector: int) -> Function:
    """prmt with one selector for all lanes: bytes that move the same way from the same operand move together."""
    groups: dict[tuple[int, int], int] = {}
    for place in range(4):
        source, at = divmod(selector >> 4 * place & 7, 4)
        groups[source, place - at] = groups.get((source, place - at), 0) | 0xFF << 8 * place
    steps = []
    for (source, move), mask in groups.items():
        arrives = (0xFFFF_FFFF << 8 * move) & 0xFFFF_FFFF if move >= 0 else 0xFFFF_FFFF >> -8 * move
        steps.append((source, np.uint32(8 * abs(move)), move, None if arrives == mask else np.uint32(mask)))

    def permute(a: Array, b: Array) -> Array:
        result: Any = None
        for source, shift, move, mask in steps:
            term = b if source else a
            if move:
                term = term << shift if move > 0 else term >> shift
            if mask is not None:
                term = term & mask
            result = term if result is None else result | term
        return result

    return permute


def _permuted(a: Array, b: Array, selector: Array) -> Array:
    """prmt by the nibbles of `selector`, each lane its own: the high bit of a nibble spreads the sign of the byte."""
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    result: Any = np.uint32(0)
    for place in range(4):
        nibble = selector >> np.uint32(4 * place)
        byte = (both >> ((nibble & np.uint32(7)) << np.uint32(3))).astype(np.uint32) & np.uint32(0xFF)
        sign = (byte >> np.uint32(7)) * np.uint32(0xFF)
        result = result | np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * place)
    return result


def _prmt(form: Form) -> Operation:
    form.one("b32")
    mode = form.maybe(*_FIXED)
    if mode:
        selectors = np.array(_FIXED[mode], np.uint32)
        return form.done(("b32",), ("b32",) * 3, lambda a, b, c: _permuted(a, b, selectors[c & np.uint32(3)]), "prmt")

    def permute(a: Array, b: Array, c: Array) -> Array:
        if c.ndim == 0 and not (selector := int(c) & 0xFFFF) & 0x8888:
            return _permutation(selector)(a, b)
        return _permuted(a, b, c)

    return form.done(("b32",), ("b32",) * 3, permute, "prmt")


BUILDERS: dict[str, Builder] = {
    "and": _bitwise,
    "or": _bitwise,
    "xor": _bitwise,
    "not": _not,
    "cnot": _cnot,
    "lop3": _lop3,
    "shl": _shl,
    "shr": _shr,
    "shf": _shf,
    "bfe": _bfe,
    "bfi": _bfi,
    "bmsk": _bmsk,
    "szext": _szext,
    "popc": _popc,
    "clz": _clz,
    "bfind": _bfind,
    "brev": _brev,
    "prmt": _prmt,
}
