"""What quantize takes and refuses, what it leaves alone, and that it never waits for a device."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from impls.nvfp4 import (
    GLOBAL_SCALE_MAX,
    GLOBAL_SCALE_MIN,
    NVFP4Tensor,
    decode,
    default_global_scale,
    dequantize,
    quantize,
    round_rows,
)


def assert_equal(a: NVFP4Tensor, b: NVFP4Tensor) -> None:
    assert torch.equal(a.codes, b.codes)
    assert torch.equal(a.scales.view(torch.uint8), b.scales.view(torch.uint8))
    assert torch.equal(a.global_scale, b.global_scale)
    assert (a.block_axis, a.length, a.shape) == (b.block_axis, b.length, b.shape)


GOOD = quantize(torch.ones(2, 32))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: quantize([1.0]), "quantize takes a dense tensor, not list."),  # type: ignore[arg-type]
        (lambda: quantize(torch.eye(16).to_sparse()), "quantize takes a dense tensor, not torch.sparse_coo."),
        (lambda: quantize(torch.ones(16), block_axis="last"), "block_axis must be a whole number, not 'last'."),  # type: ignore[arg-type]
        (lambda: quantize(torch.ones(16), global_scale="1"), "global_scale must be a number or a tensor, not '1'."),  # type: ignore[arg-type]
        (lambda: NVFP4Tensor(None, GOOD.scales, GOOD.global_scale), "NVFP4Tensor: codes must be a tensor, not NoneType."),  # type: ignore[arg-type]
        (lambda: NVFP4Tensor(GOOD.codes, GOOD.scales, 1.0), "NVFP4Tensor: global_scale must be a tensor, not float."),  # type: ignore[arg-type]
        (
            lambda: NVFP4Tensor(GOOD.codes, GOOD.scales, GOOD.global_scale, block_axis=-1.5),  # type: ignore[arg-type]
            "NVFP4Tensor: block_axis must be a whole number, not -1.5.",
        ),
        (lambda: dequantize(torch.ones(16)), "dequantize takes an NVFP4Tensor, not Tensor."),  # type: ignore[arg-type]
        *(
            (
                lambda dtype=dtype: dequantize(GOOD, dtype),
                f"dequantize gives bfloat16, float16, float32 or float64, not {dtype!r}.",
            )
            for dtype in (
                torch.int32,
                "half",
                torch.float8_e4m3fn,
                torch.float8_e8m0fnu,
                torch.float4_e2m1fn_x2,
                torch.complex64,
            )
        ),
        *(
            (
                lambda dtype=dtype: quantize(torch.empty(16, dtype=dtype), check=False),
                f"quantize takes bfloat16, float16, float32 or float64, not {str(dtype).removeprefix('torch.')}.",
            )
            for dtype in (torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2)
        ),
        (
            lambda: quantize(torch.ones(16, dtype=torch.complex64)),
            "quantize takes a floating-point tensor with at least one axis, not torch.complex64 [16].",
        ),
        (
            lambda: quantize(torch.ones(16, device="meta")),
            "quantize cannot check a meta tensor, which has no data; say check=False.",
        ),
        (lambda: quantize(torch.ones(16), block_axis=False), "block_axis must be a whole number, not False."),
        (lambda: quantize(torch.ones(16), global_scale=True), "global_scale must be a number or a tensor, not True."),
        (
            lambda: quantize(torch.ones(16), global_scale=torch.tensor(1 + 1j)),
            "global_scale must be dense and real, not torch.strided, torch.complex64.",
        ),
        (
            lambda: quantize(torch.ones(16), global_scale=-(10**400)),
            f"quantize: global_scale must be a number from 1.18e-38 to 1.27e+35, not -1{'0' * 58}.",
        ),
        (
            lambda: NVFP4Tensor(GOOD.codes.to_sparse(), GOOD.scales, GOOD.global_scale),
            "NVFP4Tensor: codes must be a dense tensor, not sparse_coo.",
        ),
        (
            lambda: NVFP4Tensor(GOOD.codes, GOOD.scales, torch._neg_view(GOOD.global_scale)),
            "NVFP4Tensor: global_scale is a view whose values are negated or conjugated when read; "
            "pass resolve_neg() or resolve_conj() of it.",
        ),
        (
            lambda: NVFP4Tensor(GOOD.codes, GOOD.scales, GOOD.global_scale, length=True),
            "NVFP4Tensor: length must be a whole number, not True.",
        ),
        (
            lambda: NVFP4Tensor(GOOD.codes, GOOD.scales, GOOD.global_scale, block_axis=False),
            "NVFP4Tensor: block_axis must be a whole number, not False.",
        ),
    ],
)
def test_operands_of_other_types_are_refused_in_a_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value) == sentence


def test_views_that_are_negated_when_read_are_rounded_as_they_read() -> None:
    x = torch.linspace(-3, 3, 32)
    t = quantize(torch._neg_view(x), global_scale=torch._neg_view(torch.tensor(-1.0)))
    assert torch.equal(dequantize(t), dequantize(quantize(-x, global_scale=1.0)))


def test_a_graph_is_not_carried_on() -> None:
    t = quantize(torch.ones(32, requires_grad=True), global_scale=torch.tensor(1.0, requires_grad=True))
    assert not t.global_scale.requires_grad
    assert not quantize(torch.ones(32, requires_grad=True)).global_scale.requires_grad


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 16), (2, 0, 16), (0, 0), (1,), (1, 1)])
def test_empty_and_single_element_tensors(shape: tuple[int, ...]) -> None:
    for axis in range(-len(shape), 0):
        t = quantize(torch.ones(shape), block_axis=axis)
        assert t.shape == shape
        assert torch.equal(dequantize(t), torch.ones(shape))
        assert decode(t).shape == shape


@pytest.mark.parametrize("block_axis", [-1, -2])
def test_zeros_give_zero_codes_and_a_finite_scale(block_axis: int) -> None:
    """Model-Optimizer #1633, #1898: E4M3 NaN or 0/0 out of zeros; a zero tensor, then a zero row, then a zero block."""
    t = quantize(torch.zeros(32, 32), block_axis=block_axis)
    assert not t.codes.any()
    assert not t.scales.float().any()
    assert t.global_scale == 1.0
    x = torch.ones(32, 48)
    x[3] = 0
    x[:, 16:32] = 0
    t = quantize(x, block_axis=block_axis)
    assert torch.isfinite(t.scales.float()).all()
    assert torch.equal(dequantize(t), x)


