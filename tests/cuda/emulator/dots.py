"""Matrix products by Triton's compiler, whose results are exact integers: they know nothing of the emulator's layouts.

C [M, N] = A [M, K] B [K, N]       NVFP4: two codes a byte, the even k in the low nibble; a scale for each 16 along K
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import triton
import triton.language as tl

from impls.arch import find
from impls.cuda.emulator.emulate import Kernel, emulate
from impls.triton.compiler import Compiled, compile_kernel

E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])
"""Twice the value of each code."""
SCALES = np.arange(0x38, 0x48)
"""E4M3 from 1 to 3.75: in eighths they are integers of 5 bits, so sums of 128 products stay below 2^24."""


@triton.jit
def nvfp4_dot(a, a_scale, b, b_scale, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # noqa: N803
    m, n = tl.arange(0, M), tl.arange(0, N)
    byte, block = tl.arange(0, K // 2), tl.arange(0, K // 16)
    of_a = tl.load(a + m[:, None] * (K // 2) + byte[None, :])
    of_b = tl.load(b + n[None, :] * (K // 2) + byte[:, None])
    scale_a = tl.load(a_scale + m[:, None] * (K // 16) + block[None, :])
    scale_b = tl.load(b_scale + n[:, None] * (K // 16) + block[None, :])
    d = tl.dot_scaled(of_a, scale_a, "e2m1", of_b, scale_b, "e2m1")
    tl.store(c + m[:, None] * N + n[None, :], d)


@triton.jit
def plain_dot(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # noqa: N803
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    d = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + n[None, :] * K + k[:, None]))
    tl.store(c + m[:, None] * N + n[None, :], d)


@dataclass(frozen=True)
class Shape:
    m: int
    n: int
    k: int
    warps: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k} {self.warps} warps"


Fill = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def anything(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return random.integers(0, 16, shape)


def largest(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return random.choice([7, 7, 7, 15], shape)


def cancelling(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    codes = random.integers(0, 16, shape)
    codes[:, 1::2] = codes[:, ::2] ^ 8
    return codes


def one_in_a_row(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    codes = np.zeros(shape, int)
    codes[np.arange(shape[0]), random.integers(0, shape[1], shape[0])] = random.integers(1, 16, shape[0])
    return codes


FILLS: dict[str, Fill] = {each.__name__: each for each in (anything, largest, cancelling, one_in_a_row)}


BLOCK_SCALED = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"


def run_nvfp4(shape: Shape, fill: str) -> tuple[np.ndarray, np.ndarray]:
    """(what the emulator makes of it, what it is), float32 [M, N]."""
    random = np.random.default_rng(3)
    a, b = FILLS[fill](random, (shape.m, shape.k)), anything(random, (shape.n, shape.k))
    scale_a, scale_b = (random.choice(SCALES, (rows, shape.k // 16)) for rows in (shape.m, shape.n))
    exact = _scaled(a, scale_a) @ _scaled(b, scale_b).T / (2 * 2 * 8 * 8)
    packed = [(codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8) for codes in (a, b)]
    given = (packed[0], scale_a.astype(np.uint8), packed[1], scale_b.astype(np.uint8))
    types = {"a": "*u8", "a_scale": "*fp8e4nv", "b": "*u8", "b_scale": "*fp8e4nv", "c": "*fp32"}
    return _run(nvfp4_dot, types, shape, given, BLOCK_SCALED), exact.astype(np.float32)


def run_plain(shape: Shape, kind: str, arch: str = "sm_120a") -> tuple[np.ndarray, np.ndarray]:
    """The same of bf16 or fp16 integers of up to 8 bits, whose sums are exact."""
    random = np.random.default_rng(4)
    a, b = random.integers(-255, 256, (shape.m, shape.k)), random.integers(-255, 256, (shape.n, shape.k))
    number = ml_dtypes.bfloat16 if kind == "bf16" else np.float16
    given = tuple(each.astype(number).view(np.uint16) for each in (a, b))
    types = {"a": f"*{kind}", "b": f"*{kind}", "c": "*fp32"}
    return _run(plain_dot, types, shape, given, "mma.sync.aligned.m16n8k16", arch), (a @ b.T).astype(np.float32)


def _scaled(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    eighths = (scales.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64) * 8).astype(np.int64)
    return E2M1[codes] * np.repeat(eighths, 16, axis=1)


def _run(
    function, types: dict[str, str], shape: Shape, given: tuple[np.ndarray, ...], instruction: str, arch: str = "sm_120a"
) -> np.ndarray:
    """C, of a kernel that has to be made of `instruction`."""
    constants = {"M": shape.m, "N": shape.n, "K": shape.k}
    built: Compiled = compile_kernel(
        function, types, constants, dict.fromkeys(types, 16), find(arch), {"num_warps": shape.warps}
    )
    assert instruction in built.ptx
    c = np.full((shape.m, shape.n), np.nan, np.float32)
    arguments = (*given, c, *[None] * built.scratch_pointers)
    kernel = Kernel(built.ptx, built.entry, (1, 1, 1), (32 * shape.warps, 1, 1), arguments, built.shared_bytes)
    # With more warps than the product has work for, Triton lets several store the same values to the same place.
    emulate([kernel], checks=shape.m * shape.n >= 256 * shape.warps)
    return c
