"""The plan and the runner of `torch-reference-bf16`."""

from __future__ import annotations

import torch

from impls.arch import Arch
from impls.contract import Cache, Inputs, Output, Paged, Plan, Problem, Runner
from impls.nvfp4 import NVFP4Tensor, decode
from impls.validation import bind_inputs, inputs_of


class TorchPlan(Plan):
    def __init__(self, problem: Problem, arch: Arch) -> None:
        self.problem = problem
        self.arch = arch

    def bind(
        self,
        q: torch.Tensor,
        cache: Cache,
        *,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        kv_lens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
    ) -> TorchRunner:
        inputs = inputs_of(q, cache, kv_lens, block_table)
        return TorchRunner(self.problem, inputs, bind_inputs(self.problem, inputs, out, lse))


class TorchRunner(Runner):
    """Takes its temporaries from torch's allocator (under graph capture, from the graph's pool)."""

    def __init__(self, problem: Problem, inputs: Inputs, output: Output) -> None:
        self.problem = problem
        self.inputs = inputs
        self.output = output

    @torch.no_grad()
    def __call__(self) -> None:
        p, i = self.problem, self.inputs
        k = self._tokens_first(i.k4)  # [B, Hkv, Sk, D]
        v = self._tokens_first(i.v4)  # [B, Hkv, Sk, Dv]
        visible = self._visible(v.device)  # [B, 1, 1, Sq, Sk]
        q = i.q.unflatten(1, (p.kv_heads, p.group))  # [B, Hkv, G, Sq, D]
        dead = ~visible.any(dim=-2).squeeze(2)[..., None]  # [B, 1, Sk, 1]
        k, v = k.masked_fill(dead, 0.0), v.masked_fill(dead, 0.0)  # padding may hold NaN
        dot = q.float() @ k.unsqueeze(2).mT  # [B, Hkv, G, Sq, Sk]
        s = (dot * (p.softmax_scale * i.k4.global_scale.double()).float()).masked_fill(~visible, -torch.inf)
        top = s.amax(-1, keepdim=True) if s.shape[-1] else s.new_full((*s.shape[:-1], 1), -torch.inf)
        weight = torch.exp(s - top.masked_fill(top == -torch.inf, 0.0))
        total = weight.sum(-1, keepdim=True)
        acc = weight.bfloat16().float() @ v.unsqueeze(2)  # [B, Hkv, G, Sq, Dv]
        out = acc / total.masked_fill(total == 0, 1.0) * i.v4.global_scale
        self.output.out.copy_(out.flatten(1, 2))
        self.output.lse.copy_((top + torch.log(total)).squeeze(-1).flatten(1, 2))

    def _tokens_first(self, cache: NVFP4Tensor) -> torch.Tensor:
        """The cache without its global scale as [B, Hkv, Sk, D] float32: what bfloat16 holds exactly."""
        dense = decode(cache)
        layout = self.problem.layout
        if not isinstance(layout, Paged):
            return dense
        assert self.inputs.block_table is not None
        if layout.order == "NHD":
            dense = dense.transpose(1, 2)
        pages = dense[self.inputs.block_table.long().clamp(0, dense.shape[0] - 1)]  # [B, max_pages, Hkv, page_size, D]
        return pages.transpose(1, 2).flatten(2, 3)[:, :, : self.problem.kv_len]  # the last page may be longer

    def _visible(self, device: torch.device) -> torch.Tensor:
        """[B, 1, 1, Sq, Sk] bool, as in `impls.reference`, with lengths read on the device."""
        p = self.problem
        keys = torch.arange(p.kv_len, device=device)
        rows = torch.arange(p.q_len, device=device)[:, None]
        tokens = torch.full((p.batch,), p.kv_len, device=device) if self.inputs.kv_lens is None else self.inputs.kv_lens
        tokens = tokens.view(-1, 1, 1).clamp(0, p.kv_len)
        last = (rows + tokens - p.q_len if p.causal else tokens - 1).clamp(max=tokens - 1)
        visible = keys <= last
        if p.window is not None:
            last_unclamped = rows + tokens - p.q_len if p.causal else tokens - 1
            visible = visible & (keys > last_unclamped - p.window)
        return visible[:, None, None].expand(-1, 1, 1, p.q_len, -1)