def test_views_give_what_their_copies_give_and_are_not_written() -> None:
    base = torch.randn(6, 40, 64)
    before = base.clone()
    for view in (base.transpose(1, 2), base[::2, 1::3], base.permute(2, 0, 1), base[:, :1].expand(-1, 5, -1), base[..., 3:37]):
        for axis in (-1, -2, -3):
            t = quantize(view, block_axis=axis)
            assert_equal(t, quantize(view.contiguous(), block_axis=axis))
            assert t.codes.is_contiguous()
            assert t.scales.is_contiguous()
    assert torch.equal(base, before)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 32])
def test_codes_and_scales_are_contiguous_whatever_the_axis(length: int) -> None:
    """V blocked along the tokens of a page of 16 is one block: flattening it is a view, which keeps the page's strides."""
    for axis, shape in ((-1, (2, 3, length)), (-2, (2, length, 48)), (-3, (length, 2, 48))):
        t = quantize(torch.ones(shape), block_axis=axis)
        for part in (t.codes, t.scales):
            assert part.is_contiguous()
            assert part.stride(-1) == 1


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_check_refuses_nan_and_inf(poison: float, dtype: torch.dtype) -> None:
    x = torch.ones(4, 32, dtype=dtype)
    x[2, 7] = poison
    with pytest.raises(ValueError, match=r"^quantize: the tensor holds NaN or Inf"):
        quantize(x)


def test_check_refuses_float64_beyond_float32() -> None:
    with pytest.raises(ValueError, match="float64 beyond the float32 range"):
        quantize(torch.full((16,), 1e300, dtype=torch.float64))


