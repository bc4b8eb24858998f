"""The PTX that decodes packed weights, executed here bit by bit: no interpreter of Triton runs it."""

from __future__ import annotations

import re

import pytest
import torch

from impls.nvfp4 import NVFP4Tensor, unpack_codes
from impls.weights.pack import pack

MASK = 0xFFFFFFFF
SCALE = {"bf16": (7, 2.0**119, 2.0**-7), "f16": (10, 2.0**7, 2.0**-7)}
"""{format: (bits of the mantissa, the scale, what an element of E2M1 is multiplied by in all)}"""


def float_of(bits: int, mantissa: int) -> float:
    """The value of a 16-bit float with so many bits of mantissa."""
    exponent_bits = 15 - mantissa
    bias = (1 << exponent_bits - 1) - 1
    sign = -1.0 if bits >> 15 else 1.0
    exponent, fraction = bits >> mantissa & (1 << exponent_bits) - 1, bits & (1 << mantissa) - 1
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + fraction / 2.0**mantissa) * 2.0 ** (exponent - bias)


def fields(ptx: str, word: int) -> list[int]:
    """The two registers that are multiplied by the scales. Raises on an instruction that is not known here."""
    registers = {"$2": word}
    found = []

    def value(name: str) -> int:
        return registers[name] if name in registers else int(name, 0)

    for line in filter(None, (one.strip() for one in re.sub(r"^\{ \.reg[^;]*;|\}$", "", ptx).split(";"))):
        opcode, operands = line.split(None, 1)
        target, *sources = (one.strip() for one in operands.split(","))
        if opcode in ("fma.rn.bf16x2", "mul.rn.f16x2"):
            found.append(value(sources[0]))
            continue
        numbers = [value(name) for name in sources]
        registers[target] = {
            "mov.b32": lambda a: a,
            "shl.b32": lambda a, b: a << b & MASK,
            "shr.u32": lambda a, b: a >> b,
            "and.b32": lambda a, b: a & b,
            "mad.lo.u32": lambda a, b, c: a * b + c & MASK,
            "lop3.b32": lambda a, b, c, table: (a & b) | c if table == 0xEA else pytest.fail("another table"),
        }[opcode](*numbers)
    return found


def weights(codes: torch.Tensor) -> NVFP4Tensor:
    """Codes [N, K / 2] with scales of 1."""
    scales = torch.full((codes.shape[0], codes.shape[1] // 8), 0x38, dtype=torch.uint8).view(torch.float8_e4m3fn)
    return NVFP4Tensor(codes, scales, torch.tensor(1.0))


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_every_code_is_decoded_in_every_place(kind):
    from impls.weights import decode

    g = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 256, (64, 64), generator=g, dtype=torch.uint8)
    for code in range(16):
        codes[code] = code * 0x11  # each code in each place
    values = unpack_codes(codes)
    packed = pack(weights(codes))["codes"][0]
    words = packed.view(torch.int32).tolist()
    mantissa, scale, whole = SCALE[kind]
    for line, row in enumerate(words):
        for number, word in enumerate(row):
            for half, name in enumerate(("LOW", "HIGH")):
                ptx = getattr(decode, f"_{name}_{kind.upper()}").value
                first, second = fields(ptx, word & MASK)
                bits = (first & 0xFFFF, first >> 16, second & 0xFFFF, second >> 16)
                start = 64 * half + 4 * number
                found = [float_of(one, mantissa) * scale for one in bits]
                assert found == (values[line, start : start + 4] * whole).tolist()


def test_packing_pads_with_zeros_and_keeps_what_is_there():
    codes = torch.full((3, 72), 0xFF, dtype=torch.uint8)  # 144 elements: a tile and a block
    packed = pack(weights(codes))
    assert packed["codes"].shape == (2, 3, 64)
    assert packed["scales"].shape == (2, 3, 8)
    assert packed["scales"][0].unique().tolist() == [0x38]
    assert packed["scales"][1, :, 0].unique().tolist() == [0x38]
    assert packed["scales"][1, :, 1:].count_nonzero() == 0
    assert packed["codes"][0].unique().tolist() == [0xFF]


def test_packed_model_weights_take_no_more_bytes():
    w4 = weights(torch.zeros(32, 2048, dtype=torch.uint8))
    packed = pack(w4)
    assert packed["codes"].numel() + packed["scales"].numel() == w4.nbytes
