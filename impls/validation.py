"""Checks tensors against the contract, once for all: each message names the tensor, what it should be and what came.

Shapes and dtypes are read, contents are not (that would synchronise), except on the CPU, where reading them is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from impls.contract import Cache, Dense, Inputs, Output, Paged, Problem
from impls.memory import check_written

if TYPE_CHECKING:
    import torch

    from impls.nvfp4 import NVFP4Tensor


def problem_of(
    inputs: Inputs,
    *,
    causal: bool = True,
    scale: float | None = None,
    window: int | None = None,
    layout: Dense | Paged | None = None,
) -> Problem:
    """The problem that these tensors state. Raises ValueError when they contradict each other."""
    q, k4, v4 = inputs.q, inputs.k4, inputs.v4
    _check_types(inputs)
    _check_ranks(q, k4, v4)
    layout = Dense() if layout is None else layout
    if isinstance(layout, Paged):
        if inputs.block_table is None or inputs.kv_lens is None:
            raise ValueError("a paged cache needs block_table [B, max_pages] and kv_lens [B].")
        kv_heads, tokens = _page_axes(k4.shape, layout)
        if tokens != layout.page_size:
            raise ValueError(f"k4 has pages of {tokens} tokens where the layout says {layout.page_size}.")
        kv_len = layout.page_size * (inputs.block_table.shape[-1] if inputs.block_table.ndim else 0)
    else:
        _, kv_heads, kv_len, _ = k4.shape
    token_axis = -3 if isinstance(layout, Paged) and layout.order == "NHD" else -2
    if v4.block_axis not in (-1, token_axis):
        raise ValueError(f"v4's blocks run along axis {v4.block_axis}; not the head dim (-1) or the tokens ({token_axis}).")
    problem = Problem(
        batch=q.shape[0],
        q_heads=q.shape[1],
        kv_heads=kv_heads,
        q_len=q.shape[2],
        kv_len=kv_len,
        head_dim=q.shape[3],
        v_head_dim=v4.shape[-1],
        causal=causal,
        window=window,
        scale=scale,
        dtype=str(q.dtype).removeprefix("torch."),
        v_block_axis=-1 if v4.block_axis == -1 else -2,
        layout=layout,
        ragged=inputs.kv_lens is not None,
    )
    check_inputs(problem, inputs)
    return problem


def check_inputs(problem: Problem, inputs: Inputs) -> None:
    """Raises ValueError unless `inputs` are data of `problem`."""
    p, q, k4, v4 = problem, inputs.q, inputs.k4, inputs.v4
    _check_types(inputs)
    _check_ranks(q, k4, v4)
    _expect("q", "[B, Hq, Sq, D]", tuple(q.shape), (p.batch, p.q_heads, p.q_len, p.head_dim))
    _check_dtype("q", q, p.dtype)
    if isinstance(p.layout, Paged):
        pages = k4.shape[0]
        if not pages:
            raise ValueError("k4 must have at least one page, also where no sequence has a token.")
        for name, cache, dim, letter in (("k4", k4, p.head_dim, "D"), ("v4", v4, p.v_head_dim, "Dv")):
            axes = (p.layout.page_size, p.kv_heads) if p.layout.order == "NHD" else (p.kv_heads, p.layout.page_size)
            letters = "page_size, Hkv" if p.layout.order == "NHD" else "Hkv, page_size"
            _expect(name, f"[pages, {letters}, {letter}]", cache.shape, (pages, *axes, dim))
    else:
        _expect("k4", "[B, Hkv, Sk, D]", k4.shape, (p.batch, p.kv_heads, p.kv_len, p.head_dim))
        _expect("v4", "[B, Hkv, Sk, Dv]", v4.shape, (p.batch, p.kv_heads, p.kv_len, p.v_head_dim))
    if k4.block_axis != -1:
        raise ValueError(f"k4's blocks run along axis {k4.block_axis}; they must run along the head dim, the last axis.")
    token_axis = -3 if isinstance(p.layout, Paged) and p.layout.order == "NHD" else -2
    if v4.block_axis != (-1 if p.v_block_axis == -1 else token_axis):
        raise ValueError(f"v4's blocks run along axis {v4.block_axis}, not as v_block_axis {p.v_block_axis} says.")
    _check_lengths(problem, inputs)
    for name, device in (("k4", k4.device), ("v4", v4.device)):
        if device != q.device:
            raise ValueError(f"{name} is on {device} and q on {q.device}; they must be on one device.")
    if q.shape[-1] > 1 and q.stride(-1) != 1:
        raise ValueError("q must be contiguous along its last axis; strides are free on the others.")
    for name, cache in (("k4", k4), ("v4", v4)):
        for part, tensor in (("codes", cache.codes), ("scales", cache.scales)):
            if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
                raise ValueError(f"{name}.{part} must be contiguous along the last axis; strides are free on the others.")


def check_output(
    problem: Problem, q: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, *, out_dtype: str | None = None
) -> None:
    """Raises ValueError unless `out`, in q's dtype or in `out_dtype`, and `lse` can take the results."""
    import torch

    from impls.nvfp4 import why_not_plain

    p = problem
    for name, tensor in (("out", out), ("lse", lse)):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name} must be a tensor of torch, not {type(tensor).__name__}.")
        if reason := why_not_plain(tensor):
            raise ValueError(f"{name} {reason}")
    _expect("out", "[B, Hq, Sq, Dv]", tuple(out.shape), (p.batch, p.q_heads, p.q_len, p.v_head_dim))
    _expect("lse", "[B, Hq, Sq]", tuple(lse.shape), (p.batch, p.q_heads, p.q_len))
    _check_dtype("out", out, out_dtype or p.dtype)
    _check_dtype("lse", lse, "float32")
    for name, tensor in (("out", out), ("lse", lse)):
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {q.device}; they must be on one device.")
    if out.stride(-1) != 1 and out.shape[-1] > 1:
        raise ValueError("out must be contiguous along its last axis; strides are free on the others.")
    check_written({"out": out, "lse": lse}, {"q": q})


