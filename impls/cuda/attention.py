"""What kernels of attention share: their arguments, what they are told, splits, and the kernel that joins their results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from impls.arch import Arch
from impls.contract import Launch, Output, Paged, Problem, Scalar
from impls.cuda.compiler import FORMATS, Kernel, compile_kernel
from impls.triton.arguments import ATTEND_STRIDES, MERGE_STRIDES, Split, merge_values, stride_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from impls.triton.arguments import Value

KERNELS = Path(__file__).with_name("kernels")
ATTEND_ARGUMENTS = (
    *("q", "k_codes", "k_scales", "k_global", "v_codes", "v_scales", "v_global", "out", "lse", "kv_lens", "block_table"),
    *("scale_log2", *stride_names(ATTEND_STRIDES), "kv_heads", "q_len", "kv_len", "window", "splits"),
)
"""The parameters of attend.cuh, in order."""
COMBINE_ARGUMENTS = (*("partial_out", "partial_lse", "out", "lse", *stride_names(MERGE_STRIDES), "q_heads", "q_len", "splits"),)
COMBINE_DIMS, COMBINE_AT_ONCE, COMBINE_WARPS = 32, 8, 16
"""Head dims of a block of combine.cu, splits that a warp of it loads at once, and its warps at most."""


def problem_defines(problem: Problem, schedule: Split, out_dtype: str | None = None) -> dict[str, int | str]:
    """What kernels of attention are told of a problem and of where their results go. `out_dtype` is q's where left out."""
    p, split = problem, schedule.splits > 1
    return {
        "HEAD_DIM": p.head_dim,
        "V_HEAD_DIM": p.v_head_dim,
        "GROUP": p.group,
        "CAUSAL": int(p.causal),
        "WINDOWED": int(p.window is not None),
        "PAGE_SIZE": p.layout.page_size if isinstance(p.layout, Paged) else 0,
        "RAGGED": int(p.ragged),
        "V_ALONG_TOKENS": int(p.v_block_axis == -2),
        "Q_TYPE": FORMATS[p.dtype],
        "OUT_TYPE": _out_type("float32" if split else out_dtype or p.dtype),
        "OUT_FORMAT": FORMATS[p.dtype],
        "SPLIT": int(split),
    }


def partial_results(problem: Problem, schedule: Split, device: torch.device) -> Output:
    """Room for the results of splits, float32 [splits, B, Hq, Sq, ...]."""
    import torch

    shape = (schedule.splits, problem.batch, problem.q_heads, problem.q_len)
    out = torch.empty(*shape, problem.v_head_dim, dtype=torch.float32, device=device)
    return Output(out, torch.empty(shape, dtype=torch.float32, device=device))


def combine_kernel(problem: Problem, arch: Arch, schedule: Split, out_dtype: str) -> Kernel:
    """combine.cu for the splits of `schedule`."""
    defines: dict[str, int | str] = {
        "V_HEAD_DIM": problem.v_head_dim,
        "OUT_TYPE": _out_type(out_dtype),
        "OUT_FORMAT": FORMATS[out_dtype],
        "WARPS": _warps(schedule),
    }
    return compile_kernel(KERNELS / "combine.cu", "a4q_combine", arch, defines)


def combine_launch(problem: Problem, arch: Arch, schedule: Split, partial: Output, output: Output) -> Launch:
    """Joins `partial`, float32 [splits, B, Hq, Sq, ...], to `output`, whatever its dtype."""
    out_dtype = str(output.out.dtype).removeprefix("torch.")
    return combine_kernel(problem, arch, schedule, out_dtype).launch(
        grid=(partial.lse[0].numel(), problem.v_head_dim // COMBINE_DIMS, 1),
        block=(32 * _warps(schedule), 1, 1),
        shared_bytes=0,
        args=arguments(COMBINE_ARGUMENTS, merge_values(problem, schedule, partial, output)),
        overlaps=arch.compute_capability >= (9, 0),
    )


def arguments(names: Sequence[str], values: Mapping[str, Value]) -> tuple[torch.Tensor | Scalar | None, ...]:
    """`values` in the order of a kernel's parameters."""
    found: list[torch.Tensor | Scalar | None] = []
    for name in names:
        value = values[name]
        if isinstance(value, (int, float)):
            kind = "f32" if name == "scale_log2" else "i64" if name.endswith("_stride") else "i32"
            found.append(Scalar(kind, value))  # type: ignore[arg-type]
        else:
            found.append(value)
    return tuple(found)


def _out_type(dtype: str) -> str:
    """What kernels store results as: 16 bits go as they are rounded, to OUT_FORMAT."""
    return "float" if dtype == "float32" else "unsigned short"


def _warps(schedule: Split) -> int:
    """Of a block: a power of two, so that each warp loads once where that is enough."""
    return min(1 << (-(-schedule.splits // COMBINE_AT_ONCE) - 1).bit_length(), COMBINE_WARPS)
