"""The plan and the runner of the `sdpa-*` implementations."""

from __future__ import annotations

from collections.abc import Callable

import torch

from impls.arch import Arch
from impls.contract import Cache, Output, Plan, Problem, Runner
from impls.nvfp4 import NVFP4Tensor
from impls.peers.caches import dense_cache
from impls.peers.checks import require_gpu, require_packed
from impls.peers.sdpa import Backend
from impls.validation import bind_inputs, check_operands, inputs_of

BOTTOM_RIGHT = 2
"""custom_mask_type of the efficient operator, as torch.nn.attention.bias.CausalVariant.LOWER_RIGHT."""

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool, float], tuple[torch.Tensor, torch.Tensor]]
"""(q [B, H, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv], causal, scale) -> (out [B, H, Sq, Dv], lse of B * H * Sq)."""


class SdpaPlan(Plan):
    def __init__(self, problem: Problem, arch: Arch, backend: Backend) -> None:
        self.problem = problem
        self.arch = arch
        self.backend = backend

    def describe(self) -> dict[str, int | str]:
        return {"backend": self.backend}

    def pack(self, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Cache:
        check_operands(k4, v4)
        return dense_cache(k4, v4, self.problem.dtype)

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
        inputs = inputs_of(q, cache, kv_lens, block_table)
        output = bind_inputs(self.problem, inputs, out, lse)
        require_gpu(self.arch, q)
        require_packed(cache, ("k", "v"))
        return SdpaRunner(self, q, cache, output, keep_out=out is not None, keep_lse=lse is not None)


class SdpaRunner(Runner):
    """Torch's operators return new tensors, taken from its allocator (under graph capture, from the graph's pool).

    They become `output` as they are, but for the LSE of `sdpa-efficient` for one query, whose padding only a copy leaves out.
    What `bind` was given is copied to, at the price of a launch each, which is not the library's: time a runner that was
    given neither `out` nor `lse`, and read `output` after the call.
    """

    def __init__(
        self, plan: SdpaPlan, q: torch.Tensor, cache: Cache, output: Output, *, keep_out: bool, keep_lse: bool
    ) -> None:
        p = plan.problem
        q = q.detach()  # results carry no graph
        self.output = output
        self._keep_out, self._keep_lse = keep_out, keep_lse
        self._attend = ATTEND[plan.backend]
        self._causal = p.causal and p.q_len > 1
        self._scale = p.softmax_scale
        self._k, self._v = cache.extra["k"], cache.extra["v"]
        # The group of one query becomes the rows of a tile, which read their key head once: [B, Hkv, G, D]. cuDNN does that
        # itself, and shares a long context among blocks only where it is asked for one query.
        folds = p.q_len == 1 and plan.backend != "cudnn"
        self._q = q.unflatten(1, (p.kv_heads, p.group)).squeeze(3) if folds else q

    def __call__(self) -> None:
        found_out, found_lse = self._attend(self._q, self._k, self._v, self._causal, self._scale)
        out, lse = self.output.out, self.output.lse
        if self._keep_out:
            out.copy_(found_out.reshape(out.shape))
        else:
            out = found_out.reshape(out.shape)
        if self._keep_lse:
            lse.copy_(found_lse.reshape(lse.shape))
        else:
            lse = found_lse.reshape(lse.shape)
        self.output = Output(out, lse)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """As `Attend`; key heads may be fewer than query heads."""
    found = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
    return found[0], found[1]


def cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """As `Attend`, but causal masks start at the first key; key heads may be fewer than query heads."""
    found = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False, scale=scale)
    return found[0], found[1]


def efficient(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `Attend`. The kernel wants a key head for every query head: each key head becomes a sequence of its own,

    whose heads all have its address (a stride of 0), so that nothing is copied.
    """
    group = q.shape[1] // k.shape[1]
    if group > 1:
        q = q.unflatten(1, (k.shape[1], group)).flatten(0, 1)  # [B * Hkv, G, Sq, D]
        k, v = (x.flatten(0, 1).unsqueeze(1).expand(-1, group, -1, -1) for x in (k, v))
    found = torch.ops.aten._efficient_attention_forward(
        q.transpose(1, 2),  # tokens before heads
        k.transpose(1, 2),
        v.transpose(1, 2),
        None,
        None,
        None,
        None,
        None,
        0.0,
        BOTTOM_RIGHT if causal else 0,
        True,
        scale=scale,
    )
    return found[0].transpose(1, 2), found[1][..., : q.shape[2]]  # the LSE is padded along the queries


ATTEND: dict[Backend, Attend] = {"flash": flash, "cudnn": cudnn, "efficient": efficient}
