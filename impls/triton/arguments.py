"""The kernels' arguments: their types, which a plan needs, and their values, which `bind` knows.

A kernel takes tensors with all their outer strides. Strides are 64-bit, so that no offset is computed in less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol

from impls.contract import Inputs, Output, Paged, Problem
from impls.planning import VECTOR_BYTES
from impls.triton.planner import MERGE_CHUNK, MERGE_SLICE, Schedule, padded

if TYPE_CHECKING:
    import torch

    Value = torch.Tensor | int | float | None

LOG2_E = 1.4426950408889634
TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

# The axes whose strides a kernel takes. The page of a dense cache is a sequence; a line of V is a token, or a head dim
# where V's blocks run along the tokens.
_ROWS = ("batch", "head", "row")
ATTEND_STRIDES = {
    "q": _ROWS,
    "k_codes": ("page", "head", "token"),
    "k_scales": ("page", "head", "token"),
    "v_codes": ("page", "head", "line"),
    "v_scales": ("page", "head", "line"),
    "out": ("split", *_ROWS),
    "lse": ("split", *_ROWS),
    "kv_lens": ("batch",),
    "block_table": ("batch", "page"),
}
MERGE_STRIDES = {"out": _ROWS, "lse": _ROWS}


class Split(Protocol):
    """A schedule, of any kernel that takes these arguments."""

    @property
    def splits(self) -> int: ...


@dataclass(frozen=True)
class Alignment:
    """Bytes, a power of two up to 16, that divide a tensor's address and all its outer strides.

    The compiler is told, so that it may load vectors; a kernel must not run on tensors that are aligned less.
    """

    q: int
    k_codes: int
    k_scales: int
    v_codes: int
    v_scales: int
    out: int

    @classmethod
    def expected(cls, problem: Problem) -> Alignment:
        """What tensors have whose outer axes are permuted or sliced at will, but whose lines are packed."""
        p = problem
        v_line = p.v_head_dim
        if p.v_block_axis == -2:
            v_line = p.layout.page_size if isinstance(p.layout, Paged) else p.kv_len
        v_blocks = -(-v_line // 16)
        return cls(
            q=VECTOR_BYTES,
            k_codes=math.gcd(p.head_dim // 2, VECTOR_BYTES),
            k_scales=math.gcd(p.head_dim // 16, VECTOR_BYTES),
            v_codes=math.gcd(v_blocks * 8, VECTOR_BYTES),
            v_scales=math.gcd(v_blocks, VECTOR_BYTES),
            out=VECTOR_BYTES,
        )

    @classmethod
    def of(cls, inputs: Inputs, out: torch.Tensor) -> Alignment:
        """What the tensors at hand have."""
        tensors = {**_tensors(inputs), "out": out}
        return cls(**{field.name: alignment_of(tensors[field.name]) for field in fields(cls)})

    def and_also(self, other: Alignment) -> Alignment:
        """What holds where both do."""
        return Alignment(**{f.name: min(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})


def alignment_of(tensor: torch.Tensor) -> int:
    """Bytes, up to 16, that divide the tensor's address and all its outer strides."""
    strides = (stride * tensor.element_size() for stride in outer_strides(tensor)[:-1])
    return math.gcd(tensor.data_ptr(), *strides, VECTOR_BYTES)


def outer_strides(tensor: torch.Tensor) -> list[int]:
    """In elements; 0 for an axis of one entry, whose stride means nothing."""
    return [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]


