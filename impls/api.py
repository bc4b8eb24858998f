"""`attention()`: validate, plan, pack, bind, run. For timing, call the four steps yourself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from impls.contract import Dense, Inputs, Paged, Unsupported
from impls.host import arch_of
from impls.registry import implementation
from impls.validation import problem_of

if TYPE_CHECKING:
    import torch

    from impls.nvfp4 import NVFP4Tensor


def attention(
    q: torch.Tensor,
    k4: NVFP4Tensor,
    v4: NVFP4Tensor,
    *,
    impl: str,
    causal: bool = True,
    scale: float | None = None,
    window: int | None = None,
    kv_lens: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    layout: Dense | Paged | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale * q @ deq(k4)^T + mask) @ deq(v4) by the implementation that `impl` names, and by no other.

    q [B, Hq, Sq, D] bfloat16 or float16; k4 of [B, Hkv, Sk, D]; v4 of [B, Hkv, Sk, Dv]; pages and `kv_lens` as in
    `impls.contract`. Returns out [B, Hq, Sq, Dv] in q's dtype, with `return_lse` also lse [B, Hq, Sq] float32.
    The results carry no autograd graph, whatever requires a gradient.
    Raises ValueError on operands that do not fit, and Unsupported with one sentence where `impl` cannot do it.
    """
    import torch

    if isinstance(q, torch.Tensor) and q.layout == torch.strided:
        q = q.resolve_neg()  # kernels read the memory, where such a view is not negated yet
    inputs = Inputs(q, k4, v4, kv_lens, block_table)
    problem = problem_of(inputs, causal=causal, scale=scale, window=window, layout=layout)
    chosen = implementation(impl)
    arch = arch_of(q.device)
    reason = chosen.why_not(problem, arch)
    if reason is not None:
        raise Unsupported(reason)
    with torch.no_grad():
        plan = chosen.plan(problem, arch)
        runner = plan.bind(q, plan.pack(k4, v4), kv_lens=kv_lens, block_table=block_table)
        runner()
    return (runner.output.out, runner.output.lse) if return_lse else runner.output.out
