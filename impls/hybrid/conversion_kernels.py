"""The kernels that convert one tensor, for how it lies in memory: how many programs, with which arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from impls.arch import Arch
from impls.contract import Launch, Paged, Problem
from impls.hybrid import convert_kernels
from impls.hybrid.tiles import ColumnsTile, ConversionTiles, PeaksTile, RowsTile
from impls.nvfp4 import NVFP4Tensor
from impls.planning import has_e4m3
from impls.triton.attention import Step, launch_of
from impls.triton.compiler import Compiled, compile_kernel
from impls.triton.planner import power_of_two

POINTERS = {"bfloat16": "*bf16", "float16": "*fp16", "float8_e4m3fn": "*u8"}
BLOCK_BYTES = 8
"""Of codes, in a block of 16 elements."""
DIMS = 8
"""Head dims of a thread of `convert_columns`."""


@dataclass(frozen=True)
class View:
    """How an NVFP4 cache lies in memory, as the kernels see it."""

    pages: int
    heads: int
    tokens: int
    width: int
    along_tokens: bool
    lines: int
    """In each head: tokens, or head dims where blocks run along the tokens."""
    codes_strides: tuple[int, ...]
    """From page to page, head to head, line to line, in bytes."""
    scales_strides: tuple[int, ...]
    per_line: int
    """Scales of a line."""
    codes_aligned: int
    """Bytes, a power of two up to those of a block, that divide address and strides."""
    scales_aligned: int
    """As `codes_aligned`, up to 16, but for the strides of lines."""

    @classmethod
    def of(cls, t: NVFP4Tensor, problem: Problem) -> View:
        codes, scales = t.codes, t.scales
        along_tokens = t.block_axis != -1
        pages, heads, tokens, width = t.shape
        if isinstance(problem.layout, Paged) and problem.layout.order == "NHD":
            heads, tokens = tokens, heads
            if not along_tokens:  # with blocks along the tokens, these are stored last in either order
                codes, scales = codes.transpose(1, 2), scales.transpose(1, 2)
        *outer, line, _ = (0 if size == 1 else stride for size, stride in zip(codes.shape, codes.stride(), strict=True))
        *scales_outer, scales_line, _ = (
            0 if size == 1 else stride for size, stride in zip(scales.shape, scales.stride(), strict=True)
        )
        return cls(
            pages=pages,
            heads=heads,
            tokens=tokens,
            width=width,
            along_tokens=along_tokens,
            lines=codes.shape[2],
            codes_strides=(*outer, line),
            scales_strides=(*scales_outer, scales_line),
            per_line=scales.shape[3],
            codes_aligned=math.gcd(0 if codes.is_meta else codes.data_ptr(), *outer, line, BLOCK_BYTES),
            scales_aligned=math.gcd(0 if scales.is_meta else scales.data_ptr(), *scales_outer, 16),
        )

    @property
    def codes_packed(self) -> bool:
        return _packed(self.codes_strides[2], self.lines, BLOCK_BYTES * self.per_line)

    @property
    def scales_packed(self) -> bool:
        return _packed(self.scales_strides[2], self.lines, self.per_line)

    @property
    def strides(self) -> dict[str, int]:
        named = {"codes": self.codes_strides, "scales": self.scales_strides}
        return {
            f"{name}_{axis}_stride": strides[i]
            for name, strides in named.items()
            for i, axis in enumerate(("page", "head", "line"))
        }


class ConversionKernels:
    """What converts a cache that lies in memory as `view` says, and the tensors that it leaves."""

    def __init__(self, view: View, dtype: str, folded: bool, paged: bool, tiles: ConversionTiles, arch: Arch) -> None:
        e4m3 = dtype == "float8_e4m3fn"
        self.dtype = getattr(torch, dtype)
        self.stored = torch.uint8 if e4m3 else self.dtype
        self.shape = (view.pages, view.heads, view.tokens, view.width)
        self.peaks_shape = (1 if paged else view.pages, view.heads)
        """All pages of a pool share their heads' peaks."""
        self.works: list[Work] = []
        """In order. None where there is nothing to convert."""
        if 0 in self.shape:
            return
        numbers = {**view.strides, "peaks_page_stride": 0 if paged else view.heads, "heads": view.heads}
        if e4m3:
            self.works.append(_peaks(view, numbers, tiles.peaks, arch))
        types = {"codes": "*u8", "scales": "*u8", "global_scale": "*fp32", "out": POINTERS[dtype]}
        types |= {"peaks": "*i32"} if e4m3 else {}
        shape = _columns(view, tiles.columns) if view.along_tokens else _rows(view, tiles.rows, e4m3)
        self.works.append(
            Work(
                kernel="convert_columns" if view.along_tokens else "convert_rows",
                programs=view.pages * view.heads * shape.chunks,
                types=types,
                numbers={**numbers, "tokens": view.tokens, "chunks": shape.chunks},
                constants={
                    "WIDTH": view.width,
                    "FOLDED": folded,
                    "ALIGNED": view.codes_aligned,
                    "HAS_E4M3": has_e4m3(arch),
                    "LANES": shape.lanes,
                    **shape.constants,
                },
                divisors={"codes": view.codes_aligned, "out": 16},
                num_warps=shape.lanes // 32,
                arch=arch,
            )
        )


