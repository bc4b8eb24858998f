"""Swizzled scale buffers, against the formulas in the docstrings, other authors' reshapes, and the pictures."""

from __future__ import annotations

import pytest
import torch

from impls.scale_layouts import ScaleLayout, offsets, padded_shape, swizzle, unswizzle

LINEAR, TILE_128X4, TILE_64, TOKEN_4 = ScaleLayout.LINEAR, ScaleLayout.TILE_128X4, ScaleLayout.TILE_64, ScaleLayout.TOKEN_4
SIZES = [(1, 1), (4, 4), (16, 4), (31, 3), (64, 4), (65, 5), (128, 8), (130, 9), (300, 12), (0, 4), (5, 0)]
CASES = [
    (layout, rows, columns)
    for layout in ScaleLayout
    for rows, columns in SIZES
    if layout is not TOKEN_4 or (rows % 4 == 0 and columns % 4 == 0)
]


def by_formula(layout: ScaleLayout, r: int, c: int, columns: int) -> int:
    """The published formulas, one element at a time."""
    width = (columns + 3) // 4 * 4
    if layout is TILE_128X4:
        return (r // 128) * 128 * width + (c // 4) * 512 + (r % 32) * 16 + ((r % 128) // 32) * 4 + c % 4
    if layout is TILE_64:
        return (r // 64) * 64 * width + (c // 4) * 256 + (r % 16) * 16 + ((r % 64) // 16) * 4 + c % 4
    if layout is TOKEN_4:
        return (r // 4) * 4 * columns + c * 4 + r % 4
    return r * columns + c


def some_scales(*shape: int) -> torch.Tensor:
    """float8_e4m3fn scales, none of them zero, which is what padding is."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(1, 0x7F, shape, generator=generator, dtype=torch.uint8).view(torch.float8_e4m3fn)


def as_bytes(scales: torch.Tensor) -> torch.Tensor:
    return scales.view(torch.uint8)


@pytest.mark.parametrize(("layout", "rows", "columns"), CASES)
def test_every_scale_lies_where_the_formula_says_and_the_rest_is_zero(layout: ScaleLayout, rows: int, columns: int) -> None:
    scales = some_scales(rows, columns)
    buffer = swizzle(scales, layout)
    row_multiple, column_multiple = {LINEAR: (1, 1), TILE_128X4: (128, 4), TILE_64: (64, 4), TOKEN_4: (4, 4)}[layout]
    size = -(-rows // row_multiple) * row_multiple * (-(-columns // column_multiple) * column_multiple)
    wanted = [0] * size
    for r in range(rows):
        for c in range(columns):
            at = by_formula(layout, r, c, columns)
            assert wanted[at] == 0, "two scales in one place"
            wanted[at] = int(as_bytes(scales)[r, c])
    assert buffer.dtype == torch.float8_e4m3fn
    assert as_bytes(buffer).tolist() == wanted


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,), (2, 0, 1)])
@pytest.mark.parametrize(("layout", "rows", "columns"), CASES)
def test_round_trip_with_poisoned_padding(layout: ScaleLayout, rows: int, columns: int, lead: tuple[int, ...]) -> None:
    scales = some_scales(*lead, rows, columns)
    buffer = swizzle(scales, layout)
    assert buffer.shape[:-1] == lead
    used = offsets(layout, rows, columns).flatten()
    poisoned = torch.full_like(as_bytes(buffer), 0x7F)
    poisoned[..., used] = as_bytes(buffer)[..., used]
    back = unswizzle(poisoned.view(torch.float8_e4m3fn), layout, rows, columns)
    assert back.dtype == torch.float8_e4m3fn
    assert torch.equal(as_bytes(back), as_bytes(scales))


def test_leading_axes_are_swizzled_one_by_one() -> None:
    scales = some_scales(2, 3, 40, 8)
    for layout in ScaleLayout:
        whole = as_bytes(swizzle(scales, layout))
        for b in range(2):
            for h in range(3):
                assert torch.equal(whole[b, h], as_bytes(swizzle(scales[b, h], layout)))


def test_pictures_in_the_docstrings() -> None:
    at = offsets(TILE_128X4, 256, 8)
    assert [at[r, 0].item() for r in (0, 32, 64, 96, 1, 31, 127)] == [0, 4, 8, 12, 16, 496, 508]
    assert [at[0, 3].item(), at[0, 4].item(), at[128, 0].item()] == [3, 512, 1024]
    at = offsets(TILE_64, 128, 8)
    assert [at[r, 0].item() for r in (0, 16, 32, 48, 1, 15, 63)] == [0, 4, 8, 12, 16, 240, 252]
    assert [at[0, 3].item(), at[0, 4].item(), at[64, 0].item()] == [3, 256, 512]
    at = offsets(TOKEN_4, 8, 4)
    assert at.flatten()[:16].tolist() == [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]
    assert at[4, 0] == 16


@pytest.mark.parametrize(("rows", "columns"), [(128, 4), (200, 10), (1, 1), (384, 8)])
def test_128x4_is_torchaos_blocked_layout(rows: int, columns: int) -> None:
    utils = pytest.importorskip("torchao.prototype.mx_formats.utils")
    scales = as_bytes(some_scales(rows, columns))
    assert torch.equal(swizzle(scales, TILE_128X4), utils.to_blocked(scales, use_triton_kernel=False).flatten())


def test_128x4_is_the_cutlass_atom() -> None:
    """CUTLASS writes the tile as shape ((32, 4), 4) with strides ((16, 4), 1)."""
    scales = as_bytes(some_scales(256, 12))
    tiles = scales.view(2, 4, 32, 3, 4)  # row tile, quarter, row in the quarter, column tile, column
    assert torch.equal(swizzle(scales, TILE_128X4), tiles.permute(0, 3, 2, 1, 4).flatten())


def test_64_row_tiles_as_a_permutation() -> None:
    scales = as_bytes(some_scales(192, 8))
    tiles = scales.view(3, 4, 16, 2, 4)  # row tile, quarter, row in the quarter, column tile, column
    assert torch.equal(swizzle(scales, TILE_64), tiles.permute(0, 3, 2, 1, 4).flatten())


@pytest.mark.parametrize(("tokens", "blocks"), [(16, 4), (64, 8), (4, 32)])
def test_token_4_is_flashinfers_interleave(tokens: int, blocks: int) -> None:
    """reshape(T / 4, 4, 4, S / 4).permute(0, 2, 3, 1), on each [T, S] of [pages, heads, T, S]."""
    scales = as_bytes(some_scales(2, 3, tokens, blocks))
    theirs = scales.view(2, 3, tokens // 4, 4, 4, blocks // 4).permute(0, 1, 2, 4, 5, 3)
    assert torch.equal(swizzle(scales, TOKEN_4), theirs.flatten(2))


def test_strided_scales() -> None:
    scales = as_bytes(some_scales(3, 8, 70)).transpose(1, 2)  # [3, 70, 8], column stride 70
    assert torch.equal(swizzle(scales, TILE_64), swizzle(scales.contiguous(), TILE_64))


def test_the_layouts_differ() -> None:
    """A buffer read in another layout than it was written in is not the same scales."""
    scales = some_scales(128, 8)
    for written in ScaleLayout:
        for read in ScaleLayout:
            same = torch.equal(as_bytes(unswizzle(swizzle(scales, written), read, 128, 8)), as_bytes(scales))
            assert same is (written is read)


def test_padded_shape() -> None:
    assert padded_shape(TILE_128X4, 129, 5) == (256, 8)
    assert padded_shape(TILE_64, 129, 5) == (192, 8)
    assert padded_shape(TOKEN_4, 12, 4) == (12, 4)
    assert padded_shape(LINEAR, 129, 5) == (129, 5)


def test_shapes_and_types_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"TOKEN_4 scales need multiples of 4 tokens x 4 blocks, not 6 x 4\."):
        swizzle(some_scales(6, 4), TOKEN_4)
    with pytest.raises(ValueError, match=r"TOKEN_4 scales need multiples of 4 tokens x 4 blocks, not 8 x 6\."):
        unswizzle(some_scales(48), TOKEN_4, 8, 6)
    with pytest.raises(ValueError, match=r"scales must be \[..., rows, columns\] of an 8-bit type, not \[8\] torch.float8"):
        swizzle(some_scales(8), LINEAR)
    with pytest.raises(ValueError, match=r"of an 8-bit type, not \[8, 4\] torch.float32"):
        swizzle(torch.ones(8, 4), TILE_64)
    sentence = r"TILE_128X4 scales of 8 rows x 3 columns must be \[..., 128 \* 4\] of an 8-bit type, not \[24\] torch.float8"
    with pytest.raises(ValueError, match=sentence):
        unswizzle(some_scales(24), TILE_128X4, 8, 3)
    with pytest.raises(ValueError, match=r"not \[128, 4\] torch.float8_e4m3fn; flatten their last axes\."):
        unswizzle(some_scales(128, 4), TILE_128X4, 8, 3)
    with pytest.raises(ValueError, match=r"not \[512\] torch.float32"):
        unswizzle(torch.ones(512), TILE_128X4, 8, 3)
