"""An NVFP4 cache turned once into 16 bits or E4M3: the cache that is left, and the kernels that are launched for it.

A dense cache stays dense, [B, Hkv, Sk, D]; of a paged one every page is converted where it lies, so that block tables hold:
[pages, Hkv, page_size, D], in this order whichever the NVFP4 pages have. Nothing is read back: E4M3's units are found and used
on the device.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import torch

from impls.arch import Arch
from impls.contract import Cache, Paged, Problem
from impls.cuda.driver import Program
from impls.hybrid.conversion_kernels import ConversionKernels, View, Work
from impls.hybrid.formats import Format
from impls.hybrid.tiles import CONVERSION, ConversionTiles
from impls.nvfp4 import NVFP4Tensor
from impls.peers.caches import ConvertedCache
from impls.triton.compiler import Compiled


class Converter:
    """Converts caches of one problem, as often as it is called. Compiles for packed NVFP4 tensors when it is made."""

    def __init__(self, problem: Problem, arch: Arch, to: Format, tiles: ConversionTiles = CONVERSION) -> None:
        self._problem, self._arch, self._to, self._tiles = problem, arch, to, tiles
        self._known: dict[tuple[Any, ...], tuple[tuple[ConversionKernels, ConversionKernels], Program | None]] = {}
        self._launching = threading.Lock()
        if arch.is_gpu:
            self.kernels()

    @property
    def layout(self) -> str:
        paged = self._problem.layout
        return f"{self._to.words}, {f'in pages of {paged.page_size}, HND' if isinstance(paged, Paged) else 'dense'}"

    def kernels(self) -> list[Compiled]:
        """What a conversion of packed tensors launches, in order."""
        with torch.device("meta"):
            k4, v4 = self._empty_caches()
        both = self._kernels(*(View.of(t, self._problem) for t in (k4, v4)))
        return [work.compiled for kernels in both for work in kernels.works]

    def __call__(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
        """The converted cache; of tensors without memory, one without memory, for which kernels are compiled all the same.
        Raises ValueError on tensors that are not where the kernels run.
        """
        if self._arch.is_gpu and k4.device.type == "cpu":
            raise ValueError(f"kernels for {self._arch.name} cannot convert a cache on the CPU; give one on that GPU.")
        both, program = self._prepared(k4, v4)
        extra: dict[str, torch.Tensor] = {}
        if self._to.e4m3:
            count = [math.prod(kernels.peaks_shape) for kernels in both]
            all_peaks = torch.zeros(sum(count), dtype=torch.int32, device=k4.device).split(count)
        works: list[tuple[Work, dict[str, torch.Tensor]]] = []
        for i, (name, t, kernels) in enumerate(zip("kv", (k4, v4), both, strict=True)):
            out = torch.empty(kernels.shape, dtype=kernels.stored, device=t.device)
            extra[name] = out.view(kernels.dtype)
            tensors = {"codes": t.codes, "scales": t.scales, "global_scale": t.global_scale, "out": out}
            if self._to.e4m3:
                tensors["peaks"] = extra[f"{name}_peaks"] = all_peaks[i].view(kernels.peaks_shape)
            works += [(work, tensors) for work in kernels.works]
        if program is not None:
            with self._launching:  # calls of other threads point the same program at theirs
                for number, (work, tensors) in enumerate(works):
                    for place, name in work.places:
                        program.point(number, place, tensors[name])
                program.launch(torch.cuda.current_stream(k4.device).cuda_stream)
        elif not self._arch.is_gpu:
            for work, tensors in works:
                work.step(tensors).interpret()
        return ConvertedCache(k4, v4, extra, layout=self.layout)

    def _prepared(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> tuple[tuple[ConversionKernels, ConversionKernels], Program | None]:
        """(the kernels for K and for V, what launches them on a GPU), made once for all that lies in memory as these do: that
        takes the host longer than the GPU may take to convert.
        """
        views = tuple(View.of(t, self._problem) for t in (k4, v4))
        key = (*views, k4.device)
        if key not in self._known:
            both = self._kernels(*views)
            launches = [work.launch for kernels in both for work in kernels.works] if self._arch.is_gpu else []
            self._known[key] = both, Program(launches, k4.device) if launches and k4.device.type == "cuda" else None
        return self._known[key]

    def _kernels(self, k: View, v: View) -> tuple[ConversionKernels, ConversionKernels]:
        rest = self._to.folded, isinstance(self._problem.layout, Paged), self._tiles, self._arch
        return ConversionKernels(k, self._to.k, *rest), ConversionKernels(v, self._to.v, *rest)

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