@dataclass(frozen=True)
class _Shape:
    """How a head is shared by programs."""

    chunks: int
    """Programs of each page's head."""
    lanes: int
    """Threads of each."""
    constants: Mapping[str, int | bool]


def _rows(view: View, tile: RowsTile, e4m3: bool) -> _Shape:
    vectors = view.tokens * view.width // (16 if e4m3 else 8)
    unroll = min(tile.unroll, power_of_two(-(-vectors // tile.lanes)))
    packed = view.codes_packed and view.scales_packed
    constants = {"UNROLL": unroll, "PACKED": packed}
    return _Shape(-(-vectors // (unroll * tile.lanes)), tile.lanes, constants)


def _columns(view: View, tile: ColumnsTile) -> _Shape:
    """Short pages leave threads for more head dims than `tile` has side by side."""
    blocks, groups = -(-view.tokens // 16), -(-view.width // DIMS)
    along = min(tile.lanes // tile.across, power_of_two(blocks))
    across = min(tile.lanes // along, max(tile.across, power_of_two(groups)))
    lanes = max(along * across, 32)
    return _Shape(-(-blocks // (lanes // across)) * -(-groups // across), lanes, {"ACROSS": across})


def _peaks(view: View, numbers: Mapping[str, int], tile: PeaksTile, arch: Arch) -> Work:
    count = view.lines * view.per_line
    chunks = -(-count // tile.count)
    in_words = view.scales_packed and view.scales_aligned == 16 and count % 4 == 0
    return Work(
        kernel="find_peaks",
        programs=view.pages * view.heads * chunks,
        types={"scales": "*u8", "peaks": "*i32"},
        numbers={
            **{name: number for name, number in numbers.items() if not name.startswith("codes")},
            "lines": view.lines,
            "chunks": chunks,
        },
        constants={
            "PER_LINE": view.per_line,
            "PACKED": view.scales_packed,
            "IN_WORDS": in_words,
            "COUNT": tile.count,
        },
        divisors={
            **dict.fromkeys(("scales", "scales_page_stride", "scales_head_stride"), 16),
            "lines": math.gcd(view.lines, 16),
        }
        if in_words
        else {},
        num_warps=tile.num_warps,
        arch=arch,
    )


@dataclass(frozen=True)
class Work:
    """One kernel of `convert_kernels`, for all tensors that lie alike."""

    kernel: str
    programs: int
    types: Mapping[str, str]
    """{tensor that it takes: Triton type}."""
    numbers: Mapping[str, int]
    """Arguments of 64 bits where their name ends in `stride`, else of 32."""
    constants: Mapping[str, Any]
    divisors: Mapping[str, int]
    num_warps: int
    arch: Arch

    def step(self, tensors: Mapping[str, torch.Tensor]) -> Step:
        given = {"peaks": None, **{name: tensors[name] for name in self.types}}
        given["scales"] = tensors["scales"].view(torch.uint8)
        return Step(getattr(convert_kernels, self.kernel), (self.programs, 1, 1), {**given, **self.numbers}, self.constants)

    @cached_property
    def compiled(self) -> Compiled:
        types = {**self.types, **{name: "i64" if name.endswith("stride") else "i32" for name in self.numbers}}
        kernel = getattr(convert_kernels, self.kernel)
        return compile_kernel(kernel, types, self.constants, self.divisors, self.arch, {"num_warps": self.num_warps})

    @cached_property
    def launch(self) -> Launch:
        """With null pointers for its tensors."""
        values = {**dict.fromkeys(self.types), **self.numbers}
        return launch_of(self.compiled, Step(None, (self.programs, 1, 1), values, self.constants))

    @cached_property
    def places(self) -> list[tuple[int, str]]:
        """(place among the arguments, name) of each tensor."""
        return [(place, name) for place, name in enumerate(self.compiled.parameters) if name in self.types]


def _packed(line_stride: int, lines: int, width: int) -> bool:
    """Whether `lines` of `width` bytes lie one behind the other, as int32 can count."""
    return (lines == 1 or line_stride == width) and lines * width < 2**31