def test_without_check_nan_stays_nan_in_its_block() -> None:
    x = torch.full((2, 32), 6.0)
    x[1, 20] = float("nan")
    t = quantize(x, global_scale=1.0, check=False)
    got = dequantize(t)
    assert torch.isnan(got[1, 16:]).all()
    assert t.codes[1, 10] & 7 == 7  # a defined code, since what a NaN converts to is not
    assert torch.equal(got[0], x[0])
    assert torch.equal(got[1, :16], x[1, :16])


def test_without_check_inf_saturates_under_a_given_global_scale() -> None:
    x = torch.tensor([float("inf"), -float("inf"), *[1.0] * 14])
    got = dequantize(quantize(x, global_scale=1.0, check=False))
    assert got.tolist() == [2688.0, -2688.0, *[0.0] * 14]


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_without_check_the_default_global_scale_spreads_nan_and_inf(poison: float) -> None:
    x = torch.ones(2, 32)
    x[1, 20] = poison
    assert torch.isnan(dequantize(quantize(x, check=False))).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: quantize(torch.ones(16, dtype=torch.int32)), "one axis, not torch.int32 [16]"),
        (lambda: quantize(torch.tensor(1.0)), "with at least one axis, not torch.float32 []"),
        (lambda: quantize(torch.ones(2, 16), block_axis=2), "block_axis 2 is not an axis of a tensor of shape [2, 16]"),
        (lambda: quantize(torch.ones(2, 16), block_axis=-3), "block_axis -3 is not an axis of a tensor of shape [2, 16]"),
        (lambda: quantize(torch.ones(16), global_scale=torch.ones(1)), "must be one number, not a tensor of shape [1]"),
        *(
            (lambda bad=bad: quantize(torch.ones(16), global_scale=bad), "must be a number from 1.18e-38 to 1.27e+35, not ")
            for bad in (0.0, -1.0, float("nan"), float("inf"), 1e300, 1e-39, 2e35, torch.tensor(-2.0), torch.tensor(0.0))
        ),
    ],
)
def test_quantize_refuses(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^quantize.*{re.escape(sentence)}|^{re.escape(sentence)}"):
        call()


@pytest.mark.parametrize("limit", [GLOBAL_SCALE_MIN, GLOBAL_SCALE_MAX])
def test_the_limits_of_the_global_scale_are_taken(limit: float) -> None:
    t = quantize(torch.full((16,), 6 * limit), global_scale=limit)
    assert dequantize(t).tolist() == [6 * limit] * 16


def parts(**changes: Any) -> dict[str, Any]:
    """Good arguments of NVFP4Tensor for data [2, 3, 40], with `changes`."""
    good = {
        "codes": torch.zeros(2, 3, 24, dtype=torch.uint8),
        "scales": torch.zeros(2, 3, 3).to(torch.float8_e4m3fn),
        "global_scale": torch.tensor(1.0),
        "block_axis": -1,
        "length": 40,
    }
    return {**good, **changes}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"codes": torch.zeros(2, 3, 24)}, "codes must be uint8, not torch.float32"),
        ({"scales": torch.zeros(2, 3, 3, dtype=torch.uint8)}, "scales must be float8_e4m3fn, not torch.uint8"),
        ({"codes": torch.zeros(2, 3, 23, dtype=torch.uint8)}, r"do not fit scales .*: \[2, 3, 23\] and \[2, 3, 3\]"),
        ({"codes": torch.zeros(3, 2, 24, dtype=torch.uint8)}, r"do not fit scales .*: \[3, 2, 24\] and \[2, 3, 3\]"),
        ({"codes": torch.zeros((), dtype=torch.uint8)}, r"do not fit scales .*: \[\] and \[2, 3, 3\]"),
        ({"scales": torch.zeros(()).to(torch.float8_e4m3fn)}, r"do not fit scales .*: \[2, 3, 24\] and \[\]"),
        ({"global_scale": torch.ones(1)}, r"a 0-d float32 tensor, not torch.float32 \[1\]"),
        ({"global_scale": torch.tensor(1.0, dtype=torch.float64)}, r"a 0-d float32 tensor, not torch.float64 \[\]"),
        ({"global_scale": torch.ones((), device="meta")}, "must be on one device, not cpu, cpu and meta"),
        ({"block_axis": 1}, "counts from the end, -1 to -3, and is 1"),
        ({"block_axis": -4}, "counts from the end, -1 to -3, and is -4"),
        ({"length": 49}, "length 49 does not end in the last of 3 blocks of 16"),
        ({"length": 32}, "length 32 does not end in the last of 3 blocks of 16"),
        ({"length": 0}, "length 0 does not end in the last of 3 blocks of 16"),
        ({"length": -2}, "length -2 does not end in the last of 3 blocks of 16"),
    ],
)
def test_nvfp4tensor_refuses_parts_that_do_not_fit(changes: dict[str, Any], sentence: str) -> None:
    NVFP4Tensor(**parts())
    with pytest.raises(ValueError, match=f"^NVFP4Tensor: .*{sentence}"):
        NVFP4Tensor(**parts(**changes))


