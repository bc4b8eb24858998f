"""Runs the PTX that decodes codes, bit by bit: no interpreter of Triton does."""

from __future__ import annotations

import re

import pytest

MASK = 0xFFFFFFFF
OPERATIONS = {
    "mov.b32": lambda a: a,
    "shl.b32": lambda a, b: a << b & MASK,
    "shr.u32": lambda a, b: a >> b,
    "and.b32": lambda a, b: a & b,
    "mul.lo.u32": lambda a, b: a * b & MASK,
    "mad.lo.u32": lambda a, b, c: a * b + c & MASK,
    "prmt.b32": lambda a, b, selector: int.from_bytes(
        bytes((b << 32 | a) >> 8 * (selector >> 4 * place & 7) & 0xFF for place in range(4)), "little"
    ),
    "lop3.b32": lambda a, b, c, table: (a & b) | c if table == 0xEA else pytest.fail("another table"),
}


def multiplied(ptx: str, inputs: dict[str, int]) -> dict[str, int]:
    """{output: what is multiplied by its scales}, for the words `inputs`; of float16 by way of E4M3 the two E4M3 bytes.

    Raises on an instruction that is not known here.
    """
    registers = dict(inputs)
    found: dict[str, int] = {}

    def value(name: str) -> int:
        return registers[name] if name in registers else int(name, 0)

    for line in filter(None, (one.strip() for one in re.sub(r"^\{|\}$|\.reg[^;]*;", "", ptx).split(";"))):
        opcode, operands = line.split(None, 1)
        if operands.startswith("{"):
            low, high, whole = re.findall(r"\w+", operands)
            registers |= {low: value(whole) & 0xFFFF, high: value(whole) >> 16}
            continue
        target, *sources = (one.strip() for one in operands.split(","))
        if opcode == "cvt.rn.f16x2.e4m3x2":
            registers[target] = value(sources[0])
        elif opcode in ("fma.rn.bf16x2", "mul.rn.f16x2"):
            found[target] = value(sources[0])
        else:
            registers[target] = OPERATIONS[opcode](*(value(name) for name in sources))
    return found


def float_of(bits: int, mantissa: int, width: int = 16) -> float:
    """The value of a float of `width` bits with so many bits of mantissa."""
    exponent_bits = width - 1 - mantissa
    bias = (1 << exponent_bits - 1) - 1
    sign = -1.0 if bits >> width - 1 else 1.0
    exponent, fraction = bits >> mantissa & (1 << exponent_bits) - 1, bits & (1 << mantissa) - 1
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + fraction / 2.0**mantissa) * 2.0 ** (exponent - bias)
