"""The plan and the runner of the `flashinfer-*` implementations."""

from __future__ import annotations

import math
from typing import Any

import torch

from impls.arch import Arch
from impls.contract import Cache, Output, Plan, Problem, Runner
from impls.nvfp4 import NVFP4Tensor
from impls.peers.caches import PAGE_SIZE, nvfp4_paged_cache, paged_cache
from impls.peers.checks import require_gpu, require_packed
from impls.peers.flashinfer import Kernel
from impls.peers.flashinfer_library import compile_prefill, prefill_wrapper
from impls.validation import bind_inputs, check_inputs, check_operands, inputs_of

FLOAT_WORKSPACE = 128 * 2**20
"""Bytes for partial outputs of a split context, as FlashInfer recommends."""
INT_WORKSPACE = 8 * 2**20
"""Bytes that its wrapper allocates for the schedule."""
LN2 = math.log(2)
CACHE_DTYPES = {"float8_e4m3fn": torch.float8_e4m3fn, "nvfp4": torch.uint8}


class FlashInferPlan(Plan):
    def __init__(self, problem: Problem, arch: Arch, kernel: Kernel) -> None:
        self.problem = problem
        self.arch = arch
        self.kernel = kernel
        self.q_dtype: torch.dtype = getattr(torch, problem.dtype)
        self.cache_dtype = CACHE_DTYPES.get(kernel.cache, self.q_dtype)
        compile_prefill(arch, kernel.backend, self.q_dtype, self.cache_dtype, problem.head_dim)

    @property
    def workspace_bytes(self) -> int:
        return FLOAT_WORKSPACE + INT_WORKSPACE

    def describe(self) -> dict[str, int | str]:
        return {"backend": self.kernel.backend, "page_size": PAGE_SIZE}

    def pack(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
        check_operands(k4, v4)
        if self.kernel.cache == "nvfp4":
            return nvfp4_paged_cache(k4, v4)
        return paged_cache(k4, v4, self.problem.dtype if self.kernel.cache == "16-bit" else self.kernel.cache)

    def bind(
        self,
        q: torch.Tensor,
        cache: Cache,
        *,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        kv_lens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
    ) -> Runner:
        p, inputs = self.problem, inputs_of(q, cache, kv_lens, block_table)
        check_inputs(p, inputs)
        require_gpu(self.arch, q)
        require_packed(cache, ("k", "v", "k_scales", "v_scales") if self.kernel.cache == "nvfp4" else ("k", "v"))
        if out is None:  # in the order that FlashInfer writes, so that nothing is left to copy
            out = tokens_first(q.new_empty(p.batch, p.q_len, p.q_heads, p.v_head_dim))
        output = bind_inputs(p, inputs, out, lse)
        return FlashInferRunner(self, q, cache, output)


class FlashInferRunner(Runner):
    """Launches the kernels that FlashInfer's wrapper scheduled when it was bound, and one that turns the LSE to base e.

    FlashInfer makes a small table at the first call of a process, which therefore must not be the one that is captured.
    """

    def __init__(self, plan: FlashInferPlan, q: torch.Tensor, cache: Cache, output: Output) -> None:
        p = plan.problem
        self.output = output
        workspace = torch.empty(FLOAT_WORKSPACE, dtype=torch.uint8, device=q.device)
        self._wrapper = prefill_wrapper(workspace, plan.kernel.backend)
        schedule(self._wrapper, plan)
        self._q, self._out = tokens_first(q), tokens_first(output.out)
        self._q_rows, self._out_rows = rows(self._q), rows(self._out)
        if not self._out_rows.is_contiguous():  # the kernels take strides of the queries alone
            self._out_rows = self._out_rows.new_empty(self._out_rows.shape)
        self._lse2 = torch.empty(p.batch * p.q_len, p.q_heads, dtype=torch.float32, device=q.device)
        self._pages = (cache.extra["k"], cache.extra["v"])
        self._options: dict[str, Any] = {}
        if plan.kernel.cache == "nvfp4":
            self._options = {
                "kv_cache_sf": (cache.extra["k_scales"], cache.extra["v_scales"]),
                "k_scale": float(cache.k4.global_scale),
                "v_scale": float(cache.v4.global_scale),
            }

    def __call__(self) -> None:
        if self._q_rows.data_ptr() != self._q.data_ptr():
            self._q_rows.unflatten(0, self._q.shape[:2]).copy_(self._q)
        self._wrapper.run(self._q_rows, self._pages, out=self._out_rows, lse=self._lse2, return_lse=True, **self._options)
        if self._out_rows.data_ptr() != self._out.data_ptr():
            self._out.copy_(self._out_rows.unflatten(0, self._out.shape[:2]))
        natural_log(self._lse2, self.output.lse)


def schedule(wrapper: Any, plan: FlashInferPlan) -> None:
    """Plan `wrapper` for sequences of `kv_len` tokens each, whose pages follow each other in the cache."""
    p = plan.problem
    pages = -(-p.kv_len // PAGE_SIZE)
    starts = torch.arange(p.batch + 1, dtype=torch.int32)
    wrapper.plan(
        qo_indptr=starts * p.q_len,
        paged_kv_indptr=starts * pages,
        paged_kv_indices=torch.arange(p.batch * pages, dtype=torch.int32),
        paged_kv_last_page_len=torch.full((p.batch,), p.kv_len - (pages - 1) * PAGE_SIZE, dtype=torch.int32),
        num_qo_heads=p.q_heads,
        num_kv_heads=p.kv_heads,
        head_dim_qk=p.head_dim,
        page_size=PAGE_SIZE,
        causal=p.causal and p.q_len > 1,
        sm_scale=p.softmax_scale,
        q_data_type=plan.q_dtype,
        kv_data_type=plan.cache_dtype,
    )


def tokens_first(x: torch.Tensor) -> torch.Tensor:
    """[B, H, S, ...] as [B, S, H, ...], and back."""
    return x.transpose(1, 2)


def rows(x: torch.Tensor) -> torch.Tensor:
    """[B * S, H, D] for x [B, S, H, D]: its own memory if its strides allow that, else new memory."""
    batch, tokens = x.shape[:2]
    if batch == 1 or tokens == 1 or x.stride(0) == tokens * x.stride(1):
        return x.flatten(0, 1)
    return x.new_empty(batch * tokens, *x.shape[2:])


def natural_log(base2: torch.Tensor, lse: torch.Tensor) -> None:
    """Write FlashInfer's LSE, [B * S, H] to base 2, to `lse` [B, H, S]: one launch, nothing allocated."""
    batch, _, tokens = lse.shape
    torch.mul(tokens_first(base2.unflatten(0, (batch, tokens))), LN2, out=lse)
