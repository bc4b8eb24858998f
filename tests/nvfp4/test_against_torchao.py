"""torchao multiplies by a reciprocal where we divide: at most one code apart, and only at a rounding boundary."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from impls.nvfp4 import quantize
from tests.nvfp4.definition import E4M3, MAGNITUDES, SCALES, default_global_scale, scale_bytes, unpacked

nvfp4_tensor = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")

E2M1_BOUNDARIES = (np.array(MAGNITUDES[1:]) + np.array(MAGNITUDES[:-1])) / 2
E4M3_BOUNDARIES = (SCALES[1:].astype(np.float64) + SCALES[:-1]) / 2
CLAMP = 2.0**-6  # torchao raises smaller scales to this, the smallest normal E4M3


def near(x: np.ndarray, boundaries: np.ndarray) -> np.ndarray:
    """Where x is within four float32 roundings of a rounding boundary."""
    distance = np.abs(x[..., None] - boundaries)
    close: np.ndarray = (distance <= 4 * 2.0**-24 * boundaries).any(-1)
    return close


@pytest.mark.parametrize("kind", ["gaussian", "wide", "ties"])
def test_one_code_apart_and_only_at_a_boundary(kind: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((512, 256)).astype(np.float32)
    if kind == "wide":
        x *= np.exp2(rng.integers(-12, 13, (512, 16))).astype(np.float32).repeat(16, axis=1)
    if kind == "ties":
        steps = rng.choice(SCALES[0x20:], (512, 16)).repeat(16, axis=1)
        x = (rng.choice([*E2M1_BOUNDARIES, *MAGNITUDES], (512, 256)) * steps).astype(np.float32)
        x[:, ::16] = 6 * steps[:, ::16]
    g = default_global_scale(x)
    ours = quantize(torch.from_numpy(x), global_scale=float(g))
    their_scales, their_packed = nvfp4_tensor.nvfp4_quantize(torch.from_numpy(x), per_tensor_scale=torch.tensor(float(g)))
    theirs = their_packed.view(torch.uint8).numpy()
    their_codes = np.stack((theirs & 0xF, theirs >> 4), axis=-1).reshape(x.shape).astype(np.int64)
    our_codes = unpacked(ours).astype(np.int64)
    our_bytes = scale_bytes(ours).astype(np.int64)
    their_bytes = their_scales.view(torch.uint8).numpy().reshape(our_bytes.shape).astype(np.int64)

    exact_scale = np.abs(x.astype(np.float64)).reshape(512, 16, 16).max(-1) / (6 * float(g))
    unclamped = exact_scale >= CLAMP
    differ = (our_bytes != their_bytes) & unclamped
    assert (np.abs(our_bytes - their_bytes)[differ] == 1).all()
    assert near(exact_scale, E4M3_BOUNDARIES)[differ].all()
    assert (their_bytes[~unclamped] == np.float32(CLAMP).astype(E4M3).view(np.uint8)).all()

    same_scale = (our_bytes == their_bytes).repeat(16, axis=1)
    assert same_scale.mean() > (0.99 if kind != "wide" else 0.5)  # or the comparison below would be of little
    step = our_bytes.astype(np.uint8).view(E4M3).astype(np.float64).repeat(16, axis=1) * float(g)
    differ = (our_codes != their_codes) & same_scale
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.abs(x) / step
    assert (np.abs((our_codes & 7) - (their_codes & 7))[differ] <= 1).all()
    nonzero = (our_codes & 7) + (their_codes & 7) > 0
    assert ((our_codes >> 3) == (their_codes >> 3))[same_scale & nonzero].all()
    assert near(quotient, E2M1_BOUNDARIES)[differ].all()
