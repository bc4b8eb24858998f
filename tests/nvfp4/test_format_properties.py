"""Properties of rounding to NVFP4 that follow from its definition, on drawn tensors."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impls.nvfp4 import GLOBAL_SCALE_MAX, GLOBAL_SCALE_MIN, dequantize, quantize
from tests.nvfp4.definition import Array, assert_same_bits, default_global_scale, scale_bytes, unpacked

PROPERTY = settings(max_examples=120)

FLOATS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(-8, 8, width=32),
    st.sampled_from([0.0, -0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, -6.0, 2688.0, 1e-42, 1.1754944e-38, 3.4028235e38]),
)


def matrices(rows: int = 4, columns: int = 40) -> st.SearchStrategy[Array]:
    shapes = st.tuples(st.integers(1, rows), st.integers(1, columns))
    return hnp.arrays(np.float32, shapes, elements=FLOATS, fill=st.just(0.0))


def whole_blocks(blocks: int = 6) -> st.SearchStrategy[Array]:
    return st.integers(1, blocks).flatmap(lambda n: hnp.arrays(np.float32, (n, 16), elements=FLOATS, fill=st.just(0.0)))


GLOBALS = st.one_of(
    st.floats(float(np.float32(GLOBAL_SCALE_MIN)), float(np.float32(GLOBAL_SCALE_MAX)), width=32),
    st.sampled_from([2.0**-10, 1.0, 1 / 3]).map(lambda g: float(np.float32(g))),
)


@PROPERTY
@given(matrices())
def test_bits_are_those_of_the_definition(x: Array) -> None:
    assert_same_bits(quantize(torch.from_numpy(x)), x, default_global_scale(x))


@PROPERTY
@given(matrices(), GLOBALS)
def test_bits_are_those_of_the_definition_under_any_global_scale(x: Array, g: float) -> None:
    assert_same_bits(quantize(torch.from_numpy(x), global_scale=g), x, np.float32(g))


@PROPERTY
@given(whole_blocks(), st.one_of(st.none(), GLOBALS))
def test_error_is_at_most_half_a_spacing(x: Array, g: float | None) -> None:
    """With step = scale * global and r = |x| / step, the error of an element that does not saturate is at most half the
    spacing of E2M1 at r: 1/4 below 2, 1/2 below 4, else 1, times step. One beyond 6 becomes 6. The quotient of float32
    roundings is off by 2^-22 relative, and absolutely by the rounding of a subnormal step, at most 2^-150 of 2^-136.
    """
    t = quantize(torch.from_numpy(x), global_scale=g)
    back = dequantize(t, torch.float64).numpy()
    exact = x.astype(np.float64)
    step = t.scales.double().numpy() * float(t.global_scale)
    flushed = step == 0
    assert not back[flushed[:, 0]].any()
    amax = np.abs(exact).max(axis=1, keepdims=True)
    assert (amax[flushed] <= 6 * 2.0**-10 * float(t.global_scale) * (1 + 2.0**-22)).all()
    kept = ~flushed[:, 0]
    exact, back, step = exact[kept], back[kept], step[kept]
    r = np.abs(exact) / step
    slack = r * 2.0**-13 if step.size and step.min() < 2.0**-126 else r * 2.0**-22
    half_spacing = np.where(r < 2, 0.25, np.where(r < 4, 0.5, 1.0))
    saturated = r > 6
    assert (np.abs(np.abs(back) - np.minimum(r, 6) * step) <= (half_spacing + slack) * step).all()
    assert (np.abs(back)[saturated] == np.broadcast_to(6 * step, back.shape)[saturated]).all()
    assert (np.sign(back) * np.sign(exact) >= 0).all()


@PROPERTY
@given(whole_blocks(), st.one_of(st.none(), GLOBALS))
def test_scale_is_the_nearest_e4m3(x: Array, g: float | None) -> None:
    """Half a spacing of E4M3: 2^-4 relative from 2^-6 on, 2^-10 below; saturating at 448."""
    t = quantize(torch.from_numpy(x), global_scale=g)
    wanted = np.minimum(np.abs(x.astype(np.float64)).max(axis=1) / (6 * float(t.global_scale)), 448.0)
    error = np.abs(t.scales.double().numpy()[:, 0] - wanted)
    assert (error <= np.maximum(wanted * 2.0**-4, 2.0**-10) * (1 + 2.0**-20)).all()


@PROPERTY
@given(whole_blocks())
def test_quantizing_twice_changes_nothing_where_a_six_is_left(x: Array) -> None:
    """A block whose largest code is 6 has amax / (6 * global) = scale, so both come back. That holds for every scale of
    at least 3 * 2^-9: rounding it moved amax / step no further than to 6 * 2.5 / 3 = 5, which still rounds up to 6 but
    for the tie. Below, a block may be left without a 6, and its scale then falls.
    """
    t = quantize(torch.from_numpy(x))
    again = quantize(dequantize(t), global_scale=t.global_scale)
    has_six = ((unpacked(t) & 7) == 7).any(axis=1)
    assert has_six[t.scales.float().numpy()[:, 0] > 3 * 2.0**-9].all()
    # a subnormal step has fewer digits than float32 gives the value that is divided by it
    stable = has_six & (t.scales.float().numpy()[:, 0] * t.global_scale.item() >= 2.0**-126)
    np.testing.assert_array_equal(scale_bytes(again)[stable], scale_bytes(t)[stable])
    np.testing.assert_array_equal(unpacked(again)[stable], unpacked(t)[stable])


@PROPERTY
@given(whole_blocks(), st.one_of(st.none(), GLOBALS))
def test_rounding_is_monotonic_within_a_block(x: Array, g: float | None) -> None:
    ordered = np.sort(x, axis=1)
    back = dequantize(quantize(torch.from_numpy(ordered), global_scale=g), torch.float64).numpy()
    assert (np.diff(back, axis=1) >= 0).all()


@PROPERTY
@given(whole_blocks(), st.one_of(st.none(), GLOBALS))
def test_negating_flips_the_sign_bits_and_nothing_else(x: Array, g: float | None) -> None:
    t = quantize(torch.from_numpy(x), global_scale=g)
    negated = quantize(torch.from_numpy(-x), global_scale=g)
    np.testing.assert_array_equal(scale_bytes(negated), scale_bytes(t))
    np.testing.assert_array_equal(unpacked(negated), np.where(scale_bytes(t) == 0, 0, unpacked(t) ^ 8))


@PROPERTY
@given(whole_blocks(), st.randoms(use_true_random=False))
def test_blocks_and_the_elements_in_them_are_rounded_alike_in_any_order(x: Array, random: Any) -> None:
    blocks = random.sample(range(len(x)), len(x))
    elements = random.sample(range(16), 16)
    t = quantize(torch.from_numpy(x))
    moved = quantize(torch.from_numpy(np.ascontiguousarray(x[blocks][:, elements])))
    np.testing.assert_array_equal(scale_bytes(moved), scale_bytes(t)[blocks])
    np.testing.assert_array_equal(unpacked(moved), unpacked(t)[blocks][:, elements])


@PROPERTY
@given(whole_blocks(), st.integers(-40, 40))
def test_scaling_by_a_power_of_two_scales_the_global_scale_alone(x: Array, exponent: int) -> None:
    amax = np.abs(x).max()
    smallest = np.abs(x[x != 0]).min() if x.any() else np.float32(1)
    # Away from the ends of float32, where scaling is no longer exact.
    if amax == 0 or not 1e-20 < amax < 1e20 or smallest * 2.0**exponent < 1e-37 or smallest < 1e-37:
        return
    t = quantize(torch.from_numpy(x))
    scaled = quantize(torch.from_numpy(x * np.float32(2.0**exponent)))
    assert scaled.global_scale.item() == t.global_scale.item() * 2.0**exponent
    assert torch.equal(scaled.codes, t.codes)
    np.testing.assert_array_equal(scale_bytes(scaled), scale_bytes(t))
