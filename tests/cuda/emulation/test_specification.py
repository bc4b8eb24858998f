"""The memory that a specification describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from impls.cuda.emulation.specification import DTYPES, SCALARS, Buffer, Specification, read


def specification(folder: Path, buffers: dict[str, Any], arguments: list[Any]) -> Specification:
    path = folder / "spec.json"
    path.write_text(json.dumps({"entry": "k", "grid": [2, 3], "block": [32], "arguments": arguments, "buffers": buffers}))
    return read(path, "", None)


def buffer(folder: Path, **described: Any) -> Buffer:
    return specification(folder, {"x": described}, []).buffers["x"]


def numbers(given: Buffer) -> np.ndarray:
    return given.values.view(ml_dtypes.bfloat16) if given.dtype == "bfloat16" else given.values


@pytest.mark.parametrize("dtype", DTYPES)
def test_fills_of_every_dtype(tmp_path, dtype):
    zeros, counted, fives = (buffer(tmp_path, dtype=dtype, shape=[4, 25], fill=fill) for fill in ("zeros", "range", 5))
    assert numbers(zeros).dtype.name == dtype
    assert (numbers(zeros) == 0).all() and (numbers(fives) == 5).all()
    assert numbers(counted).astype(np.float64).tolist() == np.arange(100.0).reshape(4, 25).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_is_the_same_again_and_another_with_another_seed(tmp_path, dtype):
    first, again, other = (buffer(tmp_path, dtype=dtype, shape=[1000], fill="random", seed=seed) for seed in (1, 1, 2))
    assert first.values.tobytes() == again.values.tobytes() != other.values.tobytes()
    values = numbers(first).astype(np.float64)
    assert np.isfinite(values).all()
    if "float" in dtype:
        assert abs(values.mean()) < 0.2 and abs(values.std() - 1) < 0.2
    else:
        limits = np.iinfo(dtype)
        assert values.min() < limits.min + (limits.max - limits.min) / 20 and values.max() > limits.max * 0.9


def test_bfloat16_is_rounded_to_nearest_even(tmp_path):
    """By the same values in float32 and another author's rounding."""
    single = buffer(tmp_path, dtype="float32", shape=[10_000], fill="random").values
    half = buffer(tmp_path, dtype="bfloat16", shape=[10_000], fill="random")
    assert half.values.tobytes() == single.astype(ml_dtypes.bfloat16).tobytes()
    for value in (257, 259, -257, 3.0e38, 1e-40, -0.0):  # ties, near the largest, subnormal
        expected = np.float32(value).astype(ml_dtypes.bfloat16)
        assert numbers(buffer(tmp_path, dtype="bfloat16", shape=[1], fill=value))[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<u2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_files_are_read_beside_the_specification(tmp_path, dtype, order):
    values = np.arange(6, dtype=dtype).reshape(2, 3)
    np.save(tmp_path / "x.npy", np.asarray(values, order=order))
    found = buffer(tmp_path, file="x.npy")
    assert found.values.tolist() == values.tolist()
    assert found.values.flags.c_contiguous and found.values.dtype.isnative and found.file == tmp_path / "x.npy"


def test_bytes_are_zero(tmp_path):
    found = buffer(tmp_path, bytes=10)
    assert (found.dtype, found.values.tolist()) == ("uint8", [0] * 10)


@pytest.mark.parametrize("kind", SCALARS)
def test_values_have_their_kind(tmp_path, kind):
    (kernel,) = specification(tmp_path, {}, [{kind: 7}]).kernels
    (value,) = kernel.arguments
    letter = {"i": "int", "u": "uint", "f": "float"}[kind[0]]
    assert value.dtype == f"{letter}{kind[1:]}" and value == 7


def test_sizes_that_are_left_out_are_one(tmp_path):
    (kernel,) = specification(tmp_path, {}, []).kernels
    assert (kernel.grid, kernel.block, kernel.shared_bytes, kernel.overlaps) == ((2, 3, 1), (32, 1, 1), 0, False)


def test_sentences_call_buffers_by_their_names(tmp_path):
    (kernel,) = specification(tmp_path, {"x": {"bytes": 4}}, [{"i32": 1}, {"buffer": "x"}, None]).kernels
    assert kernel.names == ["argument 0", "buffer x", "argument 2"]
    assert kernel.arguments[2] is None
