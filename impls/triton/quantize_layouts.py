"""How the quantiser's kernels see a tensor: few axes, wide words, and numbers that the compiler may rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from impls.nvfp4 import BLOCK
from impls.planning import VECTOR_BYTES

if TYPE_CHECKING:
    import torch

FORMATS = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}
ROW_BLOCKS = 256
"""Blocks of a tile of rows: two a thread."""
COLUMN_BLOCKS, COLUMN_LINES = 8, 64
"""Blocks and lines of a tile of columns, four blocks a thread: runs of 128 bytes or more are read and of 64 are written."""


@dataclass(frozen=True)
class Layout:
    """Arguments of a kernel that follow from a tensor's shape and strides."""

    elements: torch.Tensor
    """Where the data begin, as integers as wide as the kernel loads them."""
    numbers: dict[str, int]
    constants: dict[str, int | bool | str]
    divisors: dict[str, int]
    """{argument: power of two that divides it}, of those that decide how wide a load or a store may be."""


def in_memory_order(x: torch.Tensor) -> torch.Tensor:
    """`x` with its axes in the order of their strides."""
    return x.permute(sorted(range(x.ndim), key=x.stride, reverse=True))


def why_not_rows(x: torch.Tensor) -> str | None:
    """None if `rows` can describe `x` [..., n], else one sentence."""
    if x.numel() == 0 or _is_flat(x):
        return None
    outer = _collapsed(x[..., 0], 3)
    if outer is None:
        return (
            f"the Triton quantiser takes at most three axes with gaps besides that of the blocks, "
            f"and strides {list(x.stride())} of shape {list(x.shape)} have more; make the tensor contiguous."
        )
    if max(outer[0]) * -(-x.shape[-1] // BLOCK) >= 2**31:  # of any axis, since the search makes rows of the longest
        return "the Triton quantiser takes fewer than 2^31 blocks between gaps; make the tensor contiguous."
    return None


def rows(x: torch.Tensor, *, across_rows: bool = False) -> Layout:
    """`x` [..., n] as [outer, inner, rows, n]; without gaps as one row, if blocks may run `across_rows` or fill them.

    Blocks that may run across rows are in no order, and the most rows then make a plane: planes begin with a tile of their own.
    """
    flat = _is_flat(x) and (across_rows or x.shape[-1] % BLOCK == 0)
    length = x.numel() if flat else x.shape[-1]
    element_stride = 1 if flat else x.stride(-1)
    collapsed = ((1, 1, 1), (0, 0, 0)) if flat else _collapsed(x[..., 0], 3)
    assert collapsed is not None, "why_not_rows lets no such tensor through"
    axes = list(zip(*collapsed, strict=True))
    (outer, inner, lines), strides = zip(*(sorted(axes) if across_rows else axes), strict=True)
    row_blocks = -(-length // BLOCK)
    tiles_per_plane = -(-lines * row_blocks // ROW_BLOCKS)
    paired = element_stride == 1 and _is_paired(x, length, *strides)
    per_word = 2 if paired else 1
    strides = tuple(stride // per_word for stride in strides)
    names = ("outer_stride", "inner_stride", "row_stride")
    vector = VECTOR_BYTES // (x.element_size() * per_word)
    return Layout(
        elements=_words(x) if paired else _bits(x),
        numbers={
            "blocks": lines * row_blocks,
            "row_blocks": 1 if flat else row_blocks,
            "length": length,
            "inner": inner,
            "tiles_per_plane": 1 if flat else tiles_per_plane,
            "tiles": outer * inner * tiles_per_plane,
            **dict(zip(names, strides, strict=True)),
            "element_stride": element_stride,
        },
        constants={
            "FORMAT": FORMATS[str(x.dtype)],
            "PAIRED": paired,
            "FLAT": flat,
            "WHOLE": length % BLOCK == 0,
            "BLOCKS": ROW_BLOCKS,
        },
        divisors={
            "x": _known(x.data_ptr(), VECTOR_BYTES),
            **{name: _known(stride, vector) for name, stride in zip(names, strides, strict=True)},
        },
    )


def is_columns(x: torch.Tensor) -> bool:
    """Whether `columns` can describe `x` [..., lines, tokens]: not the tokens of a line are adjacent, but the lines."""
    if x.ndim < 2 or x.numel() == 0 or x.stride(-1) == 1 or x.stride(-2) != 1:
        return False
    return x.shape[-1] < 2**31 and _collapsed(x[..., 0, 0], 2) is not None


def columns(x: torch.Tensor) -> Layout:
    """`x` [..., lines, tokens] as [outer, inner, tokens, lines]."""
    collapsed = _collapsed(x[..., 0, 0], 2)
    assert collapsed is not None, "is_columns lets no such tensor through"
    (outer, inner), (outer_stride, inner_stride) = collapsed
    lines, tokens = x.shape[-2:]
    blocks = -(-tokens // BLOCK)
    strides = {"outer_stride": outer_stride, "inner_stride": inner_stride, "token_stride": x.stride(-1)}
    paired = _is_paired(x, lines, *strides.values())
    per_word = 2 if paired else 1
    strides = {name: stride // per_word for name, stride in strides.items()}
    vector = VECTOR_BYTES // (x.element_size() * per_word)
    return Layout(
        elements=_words(x) if paired else _bits(x),
        numbers={
            "lines": lines,
            "line_blocks": blocks,
            "tokens": tokens,
            "inner": inner,
            "tiles": outer * inner * -(-blocks // COLUMN_BLOCKS) * -(-lines // COLUMN_LINES),
            **strides,
        },
        constants={"FORMAT": FORMATS[str(x.dtype)], "PAIRED": paired, "BLOCKS": COLUMN_BLOCKS, "LINES": COLUMN_LINES},
        divisors={
            "x": _known(x.data_ptr(), VECTOR_BYTES),
            "lines": _known(lines, VECTOR_BYTES),
            "line_blocks": _known(blocks, VECTOR_BYTES),
            **{name: _known(stride, vector) for name, stride in strides.items()},
        },
    )


def _known(number: int, divisor: int) -> int:
    """`divisor` if it divides `number`, else 1: finer distinctions would be compiled each, for narrower loads."""
    return divisor if number % divisor == 0 else 1


def _is_paired(x: torch.Tensor, *numbers: int) -> bool:
    """Whether words of two elements may be loaded: they are aligned, and no length or stride in elements divides one."""
    aligned = x.data_ptr() % (2 * x.element_size()) == 0 and x.storage_offset() % 2 == 0
    return aligned and all(number % 2 == 0 for number in numbers)


def _is_flat(x: torch.Tensor) -> bool:
    """Whether the elements follow one another in memory in their order."""
    collapsed = _collapsed(x, 1)
    return collapsed is not None and (collapsed[1][0] == 1 or x.numel() == 1)


def _collapsed(x: torch.Tensor, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(sizes, strides) of `axes` axes that name the elements of `x` in the same order; None if it takes more axes."""
    sizes: list[int] = []
    strides: list[int] = []
    for size, stride in zip(x.shape, x.stride(), strict=True):
        if size == 1:
            continue
        if sizes and strides[-1] == stride * size:
            sizes[-1] *= size
            strides[-1] = stride
        else:
            sizes.append(size)
            strides.append(stride)
    missing = axes - len(sizes)
    return None if missing < 0 else ((1,) * missing + tuple(sizes), (0,) * missing + tuple(strides))


def _bits(x: torch.Tensor) -> torch.Tensor:
    """The same elements as integers of their size."""
    import torch

    return x.view(torch.int32 if x.element_size() == 4 else torch.int16)


def _words(x: torch.Tensor) -> torch.Tensor:
    """The first two elements of `x` as one integer; what a kernel takes of it is the address and the type."""
    import torch

    return x.as_strided((2,), (1,)).view(torch.int64 if x.element_size() == 4 else torch.int32)