def check_operands(k4: NVFP4Tensor, v4: NVFP4Tensor) -> None:
    """What every `pack` does first. Raises ValueError where one is of another type."""
    from impls.nvfp4 import NVFP4Tensor

    for name, given in (("k4", k4), ("v4", v4)):
        if not isinstance(given, NVFP4Tensor):
            raise ValueError(f"{name} must be an NVFP4Tensor, as `quantize` makes one, not {type(given).__name__}.")


def inputs_of(q: torch.Tensor, cache: Cache, kv_lens: torch.Tensor | None, block_table: torch.Tensor | None) -> Inputs:
    """What `bind` was given, not checked yet. Raises ValueError where `cache` is none."""
    if not isinstance(cache, Cache):
        raise ValueError(f"the cache must be what plan.pack(k4, v4) returns, not {type(cache).__name__}.")
    return Inputs(q, cache.k4, cache.v4, kv_lens, block_table)


def _check_types(inputs: Inputs) -> None:
    import torch

    from impls.nvfp4 import why_not_plain

    check_operands(inputs.k4, inputs.v4)
    for name in ("q", "kv_lens", "block_table"):
        given = getattr(inputs, name)
        if not (isinstance(given, torch.Tensor) or (given is None and name != "q")):
            raise ValueError(f"{name} must be a tensor of torch, not {type(given).__name__}.")
        if given is not None and (reason := why_not_plain(given)):
            raise ValueError(f"{name} {reason}")


def _check_ranks(q: torch.Tensor, k4: NVFP4Tensor, v4: NVFP4Tensor) -> None:
    for name, shape in (("q", tuple(q.shape)), ("k4", k4.shape), ("v4", v4.shape)):
        if len(shape) != 4:
            raise ValueError(f"{name} must have 4 axes, not {len(shape)}: {list(shape)}.")


def _page_axes(shape: tuple[int, ...], layout: Paged) -> tuple[int, int]:
    """(kv_heads, tokens) of pages of this shape."""
    return (shape[2], shape[1]) if layout.order == "NHD" else (shape[1], shape[2])


def _check_lengths(problem: Problem, inputs: Inputs) -> None:
    p = problem
    if (inputs.kv_lens is not None) != p.ragged:
        raise ValueError("kv_lens must be given exactly when the problem is ragged.")
    if (inputs.block_table is not None) != isinstance(p.layout, Paged):
        raise ValueError("block_table must be given exactly when the cache is paged.")
    pages = -(-p.kv_len // p.layout.page_size) if isinstance(p.layout, Paged) else 0
    for name, letters, tensor, shape in (
        ("kv_lens", "[B]", inputs.kv_lens, (p.batch,)),
        ("block_table", "[B, max_pages]", inputs.block_table, (p.batch, pages)),
    ):
        if tensor is None:
            continue
        _expect(name, letters, tuple(tensor.shape), shape)
        _check_dtype(name, tensor, "int32")
        if tensor.device != inputs.q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {inputs.q.device}; they must be on one device.")
    if inputs.q.device.type == "cpu":
        _check_contents(problem, inputs)


def _check_contents(problem: Problem, inputs: Inputs) -> None:
    lens, table = inputs.kv_lens, inputs.block_table
    if lens is not None and not bool(((lens >= 0) & (lens <= problem.kv_len)).all()):
        raise ValueError(f"kv_lens must lie between 0 and {problem.kv_len}, and is {lens.tolist()}.")
    if table is None or not isinstance(problem.layout, Paged):
        return
    pages = inputs.k4.shape[0]
    for sequence, tokens in enumerate([problem.kv_len] * problem.batch if lens is None else lens.tolist()):
        row = table[sequence, : -(-tokens // problem.layout.page_size)]
        if not bool(((row >= 0) & (row < pages)).all()):
            raise ValueError(f"block_table names pages outside 0 to {pages - 1} for sequence {sequence}: {row.tolist()}.")


def _expect(name: str, letters: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if tuple(shape) != tuple(wanted):
        raise ValueError(f"{name} must be {letters} = {list(wanted)}, not {list(shape)}.")


def _check_dtype(name: str, tensor: torch.Tensor, dtype: str) -> None:
    if str(tensor.dtype) != f"torch.{dtype}":
        raise ValueError(f"{name} must be {dtype}, not {str(tensor.dtype).removeprefix('torch.')}.")


def bind_inputs(
    problem: Problem,
    inputs: Inputs,
    out: torch.Tensor | None,
    lse: torch.Tensor | None,
    *,
    out_dtype: str | None = None,
) -> Output:
    """What every `bind` does first: check the inputs, check the outputs or allocate them, out as `out_dtype` if not as q."""
    import torch

    check_inputs(problem, inputs)
    q = inputs.q
    if out is None:
        dtype = getattr(torch, out_dtype or problem.dtype)
        out = q.new_empty(problem.batch, problem.q_heads, problem.q_len, problem.v_head_dim, dtype=dtype)
    if lse is None:
        lse = q.new_empty(problem.batch, problem.q_heads, problem.q_len, dtype=torch.float32)
    check_output(problem, q, out, lse, out_dtype=out_dtype)
    return Output(out, lse)
