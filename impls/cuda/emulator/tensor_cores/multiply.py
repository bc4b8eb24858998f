"""One MMA instruction: D = A B + C on the registers of any number of warps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from impls.cuda.emulator.tensor_cores import fragments, rounding, scales
from impls.cuda.emulator.tensor_cores.formats import E2M1_PAIRS, FORMATS, SCALES, SINGLE, Exponents, Floats, Format, Tf32, Words
from impls.cuda.emulator.tensor_cores.scales import Codes, Selector
from impls.cuda.emulator.tensor_cores.windows import fused_sum

Selectors = tuple[Selector, Selector, Selector, Selector]
"""byte-id-a, thread-id-a, byte-id-b, thread-id-b."""
Bits = npt.NDArray[np.unsignedinteger]
_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Mma(ABC):
    """A form of mma.sync on one architecture."""

    shape: tuple[int, int, int]
    """m, n, k."""
    kind: str
    """f16, bf16, tf32, fp8, int8, f8f6f4, mxf8f6f4, mxf4 or mxf4nvf4."""
    a_type: str
    b_type: str
    accumulator: str
    """Type of C and D: f32, f16 or s32."""
    a_registers: int
    b_registers: int
    scale_count: int
    """Scale factors of each row of A and each column of B; 0 where no scale operands follow C."""
    rules: tuple[str, ...]
    """Names in RULES."""

    @property
    def c_registers(self) -> int:
        """Of each lane; an f16 takes half a register."""
        return 2 if self.accumulator == "f16" else 4

    @property
    def d_registers(self) -> int:
        """As C's."""
        return self.c_registers

    @property
    def scaled(self) -> bool:
        """Whether scale operands follow C."""
        return self.scale_count > 0

    @property
    def macs(self) -> int:
        """Products of one warp's instruction."""
        m, n, k = self.shape
        return m * n * k

    def multiply(
        self,
        a: Words,
        b: Words,
        c: Words,
        scale_a: Words | None = None,
        scale_b: Words | None = None,
        selectors: Selectors = (0, 0, 0, 0),
    ) -> Words:
        """D's registers [..., 32, r] from those of A, B and C, and from the scale operands [..., 32] of a scaled form."""
        words = np.ascontiguousarray(c)
        elements: Bits = (words.view(np.uint16) if self.accumulator == "f16" else words).reshape(-1, 128)
        codes_a = codes_b = None
        if scale_a is not None and scale_b is not None:
            codes_a = scales.A.select(scale_a.reshape(-1, 32), *selectors[:2], self.scale_count)
            codes_b = scales.B.select(scale_b.reshape(-1, 32), *selectors[2:], self.scale_count)
        d = self._product(
            a.reshape(-1, 32 * self.a_registers), b.reshape(-1, 32 * self.b_registers), elements, codes_a, codes_b
        )
        return np.ascontiguousarray(d).view(np.uint32).reshape(*c.shape)

    @abstractmethod
    def _product(self, a: Words, b: Words, c: Bits, scale_a: Codes | None, scale_b: Codes | None) -> Bits:
        """D's elements [warps, 32 x 4] in the order of the lanes, as C's, from a warp's registers [warps, 32 x r]."""


@dataclass(frozen=True, eq=False)
class WindowedMma(Mma):
    """Products are cut to one window, one by one."""

    window: int
    parts: int
    """K is taken in so many parts, one after the other."""
    output: rounding.Output
    a_format: Format | Tf32
    b_format: Format | Tf32

    def _product(self, a: Words, b: Words, c: Bits, scale_a: Codes | None, scale_b: Codes | None) -> Bits:
        # Rows of A last: NumPy's inner loops run along the last axis, and this one is long however few the warps.
        a_words = a.take(fragments.A_WORDS[self.a_registers].T, axis=1).transpose(1, 0, 2)
        b_words = b.take(fragments.B_WORDS[self.b_registers].T, axis=1).transpose(1, 2, 0)
        a_values, a_exponents = self.a_format.decode(np.ascontiguousarray(a_words))  # [k, warps, 16]
        b_values, b_exponents = self.b_format.decode(np.ascontiguousarray(b_words))  # [k, 8, warps]
        if scale_a is not None and scale_b is not None:
            a_values, a_exponents = _scaled(a_values, a_exponents, scale_a[:, :, 0])
            b_values, b_exponents = _scaled(b_values, b_exponents, scale_b[:, :, 0].T)
        terms = a_values[:, None] * b_values[..., None]  # [k, 8, warps, 16]
        exponents = a_exponents[:, None] + b_exponents[..., None]
        bits = np.ascontiguousarray(c.take(fragments.C_VALUES, axis=1).transpose(2, 0, 1))  # [8, warps, 16]
        d = self._accumulate(terms, exponents, bits)
        return d.transpose(1, 2, 0).reshape(-1, 128).take(fragments.D_ELEMENTS, axis=1)

    def _accumulate(self, terms: Floats, exponents: Exponents, c: Bits) -> Bits:
        """D's bits [8, warps, 16] from the products [k, 8, warps, 16]."""
        step = len(terms) // self.parts
        for start in range(0, len(terms), step):
            part = slice(start, start + step)
            total = fused_sum(terms[part], exponents[part], *_accumulator(c), self.window)
            c = rounding.to(self.output, total)
        return c


