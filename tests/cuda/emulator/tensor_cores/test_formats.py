"""Codes and values of the number formats against NumPy's and ml_dtypes'."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from impls.cuda.emulator.tensor_cores.formats import E2M1_PAIRS, FORMATS, NOTHING, SCALES, through_half

OTHERS = {
    "f16": (np.float16, 0),
    "bf16": (ml_dtypes.bfloat16, 0),
    "e4m3": (ml_dtypes.float8_e4m3fn, 0),
    "e5m2": (ml_dtypes.float8_e5m2, 0),
    "e3m2": (ml_dtypes.float6_e3m2fn, 0),
    "e2m3": (ml_dtypes.float6_e2m3fn, 0),
    "e2m1": (ml_dtypes.float4_e2m1fn, 2),
}
MIN_EXPONENTS = {"f16": -14, "bf16": -126, "e4m3": -6, "e5m2": -14, "e3m2": -2, "e2m3": 0, "e2m1": 0}


def _values(dtype, count: int) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # NaNs
        return np.arange(count).astype(np.uint16 if count > 256 else np.uint8).view(dtype).astype(np.float64)


@pytest.mark.parametrize("name", OTHERS)
def test_values(name):
    dtype, shift = OTHERS[name]
    bits = 16 if name.endswith("16") else int(ml_dtypes.finfo(dtype).bits)
    wanted = _values(dtype, 1 << bits)
    codes = np.arange(1 << FORMATS[name].bits)
    np.testing.assert_array_equal(FORMATS[name].values, wanted[(codes >> shift) % len(wanted)])


@pytest.mark.parametrize("name", OTHERS)
def test_exponents(name):
    """Of finite values: floor of the binary logarithm, but no lower than the smallest normal number's."""
    values, exponents = FORMATS[name].values, FORMATS[name].exponents
    numbers = np.isfinite(values) & (values != 0)
    assert (exponents[numbers] == np.maximum(np.frexp(values[numbers])[1] - 1, MIN_EXPONENTS[name])).all()
    assert (exponents[values == 0] == NOTHING).all()


def test_through_half():
    """A subnormal e4m3 is a normal f16; e5m2 has f16's exponents."""
    e4m3 = through_half(FORMATS["e4m3"])
    assert (FORMATS["e4m3"].exponents[1], e4m3.exponents[1]) == (-6, -9)
    np.testing.assert_array_equal(through_half(FORMATS["e5m2"]).exponents[:0x7C], FORMATS["e5m2"].exponents[:0x7C])


def test_scales():
    e8m0 = _values(ml_dtypes.float8_e8m0fnu, 256)
    np.testing.assert_array_equal(SCALES["ue8m0"].values, e8m0)
    np.testing.assert_array_equal(SCALES["ue4m3"].values[:128], _values(ml_dtypes.float8_e4m3fn, 256)[:128])
    np.testing.assert_array_equal(SCALES["ue4m3"].values[128:], SCALES["ue4m3"].values[:128])  # the sign bit is not looked at


def test_pairs_of_nibbles():
    nibbles = _values(ml_dtypes.float4_e2m1fn, 16)
    np.testing.assert_array_equal(
        E2M1_PAIRS.view(np.float64).reshape(256, 2), [[nibbles[b & 15], nibbles[b >> 4]] for b in range(256)]
    )
