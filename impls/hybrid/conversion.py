"""An NVFP4 cache turned once into 16 bits or E4M3: which kernels, with which arguments, and the cache that they leave.

A dense cache stays dense, [B, Hkv, Sk, D]; of a paged one every page is converted where it lies, so that block tables hold:
[pages, Hkv, page_size, D], in this order whichever the NVFP4 pages have. Nothing is read back: E4M3's units are found and used
on the device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from impls.arch import Arch
from impls.contract import Cache, Paged, Problem
from impls.cuda.driver import Program
from impls.hybrid import convert_kernels
from impls.hybrid.formats import Format
from impls.nvfp4 import NVFP4Tensor
from impls.peers.caches import ConvertedCache
from impls.triton.attention import Step, launch_of
from impls.triton.compiler import Compiled, compile_kernel

POINTERS = {torch.uint8: "*u8", torch.int32: "*i32", torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}
WARPS = 4
LANES = 32 * WARPS
MOST_UNROLL = 8
COLUMN_LINES, COLUMN_TOKENS = 64, 128
"""Head dims and tokens that `convert_columns` transposes at a time: whole sectors of 32 bytes on both sides."""
PEAK_COUNT = 4096


class Converter:
    """Converts caches of one problem, as often as it is called. Compiles for packed NVFP4 tensors when it is made."""

    def __init__(self, problem: Problem, arch: Arch, to: Format) -> None:
        self._problem, self._arch, self._to = problem, arch, to
        if arch.is_gpu:
            self.kernels()

    @property
    def layout(self) -> str:
        paged = self._problem.layout
        return f"{self._to.words}, {f'in pages of {paged.page_size}, HND' if isinstance(paged, Paged) else 'dense'}"

    def kernels(self) -> list[Compiled]:
        """What a conversion of packed tensors launches, in order."""
        with torch.device("meta"):
            return [work.compiled(self._arch) for work in self._works(*self._empty_caches())[1]]

    def __call__(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
        """The converted cache. Raises ValueError on tensors that are not where the kernels run."""
        extra, works = self._works(k4, v4)
        if not self._arch.is_gpu:
            for work in works:
                work.step().interpret()
        elif k4.device.type == "cuda":
            launches = [launch_of(work.compiled(self._arch), work.step()) for work in works]
            Program(launches, k4.device).launch(torch.cuda.current_stream(k4.device).cuda_stream)
        else:
            raise ValueError(f"kernels for {self._arch.name} cannot convert a cache on the CPU; give one on that GPU.")
        return ConvertedCache(k4, v4, extra, layout=self.layout)

    def _works(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> tuple[dict[str, torch.Tensor], list[_Work]]:
        """(the tensors of the new cache, the kernels that fill them)."""
        extra: dict[str, torch.Tensor] = {}
        works = []
        for name, t, dtype in (("k", k4, self._to.k), ("v", v4, self._to.v)):
            view = _View.of(t, self._problem)
            stored = torch.uint8 if self._to.e4m3 else getattr(torch, dtype)
            out = torch.empty((view.pages, view.heads, view.tokens, view.width), dtype=stored, device=t.device)
            extra[name] = out.view(getattr(torch, dtype))
            peaks = None
            if self._to.e4m3:
                pages = 1 if isinstance(self._problem.layout, Paged) else view.pages
                peaks = extra[f"{name}_peaks"] = torch.zeros(pages, view.heads, dtype=torch.int32, device=t.device)
            if out.numel():
                if peaks is not None:
                    works.append(_peaks(view, peaks))
                works.append(_conversion(view, t.global_scale, peaks, out, self._to.folded, self._arch))
        return extra, works

    def _empty_caches(self) -> tuple[NVFP4Tensor, NVFP4Tensor]:
        """Packed tensors of the problem's shape, on torch's current device."""
        p = self._problem
        pages, tokens = (1, p.layout.page_size) if isinstance(p.layout, Paged) else (p.batch, p.kv_len)
        nhd = isinstance(p.layout, Paged) and p.layout.order == "NHD"

        def empty(dim: int, block_axis: int) -> NVFP4Tensor:
            along_tokens = block_axis == -2
            outer = (pages, tokens, p.kv_heads) if nhd and not along_tokens else (pages, p.kv_heads, tokens)
            outer = (pages, p.kv_heads, dim) if along_tokens else outer
            length = tokens if along_tokens else dim
            blocks = -(-length // 16)
            codes = torch.empty((*outer, 8 * blocks), dtype=torch.uint8)
            scales = torch.empty((*outer, blocks), dtype=torch.uint8).view(torch.float8_e4m3fn)
            axis = -3 if nhd and along_tokens else block_axis
            return NVFP4Tensor(codes, scales, torch.empty((), dtype=torch.float32), axis, length)

        return empty(p.head_dim, -1), empty(p.v_head_dim, p.v_block_axis)


@dataclass(frozen=True)
class _View:
    """An NVFP4 cache as the kernels see it."""

    codes: torch.Tensor
    """uint8 [pages, heads, lines, bytes]; a line is a token, or a head dim where blocks run along the tokens."""
    scales: torch.Tensor
    pages: int
    heads: int
    tokens: int
    width: int
    along_tokens: bool

    @classmethod
    def of(cls, t: NVFP4Tensor, problem: Problem) -> _View:
        codes, scales = t.codes, t.scales.view(torch.uint8)
        along_tokens = t.block_axis != -1
        pages, heads, tokens, width = t.shape
        if isinstance(problem.layout, Paged) and problem.layout.order == "NHD":
            heads, tokens = tokens, heads
            if not along_tokens:  # with blocks along the tokens, these are stored last in either order
                codes, scales = codes.transpose(1, 2), scales.transpose(1, 2)
        return cls(codes, scales, pages, heads, tokens, width, along_tokens)

    def strides(self, name: str) -> dict[str, int]:
        tensor = getattr(self, name)
        return {f"{name}_{axis}_stride": tensor.stride(i) for i, axis in enumerate(("page", "head", "line"))}


@dataclass(frozen=True)
class _Work:
    """One kernel of `convert_kernels`, with its arguments."""

    kernel: str
    programs: int
    tensors: Mapping[str, torch.Tensor | None]
    numbers: Mapping[str, int]
    """Arguments of 64 bits where their name ends in `stride`, else of 32."""
    constants: Mapping[str, Any]
    divisors: Mapping[str, int]

    def step(self) -> Step:
        kernel = getattr(convert_kernels, self.kernel)
        return Step(kernel, (self.programs, 1, 1), {**self.tensors, **self.numbers}, self.constants)

    def compiled(self, arch: Arch) -> Compiled:
        types = {name: POINTERS[tensor.dtype] for name, tensor in self.tensors.items() if tensor is not None}
        types |= {name: "i64" if name.endswith("stride") else "i32" for name in self.numbers}
        return _compiled(self.kernel, *(tuple(each.items()) for each in (types, self.constants, self.divisors)), arch)


@cache
def _compiled(
    kernel: str,
    types: tuple[tuple[str, str], ...],
    constants: tuple[tuple[str, Any], ...],
    divisors: tuple[tuple[str, int], ...],
    arch: Arch,
) -> Compiled:
    options = {"num_warps": WARPS}
    return compile_kernel(getattr(convert_kernels, kernel), dict(types), dict(constants), dict(divisors), arch, options)


def _peaks(view: _View, peaks: torch.Tensor) -> _Work:
    lines, per_line = view.scales.shape[-2:]
    chunks = -(-lines * per_line // PEAK_COUNT)
    return _Work(
        "find_peaks",
        view.pages * view.heads * chunks,
        {"scales": view.scales, "peaks": peaks},
        {
            **view.strides("scales"),
            "peaks_page_stride": _peaks_page_stride(peaks),
            "heads": view.heads,
            "lines": lines,
            "chunks": chunks,
        },
        {"PER_LINE": per_line, "PACKED": _packed(view.scales), "COUNT": PEAK_COUNT},
        {},
    )


def _conversion(
    view: _View, global_scale: torch.Tensor, peaks: torch.Tensor | None, out: torch.Tensor, folded: bool, arch: Arch
) -> _Work:
    words = 2 if out.element_size() == 1 else 1  # of codes, for 16 bytes of results
    aligned = _alignment(view.codes, 4 * words)  # not told of more, a thread loads no more: see `convert_kernels`
    constants = {
        "WIDTH": view.width,
        "FOLDED": folded,
        "IN_WORDS": aligned >= 4,
        "HAS_E4M3": arch.is_gpu and arch.compute_capability >= (8, 9),
    }
    if view.along_tokens:
        kernel = "convert_columns"
        chunks = -(-view.tokens // COLUMN_TOKENS) * -(-view.width // COLUMN_LINES)
        constants |= {"LINES": COLUMN_LINES, "TOKENS": COLUMN_TOKENS}
    else:
        kernel = "convert_rows"
        groups = view.tokens * view.width // (8 * words)
        unroll = min(MOST_UNROLL, 1 << (-(-groups // LANES) - 1).bit_length())
        chunks = -(-groups // (unroll * LANES))
        packed = _packed(view.codes) and _packed(view.scales)
        constants |= {"UNROLL": unroll, "LANES": LANES, "WORDS": words, "PACKED": packed}
    codes_strides = view.strides("codes")
    return _Work(
        kernel,
        view.pages * view.heads * chunks,
        {"codes": view.codes, "scales": view.scales, "global_scale": global_scale, "peaks": peaks, "out": out},
        {
            **codes_strides,
            **view.strides("scales"),
            "peaks_page_stride": _peaks_page_stride(peaks),
            "heads": view.heads,
            "tokens": view.tokens,
            "chunks": chunks,
        },
        constants,
        {"codes": aligned, **dict.fromkeys(codes_strides, aligned), "out": 16},
    )


def _peaks_page_stride(peaks: torch.Tensor | None) -> int:
    """0 where all pages share their heads' peaks."""
    return 0 if peaks is None or peaks.shape[0] == 1 else peaks.stride(0)


def _packed(tensor: torch.Tensor) -> bool:
    """Whether the lines of each head of `tensor` [pages, heads, lines, bytes] lie one behind the other, as int32 can count."""
    lines, width = tensor.shape[-2:]
    return (lines == 1 or tensor.stride(-2) == width) and lines * width < 2**31


def _alignment(codes: torch.Tensor, most: int) -> int:
    """Bytes, a power of two up to `most`, that divide the address and the outer strides of `codes`."""
    address = 0 if codes.is_meta else codes.data_ptr()
    strides = [stride for size, stride in zip(codes.shape[:-1], codes.stride()[:-1], strict=True) if size > 1]
    return math.gcd(address, *strides, most)
