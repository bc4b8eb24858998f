"""Tensors that would show a fault of the quantiser's kernels, rounded on any device and compared with the CPU bit by bit.

Under TRITON_INTERPRET=1 the device is the CPU and the kernels are interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from impls.nvfp4 import GLOBAL_SCALE_MAX, GLOBAL_SCALE_MIN, NVFP4Tensor, quantize

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
E2M1_BOUNDARIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
GLOBALS = (GLOBAL_SCALE_MIN, 1e-30, 2.0**-20, 0.37, 1.0, 1e30, GLOBAL_SCALE_MAX)


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], torch.Tensor]
    """On the CPU; its strides are kept on a device."""
    block_axis: int = -1
    global_scale: float | None = None
    check: bool = True


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Normal numbers, each row over 20 binades, some blocks and many single elements zero, of both signs."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=g) * torch.exp2(torch.randint(-18, 3, shape, generator=g).float())
    x[torch.rand(shape, generator=g) < 0.1] = -0.0
    x.view(-1)[: x.numel() // 64 * 32].view(-1, 32)[::7] = 0.0
    return x.to(dtype)


def every_bit_pattern(dtype: torch.dtype) -> torch.Tensor:
    """[4096, 16]: all 16-bit numbers that are finite (in the others' place, 1), neighbours in one block."""
    x = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype).view(-1, 16)
    return torch.where(x.isfinite(), x, 1.0)


def boundaries(global_scale: float) -> torch.Tensor:
    """[254, 32] float32: for each scale two blocks at, just below and just above every boundary of E2M1 times the step;
    and, as the largest of its block, every boundary between two scales times 6 * global, and its neighbours."""
    scales = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    steps = scales * global_scale
    at = torch.tensor(E2M1_BOUNDARIES) * steps[:, None]
    codes = torch.cat((torch.nextafter(at, torch.zeros(())), at, torch.nextafter(at, torch.full((), torch.inf))), 1)
    codes = torch.cat((codes, 6 * steps[:, None], -codes[:, :9], 6 * steps[:, None]), 1)
    middle = (scales + torch.cat((scales[1:], scales[-1:] + 32))) / 2 * (6 * global_scale)
    largest = torch.zeros(0x7F, 32)
    largest[:, 3] = torch.nextafter(middle, torch.zeros(()))
    largest[:, 20] = middle
    largest[:, 21] = -middle / 3
    return torch.cat((codes, largest)).nan_to_num(posinf=3e38, neginf=-3e38)


def with_specials(dtype: torch.dtype, *specials: float) -> torch.Tensor:
    x = values((40, 16), dtype, seed=5)
    for row, special in enumerate(specials):
        x[5 * row, 3 * row] = special
    return x


