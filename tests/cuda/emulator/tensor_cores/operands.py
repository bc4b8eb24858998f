"""Operands of MMA instructions that ask different things of the adder, and what the slow model says of them."""

from __future__ import annotations

import numpy as np

from impls.cuda.emulator.tensor_cores.forms import mma
from tests.cuda.emulator.tensor_cores import model

NVFP4 = "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"

_CODES = {  # bits of a code, of its container, and where in that the code is
    "tf32": (19, 32, 13),
    "f16": (16, 16, 0),
    "bf16": (16, 16, 0),
    "e4m3": (8, 8, 0),
    "e5m2": (8, 8, 0),
    "e3m2": (6, 8, 0),
    "e2m3": (6, 8, 0),
    "e2m1": (4, 8, 2),
    "f32": (32, 32, 0),
}
REGIMES = (
    "like activations",
    "any bits",
    "finite bits",
    "special codes",
    "cancelling",
    "huge C",
    "tiny C",
    "subnormal",
    "zeros",
)


def form(text: str, target: str = "sm_120a"):
    return mma(("sync", "aligned", *text.split(".")), target)


def _finite(name: str) -> np.ndarray:
    count = 1 << min(_CODES[name][0], 16)
    high = _CODES[name][0] - min(_CODES[name][0], 16)
    return np.array([code << high for code in range(count) if not model.decode(name, code << high).special], np.uint64)


_FINITE = {name: _finite(name) for name in _CODES}
_VALUES = {
    name: np.array([float(n.mantissa) * 2.0**n.scale for n in (model.decode(name, int(c)) for c in codes)])
    for name, codes in _FINITE.items()
}


def codes(name: str, regime: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Codes of the type `name`."""
    bits = _CODES[name][0]
    finite, values = _FINITE[name], _VALUES[name]
    anything = random.integers(0, 1 << bits, shape, dtype=np.uint64)
    if regime == "any bits":
        return anything
    if regime == "special codes":
        exponent_bits, fraction_bits, _, _ = model.LAYOUTS[name]
        top = ((1 << exponent_bits) - 1) << fraction_bits
        one = ((1 << exponent_bits - 1) - 1) << fraction_bits
        chosen = [0, 1, (1 << fraction_bits) - 1, 1 << fraction_bits, one, one + 1, top - 1, top, top + 1]
        rare = random.choice(np.array(chosen, np.uint64), shape) | random.integers(0, 2, shape, dtype=np.uint64) << np.uint64(
            bits - 1
        )
        common = random.choice(finite[np.abs(values) <= 4.0], shape)
        return np.where(random.random(shape) < 0.08, rare, common)
    if regime == "subnormal":
        small = finite[np.abs(values) <= 4 * np.abs(values[values != 0]).min() * 2.0 ** model.LAYOUTS[name][1]]
        return random.choice(small, shape)
    if regime == "zeros":
        signed = random.integers(0, 2, shape, dtype=np.uint64) << np.uint64(bits - 1)
        return np.where(random.random(shape) < 0.9, signed, random.choice(finite, shape))
    if regime in ("finite bits", "huge C", "tiny C"):
        return random.choice(finite, shape)
    ordered = np.argsort(values, kind="stable")
    wanted = random.standard_normal(shape)
    return finite[ordered[np.clip(np.searchsorted(values[ordered], wanted), 0, len(finite) - 1)]]


def accumulators(name: str, regime: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if regime in ("any bits", "special codes", "subnormal", "zeros") or name == "f16":
        return codes(name, regime, shape, random)
    scale = {"huge C": 2.0**60, "tiny C": 2.0**-30, "cancelling": 2.0**-12}.get(regime, 4.0)
    spread = 2.0 ** random.integers(-12, 12, shape)
    return (random.standard_normal(shape) * scale * spread).astype(np.float32).view(np.uint32).astype(np.uint64)


def packed(elements: np.ndarray, bits: int) -> np.ndarray:
    """Registers [..., r] from codes [..., r x 32 / bits], the first in the lowest bits."""
    parts = elements.reshape(*elements.shape[:-1], -1, 32 // bits)
    return (parts << (np.arange(32 // bits, dtype=np.uint64) * np.uint64(bits))).sum(-1).astype(np.uint32)


def registers(name: str, count: int, regime: str, warps: int, random: np.random.Generator) -> np.ndarray:
    """[warps, 32, count] registers of A or B."""
    _, container, shift = _CODES[name]
    junk = random.integers(0, 1 << container, (warps, 32, count * 32 // container), dtype=np.uint64)
    wanted = codes(name, regime, junk.shape, random)
    keep = np.uint64((((1 << _CODES[name][0]) - 1) << shift) ^ ((1 << container) - 1))
    return packed(wanted << np.uint64(shift) | junk & keep, container)


def windowed_case(instruction, regime: str, warps: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    a = registers(instruction.a_type, instruction.a_registers, regime, warps, random)
    b = registers(instruction.b_type, instruction.b_registers, regime, warps, random)
    if regime == "cancelling" and instruction.a_registers == 4:  # the second half of K is minus the first, but for a few bits
        bits, container, shift = _CODES[instruction.a_type]
        sign = sum(1 << position for position in range(bits - 1 + shift, 32, container))
        a[..., 2:] = a[..., :2] ^ np.uint32(sign) ^ (random.random((warps, 32, 2)) < 0.3).astype(np.uint32) << np.uint32(shift)
        b[..., 1] = b[..., 0]
    name = instruction.accumulator
    c = packed(accumulators(name, regime, (warps, 32, 4), random), 16 if name == "f16" else 32)
    return a, b, c


def matrices(instruction, a, b, c) -> tuple[list[list[int]], list[list[int]], list[list[int]], tuple[str, str, str]]:
    """Codes of one warp's A [row][k], B [column][k] and C [row][column], and their types."""
    types = (instruction.a_type, instruction.b_type, instruction.accumulator)
    (_, a_bits, a_shift), (_, b_bits, b_shift) = _CODES[types[0]], _CODES[types[1]]
    a_codes = [[code >> a_shift for code in row] for row in model.matrix_a(a, a_bits)]
    b_codes = [[code >> b_shift for code in row] for row in model.matrix_b(b, b_bits)]
    return a_codes, b_codes, model.matrix_c(c, 16 if types[2] == "f16" else 32), types


def d_codes(instruction, d) -> np.ndarray:
    """[16, 8] of one warp's D registers."""
    return np.array(model.matrix_c(d, 16 if instruction.accumulator == "f16" else 32))


def nvfp4_case(warps: int, random: np.random.Generator, scales: tuple[int, int] = (0x28, 0x50), c: float = 100.0):
    """Operands of m16n8k64 as attention has them: scales near 1, C of some size."""
    a = random.integers(0, 1 << 32, (warps, 32, 4), dtype=np.uint32)
    b = random.integers(0, 1 << 32, (warps, 32, 2), dtype=np.uint32)
    accumulator = (c * random.standard_normal((warps, 32, 4))).astype(np.float32).view(np.uint32)
    scale_a, scale_b = (random.integers(*scales, (warps, 32, 4), dtype=np.uint8).view(np.uint32)[..., 0] for _ in "ab")
    return a, b, accumulator, scale_a, scale_b