def stride_names(tensors: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [f"{tensor}_{axis}_stride" for tensor, axes in tensors.items() for axis in axes]


def attend_types(problem: Problem, schedule: Schedule) -> dict[str, str]:
    """{parameter: Triton type} of `kernels.attend`; a tensor that the problem does not have is left out."""
    short = TYPES[problem.dtype]
    types = {
        "q": f"*{short}",
        **dict.fromkeys(("k_codes", "k_scales", "v_codes", "v_scales"), "*u8"),
        **dict.fromkeys(("k_global", "v_global", "lse"), "*fp32"),
        "out": "*fp32" if schedule.splits > 1 else f"*{TYPES[schedule.out_dtype]}",
        "scale_log2": "fp32",
        **dict.fromkeys(stride_names(ATTEND_STRIDES), "i64"),
        **dict.fromkeys(("kv_heads", "q_len", "kv_len", "window", "splits"), "i32"),
    }
    if problem.ragged:
        types["kv_lens"] = "*i32"
    if isinstance(problem.layout, Paged):
        types["block_table"] = "*i32"
    return types


def attend_constants(problem: Problem, schedule: Schedule, alignment: Alignment) -> dict[str, int | bool | None]:
    """{parameter: value} that `kernels.attend` is compiled for."""
    p = problem
    return {
        "GROUP": p.group,
        "HEAD_DIM": p.head_dim,
        "V_WIDTH": p.v_head_dim // schedule.parts,
        "CAUSAL": p.causal,
        "WINDOWED": p.window is not None,
        "PAGE_SIZE": p.layout.page_size if isinstance(p.layout, Paged) else None,
        "V_ALONG_TOKENS": p.v_block_axis == -2,
        "HAS_E4M3": schedule.has_e4m3,
        "K_IN_PLACE": p.dtype == "bfloat16" and alignment.k_codes % 4 == 0,
        "K_SCALE_WORDS": p.head_dim % 64 == 0 and alignment.k_scales % 4 == 0,
        "V_SCALE_WORDS": p.v_head_dim % 64 == 0 and p.v_block_axis == -1 and alignment.v_scales % 4 == 0,
        "BLOCK_M": schedule.block_m,
        "BLOCK_N": schedule.block_n,
        "KEYS_FIRST": schedule.keys_first,
        "BY_WORD": schedule.by_word and min(alignment.k_codes, alignment.v_codes) % 4 == 0,
        "MERGED_EARLY": schedule.merged_early,
        "D": padded(p.head_dim),
        "DV": padded(p.v_head_dim // schedule.parts),
    }


def attend_values(problem: Problem, schedule: Split, inputs: Inputs, result: Output) -> dict[str, Value]:
    """{parameter: value} at run time. `result` is [B, Hq, Sq, ...], or [splits, B, Hq, Sq, ...] where splits > 1."""
    p = problem
    tensors = {**_tensors(inputs), "out": result.out, "lse": result.lse}
    strides = {name: outer_strides(tensor) for name, tensor in tensors.items()}
    if schedule.splits == 1:
        strides["out"].insert(0, 0)
        strides["lse"].insert(0, 0)
    if isinstance(p.layout, Paged) and p.layout.order == "NHD":  # [pages, page_size, Hkv, D]: head and token change places
        lines_of_tokens = ("k_codes", "k_scales", *(("v_codes", "v_scales") if p.v_block_axis == -1 else ()))
        for name in lines_of_tokens:
            strides[name][1], strides[name][2] = strides[name][2], strides[name][1]
    values: dict[str, Value] = {"kv_lens": None, "block_table": None, **tensors}
    for name, axes in ATTEND_STRIDES.items():
        for number, axis in enumerate(axes):
            values[f"{name}_{axis}_stride"] = strides[name][number] if name in strides else 0
    return values | {
        "k_global": inputs.k4.global_scale,
        "v_global": inputs.v4.global_scale,
        "scale_log2": p.softmax_scale * LOG2_E,
        "kv_heads": p.kv_heads,
        "q_len": p.q_len,
        "kv_len": p.kv_len,
        "window": 0 if p.window is None else min(p.window, max(p.kv_len, 1)),
        "splits": schedule.splits,
    }


def merge_types(schedule: Schedule) -> dict[str, str]:
    """{parameter: Triton type} of `kernels.merge`."""
    return {
        **dict.fromkeys(("partial_out", "partial_lse", "lse"), "*fp32"),
        "out": f"*{TYPES[schedule.out_dtype]}",
        **dict.fromkeys(stride_names(MERGE_STRIDES), "i64"),
        **dict.fromkeys(("q_heads", "q_len", "splits"), "i32"),
    }


def merge_constants(problem: Problem, schedule: Schedule) -> dict[str, int | bool | None]:
    """{parameter: value} that `kernels.merge` is compiled for."""
    return {"V_HEAD_DIM": problem.v_head_dim, "EARLY": schedule.merged_early, "CHUNK": MERGE_CHUNK, "SLICE": MERGE_SLICE}


def merge_values(problem: Problem, schedule: Split, partial: Output, output: Output) -> dict[str, Value]:
    """{parameter: value} at run time."""
    strides = {"out": outer_strides(output.out), "lse": outer_strides(output.lse)}
    return {
        "partial_out": partial.out,
        "partial_lse": partial.lse,
        "out": output.out,
        "lse": output.lse,
        **{f"{name}_{axis}_stride": strides[name][i] for name, axes in MERGE_STRIDES.items() for i, axis in enumerate(axes)},
        "q_heads": problem.q_heads,
        "q_len": problem.q_len,
        "splits": schedule.splits,
    }


def _tensors(inputs: Inputs) -> dict[str, torch.Tensor]:
    import torch

    tensors = {
        "q": inputs.q,
        "k_codes": inputs.k4.codes,
        "k_scales": inputs.k4.scales.view(torch.uint8),
        "v_codes": inputs.v4.codes,
        "v_scales": inputs.v4.scales.view(torch.uint8),
    }
    if inputs.kv_lens is not None:
        tensors["kv_lens"] = inputs.kv_lens
    if inputs.block_table is not None:
        tensors["block_table"] = inputs.block_table
    return tensors