def test_a_negative_length_of_no_blocks_is_refused() -> None:
    empty = {"codes": torch.zeros(2, 0, dtype=torch.uint8), "scales": torch.zeros(2, 0).to(torch.float8_e4m3fn)}
    assert NVFP4Tensor(**parts(**empty, length=0)).shape == (2, 0)
    with pytest.raises(ValueError, match="length -5 does not end in the last of 0 blocks"):
        NVFP4Tensor(**parts(**empty, length=-5))


def test_length_shape_bytes_and_device_of_a_tensor() -> None:
    t = NVFP4Tensor(**parts(block_axis=-2))
    assert t.shape == (2, 40, 3)
    assert t.nbytes == 2 * 3 * 24 + 2 * 3 * 3
    assert NVFP4Tensor(**parts(length=-1)).length == 48
    moved = t.to("meta")
    assert (moved.device.type, moved.shape, moved.block_axis) == ("meta", (2, 40, 3), -2)


def test_padding_never_reaches_a_value() -> None:
    """FlashInfer #2861: whatever lies beyond `length` in the last block."""
    x = torch.randn(3, 40)
    t = quantize(x)
    clean = dequantize(t)
    t.codes[:, 20:] = 0xFF
    assert torch.equal(dequantize(t), clean)
    assert torch.equal(decode(t) * t.global_scale, clean)


# --- nothing waits for a device ---------------------------------------------------------------------------------------


class NoReadBack(TorchDispatchMode):
    """Fails on what makes the host wait for a GPU: a value read back, or a tensor that crosses devices."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value is read back"
        result = func(*args, **(kwargs or {}))
        outputs = [t for t in (result if isinstance(result, list | tuple) else [result]) if isinstance(t, torch.Tensor)]
        tensors = [t for t in (*args, *outputs) if isinstance(t, torch.Tensor) and (t.ndim or t.device.type != "cpu")]
        assert len({t.device.type for t in tensors}) <= 1, f"{func} crosses devices"
        return result


@pytest.fixture
def no_host_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor made of Python numbers is made on the host and copied, which waits, whatever device is asked for."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a tensor is made of host data")

    monkeypatch.setattr(torch, "tensor", refuse)
    monkeypatch.setattr(torch, "as_tensor", refuse)


@pytest.mark.usefixtures("no_host_tensors")
@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("global_scale", [None, 0.5])
def test_without_check_nothing_synchronises(device: str, global_scale: float | None) -> None:
    x = torch.ones(4, 40, 24, device=device)
    with NoReadBack():
        for axis in (-1, -2):
            t = quantize(x, block_axis=axis, global_scale=global_scale, check=False)
            assert dequantize(t).shape == decode(t).shape == x.shape
        round_rows(x)
        default_global_scale(x)


def test_the_guard_against_synchronising_can_fail() -> None:
    with NoReadBack(), pytest.raises(AssertionError, match="read back"):
        quantize(torch.ones(16), check=True)
    with NoReadBack(), pytest.raises(AssertionError, match="crosses devices"):
        torch.ones(16).to("meta")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_without_check_nothing_synchronises_on_a_gpu() -> None:
    x = torch.ones(4, 40, 24, device="cuda")
    dequantize(quantize(x, check=False))
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for axis in (-1, -2):
            dequantize(quantize(x, block_axis=axis, check=False))
            dequantize(quantize(x, block_axis=axis, check=False, global_scale=0.5))
        round_rows(x)
    finally:
        torch.cuda.set_sync_debug_mode(before)