@dataclass(frozen=True, eq=False)
class ConvertedMma(WindowedMma):
    """fp8 where the tensor cores have none. The assembler makes five steps of it:

    F2FP of the low halves of all registers of A and B to f16, and HMMA on them and zero;
    F2FP of the high halves, and HMMA on them and the first result; FADD (or HADD2) of C.
    """

    def _accumulate(self, terms: Floats, exponents: Exponents, c: Bits) -> Bits:
        product = np.zeros_like(c)
        for half in (0, 1):
            total = fused_sum(_half_of_words(terms, half), _half_of_words(exponents, half), *_accumulator(product), self.window)
            product = rounding.to(self.output, total)
        return rounding.sum_to_nearest(c, product)


@dataclass(frozen=True, eq=False)
class BlockScaledMma(Mma):
    """E2M1 with block scales: blocks of 16 along K are exact, and are cut to the window as a whole."""

    scale_type: str

    def _product(self, a: Words, b: Words, c: Bits, scale_a: Codes | None, scale_b: Codes | None) -> Bits:
        assert scale_a is not None and scale_b is not None
        a_blocks, b_blocks = _e2m1_blocks(a, fragments.A_WORDS[4]), _e2m1_blocks(b, fragments.B_WORDS[2]).swapaxes(2, 3)
        a_scales, a_exponents = self._scales(scale_a)
        b_scales, b_exponents = self._scales(scale_b)
        block_scales = a_scales[:, :, :, None] * b_scales[:, :, None]  # [4, warps, 16, 8]
        # Multiples of 1/4 below 2^10: any order of summation is exact.
        dots = a_blocks @ b_blocks
        dots *= block_scales
        bits = c.take(fragments.C_VALUES, axis=1)  # [warps, 16, 8]
        c_values, c_exponents = _accumulator(bits)
        untouched = (dots == 0).all(axis=0)
        if untouched.any():  # by cancellation, or because every product is zero: then D is C, bit for bit
            untouched &= ((np.abs(a_blocks) @ np.abs(b_blocks)) * block_scales == 0).all(axis=0) & ~np.isnan(c_values)
        total = fused_sum(dots, a_exponents[:, :, :, None] + b_exponents[:, :, None], c_values, c_exponents, 35)
        d = np.where(untouched, bits, rounding.to("f32", total))
        return d.reshape(-1, 128).take(fragments.D_ELEMENTS, axis=1)

    def _scales(self, codes: Codes) -> tuple[Floats, Exponents]:
        """Value and exponent [4, warps, rows] of each block's scale, from the codes [warps, rows, scale_count]."""
        of_blocks = codes.transpose(2, 0, 1)
        if self.scale_count == 2:
            of_blocks = of_blocks.repeat(2, axis=0)
        table = SCALES[self.scale_type]
        return table.values.take(of_blocks), table.exponents.take(of_blocks)


@dataclass(frozen=True, eq=False)
class IntegerMma(Mma):
    """8-bit integers, 32-bit sums."""

    saturates: bool

    def _product(self, a: Words, b: Words, c: Bits, scale_a: Codes | None, scale_b: Codes | None) -> Bits:
        a_values = _integers(_bytes(a, fragments.A_WORDS[self.a_registers]), self.a_type)
        b_values = _integers(_bytes(b, fragments.B_WORDS[self.b_registers]), self.b_type)
        # Sums below 2^22: exact in float64 whatever the order.
        total = (a_values @ b_values.swapaxes(1, 2)).astype(np.int64) + c.take(fragments.C_VALUES, axis=1).view(np.int32)
        if self.saturates:
            total = np.clip(total, -(2**31), 2**31 - 1)
        return total.astype(np.uint32).reshape(-1, 128).take(fragments.D_ELEMENTS, axis=1)


def _half_of_words(elements: npt.NDArray[_Number], half: int) -> npt.NDArray[_Number]:
    """Of elements [k, ...] that lie in words of four along k, the low two or the high two of each: [k / 2, ...]."""
    return elements.reshape(-1, 2, 2, *elements.shape[1:])[:, half].reshape(-1, *elements.shape[1:])


def _bytes(registers: Words, index: fragments.Index) -> npt.NDArray[np.uint8]:
    """Bytes [warps, rows, bytes along K] of A or B."""
    return registers.take(index, axis=1).view(np.uint8)


def _integers(codes: npt.NDArray[np.uint8], kind: str) -> Floats:
    return (codes.view(np.int8) if kind == "s8" else codes).astype(np.float64)


def _e2m1_blocks(registers: Words, index: fragments.Index) -> Floats:
    """Values [4, warps, rows, 16] of packed E2M1, in blocks of 16 along K."""
    values = E2M1_PAIRS.take(_bytes(registers, index)).view(np.float64)
    return values.reshape(*values.shape[:2], 4, 16).transpose(2, 0, 1, 3)


def _scaled(values: Floats, exponents: Exponents, codes: Codes) -> tuple[Floats, Exponents]:
    """Values [k, ...] and exponents of elements that have the ue8m0 scales `codes` [...]."""
    scale = SCALES["ue8m0"]
    return values * scale.values.take(codes), exponents + scale.exponents.take(codes)


def _accumulator(bits: Bits) -> tuple[Floats, Exponents]:
    """Values and exponents of C, f32 or f16 by the width of `bits`."""
    if bits.dtype == np.uint16:
        half = FORMATS["f16"]
        assert isinstance(half, Format)
        return half.values.take(bits), half.exponents.take(bits)
    return bits.view(np.float32).astype(np.float64), SINGLE.exponents(bits)