def away_from_alignment(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Contiguous, but beginning one element into a buffer."""
    x = values(shape, dtype, seed=6)
    return torch.empty(x.numel() + 1, dtype=dtype)[1:].view(shape).copy_(x)


def with_gaps(shape: tuple[int, ...], dtype: torch.dtype, extra: int) -> torch.Tensor:
    """A view whose rows, heads and sequences have gaps that hold NaN, and whose outer axes are in another order."""
    x = values(shape, dtype, seed=7)
    room = torch.full((shape[2], shape[0], shape[1] + 1, shape[3] + extra), torch.nan, dtype=dtype)
    return room.permute(1, 2, 0, 3)[:, : shape[1], :, : shape[3]].copy_(x)


def _cases() -> Iterator[Case]:
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        for axis in (-1, -2):
            yield Case(f"{name}-axis{axis}", lambda dtype=dtype: values((2, 80, 48), dtype), axis)
            yield Case(f"{name}-axis{axis}-given", lambda dtype=dtype: values((80, 32), dtype), axis, 0.001)
            yield Case(f"{name}-gaps-axis{axis}", lambda dtype=dtype: with_gaps((1, 2, 35, 64), dtype, 8), axis)
        yield Case(f"{name}-nan-and-inf", lambda d=dtype: with_specials(d, torch.nan, torch.inf, -torch.inf), -1, 0.01, False)
        yield Case(f"{name}-nan-and-inf-axis-2", lambda d=dtype: with_specials(d, torch.nan, -torch.inf), -2, 0.01, False)
        yield Case(f"{name}-nan", lambda d=dtype: with_specials(d, torch.nan, torch.inf), check=False)
        yield Case(f"{name}-inf", lambda d=dtype: with_specials(d, -torch.inf), check=False)
        yield Case(f"{name}-zeros", lambda d=dtype: -torch.zeros(3, 32, dtype=d))
    for dtype, global_scales in ((torch.bfloat16, (2.0**-14, 1e-3, 1.0)), (torch.float16, (None, 1e-3))):
        name = str(dtype).removeprefix("torch.")
        for global_scale in global_scales:
            yield Case(f"{name}-every-number-{global_scale}", lambda d=dtype: every_bit_pattern(d), -1, global_scale)
    for global_scale in GLOBALS:
        exact = float(torch.tensor(global_scale, dtype=torch.float32))
        yield Case(f"boundaries-{global_scale:.3g}", lambda g=exact: boundaries(g), -1, exact)
    for magnitude in (1e-42, 1e-38, 3e-36, 1e38, 3e38):
        yield Case(f"magnitude-{magnitude}", lambda m=magnitude: values((16, 48), torch.float32).clamp(-1, 1) * m)
    for shape in ((1,), (15,), (16,), (33,), (5, 7), (2, 20, 33), (1, 1, 1), (2, 1, 2, 3, 32), (0, 16), (4, 0)):
        for axis in range(-min(len(shape), 3), 0):
            yield Case(f"shape-{shape}-axis{axis}", lambda s=shape: values(s, torch.bfloat16), axis)
    for axis in (-1, -2):
        yield Case(f"odd-address-axis{axis}", lambda: away_from_alignment((3, 40, 48), torch.float16), axis)
        yield Case(f"odd-gaps-axis{axis}", lambda: with_gaps((1, 2, 20, 32), torch.bfloat16, 3), axis)
    yield Case("one-token", lambda: values((2, 1, 64), torch.bfloat16), -2)
    yield Case("several-tiles-of-columns", lambda: values((2, 300, 80), torch.bfloat16), -2)
    yield Case("expanded", lambda: values((3, 1, 64), torch.bfloat16).expand(3, 5, 64))
    yield Case("every-second-element", lambda: values((3, 5, 128), torch.bfloat16)[..., ::2])
    yield Case("tokens-before-heads", lambda: values((2, 40, 3, 32), torch.bfloat16).transpose(1, 2), -2)


CASES = {case.name: case for case in _cases()}


def check(case: Case, device: torch.device) -> None:
    """Round on `device` by the kernels and on the CPU by torch. Raises AssertionError if a bit differs."""
    x = case.make()
    there = x if device.type == "cpu" else _on(device, x)
    before = x.clone(memory_format=torch.contiguous_format)
    got = quantize(there, block_axis=case.block_axis, global_scale=case.global_scale, check=case.check, backend="triton")
    wanted = quantize(x, block_axis=case.block_axis, global_scale=case.global_scale, check=case.check, backend="torch")
    assert_same_bits(got, wanted)
    assert torch.equal(there.cpu().contiguous().view(torch.uint8), before.view(torch.uint8)), "the input has changed"


def _on(device: torch.device, x: torch.Tensor) -> torch.Tensor:
    """`x` on `device`, strides, gaps and the place in its buffer kept."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    buffer = torch.empty(x.storage_offset() + extent, dtype=x.dtype, device=device)
    buffer[x.storage_offset() :].copy_(x.as_strided((extent,), (1,)))
    return buffer.as_strided(x.shape, x.stride(), x.storage_offset())


def assert_same_bits(got: NVFP4Tensor, wanted: NVFP4Tensor) -> None:
    """On whatever devices they are."""
    assert (got.block_axis, got.length, got.shape) == (wanted.block_axis, wanted.length, wanted.shape)
    a, b = float(got.global_scale), float(wanted.global_scale)
    assert a == b or (a != a and b != b), f"global scale {a!r}, not {b!r}"
    for part in ("scales", "codes"):
        x, y = (getattr(t, part).view(torch.uint8) for t in (got, wanted))
        wrong = (x != y.to(x.device)).nonzero()
        assert not len(wrong), (
            f"{len(wrong)} of {x.numel()} {part} differ, first at {wrong[0].tolist()}: "
            f"{int(x[tuple(wrong[0])]):#x}, not {int(y[tuple(wrong[0])]):#x}"
        )
