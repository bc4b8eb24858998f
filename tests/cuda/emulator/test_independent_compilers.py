"""Matrix products that Triton compiled, in the emulator: equal to integers, bit for bit.

A layout, a scale's place or a byte order that the emulator has wrong would have to be wrong in Triton in the same way.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

pytest.importorskip("triton")

from tests.cuda.emulator.dots import FILLS, Shape, run_nvfp4, run_plain

SAMPLE = (Shape(16, 16, 64, 1), Shape(32, 64, 128, 4), Shape(128, 32, 64, 8))
EVERY = [Shape(m, n, k, warps) for m, n, k, warps in product((16, 32, 64, 128), (16, 64, 128), (64, 128), (1, 2, 4, 8))]


def assert_same_bits(pair: tuple[np.ndarray, np.ndarray]) -> None:
    found, exact = pair
    np.testing.assert_array_equal(found.view(np.uint32), (exact + np.float32(0)).view(np.uint32))


@pytest.mark.parametrize("fill", FILLS)
def test_nvfp4_whatever_the_numbers(fill):
    assert_same_bits(run_nvfp4(Shape(32, 32, 128, 2), fill))


@pytest.mark.parametrize("shape", SAMPLE, ids=str)
def test_nvfp4(shape):
    assert_same_bits(run_nvfp4(shape, "anything"))


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
@pytest.mark.parametrize("shape", SAMPLE[:2], ids=str)
def test_16_bits(shape, kind):
    assert_same_bits(run_plain(shape, kind))


@pytest.mark.slow
@pytest.mark.parametrize("m", [16, 32, 64, 128])
@pytest.mark.parametrize("n", [16, 64, 128])
def test_nvfp4_of_every_shape(m, n):
    for number, shape in enumerate(each for each in EVERY if (each.m, each.n) == (m, n)):
        assert_same_bits(run_nvfp4(shape, list(FILLS)[number % len(FILLS)]))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
def test_16_bits_of_many_shapes(arch):
    for number, shape in enumerate(EVERY[::5]):
        assert_same_bits(run_plain(shape, ("bf16", "fp16")[number % 2], arch))
