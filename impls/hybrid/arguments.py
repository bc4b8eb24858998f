"""The arguments of `impls.hybrid.kernels.attend`: their types, which a plan needs, and their values, which `bind` knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from impls.contract import Cache, Inputs, Output, Paged, Problem
from impls.planning import VECTOR_BYTES
from impls.triton.arguments import ATTEND_STRIDES, Alignment, attend_types, attend_values, stride_names
from impls.triton.planner import Schedule, padded

if TYPE_CHECKING:
    from impls.triton.arguments import Value

_OF_THE_PACKED = [name for name in ATTEND_STRIDES if name.startswith(("k_", "v_"))]
_STRIDES = ("k_page_stride", "k_head_stride", "v_page_stride", "v_head_stride", "peaks_batch_stride")


def types(problem: Problem, schedule: Schedule, e4m3: bool) -> dict[str, str]:
    """{parameter: Triton type}; a tensor that the problem does not have is left out."""
    kept = attend_types(problem, schedule)
    for name in (*_OF_THE_PACKED, *stride_names({name: ATTEND_STRIDES[name] for name in _OF_THE_PACKED})):
        del kept[name]
    tensors = {"k": "*u8", "v": "*u8", "k_peaks": "*i32", "v_peaks": "*i32"} if e4m3 else {"k": kept["q"], "v": "*fp16"}
    return {**kept, **tensors, **dict.fromkeys(_STRIDES, "i64")}


def constants(problem: Problem, schedule: Schedule) -> dict[str, int | bool | None]:
    """{parameter: value} that the kernel is compiled for."""
    p = problem
    return {
        "GROUP": p.group,
        "HEAD_DIM": p.head_dim,
        "V_HEAD_DIM": p.v_head_dim,
        "V_WIDTH": p.v_head_dim // schedule.parts,
        "CAUSAL": p.causal,
        "WINDOWED": p.window is not None,
        "PAGE_SIZE": p.layout.page_size if isinstance(p.layout, Paged) else None,
        "BLOCK_M": schedule.block_m,
        "BLOCK_N": schedule.block_n,
        "MERGED_EARLY": schedule.merged_early,
        "HAS_E4M3": schedule.has_e4m3,
        "D": padded(p.head_dim),
        "DV": padded(p.v_head_dim // schedule.parts),
    }


def divisors(types: dict[str, str], alignment: Alignment) -> dict[str, int]:
    """What divides tensors and strides. A converted cache is packed, and its head dims are multiples of 16."""
    packed = dict.fromkeys(("k", "v", *_STRIDES[:4]), VECTOR_BYTES)
    found = {**packed, "q": alignment.q, "out": alignment.out}
    for name, size in (("q", 2), ("out", 4 if types["out"] == "*fp32" else 2)):
        found |= dict.fromkeys(stride_names({name: ATTEND_STRIDES[name]}), max(found[name] // size, 1))
    return found


def values(problem: Problem, schedule: Schedule, inputs: Inputs, cache: Cache, result: Output) -> dict[str, Value]:
    """{parameter: value} at run time. `result` is [B, Hq, Sq, ...], or [splits, B, Hq, Sq, ...] where splits > 1."""
    import torch

    given = attend_values(problem, schedule, inputs, result)
    for name in (*_OF_THE_PACKED, *stride_names({name: ATTEND_STRIDES[name] for name in _OF_THE_PACKED})):
        del given[name]
    k, v = (cache.extra[name] for name in ("k", "v"))
    peaks = cache.extra.get("k_peaks")
    if peaks is not None:
        k, v = k.view(torch.uint8), v.view(torch.uint8)
    return given | {
        "k": k,
        "v": v,
        "k_peaks": peaks,
        "v_peaks": cache.extra.get("v_peaks"),
        "k_page_stride": k.stride(0),
        "k_head_stride": k.stride(1),
        "v_page_stride": v.stride(0),
        "v_head_stride": v.stride(1),
        "peaks_batch_stride": 0 if peaks is None or peaks.shape[0] == 1 else peaks.stride(0),
    }
