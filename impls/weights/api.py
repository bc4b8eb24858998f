"""`linear()`: validate, plan, pack, bind, run. Pack once and keep it, or time, by calling the four steps yourself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from impls.contract import Unsupported
from impls.host import arch_of
from impls.weights.contract import Projection
from impls.weights.registry import projection

if TYPE_CHECKING:
    import torch

    from impls.nvfp4 import NVFP4Tensor


def linear(x: torch.Tensor, w4: NVFP4Tensor, *, impl: str = "w4a16") -> torch.Tensor:
    """x @ deq(w4)^T [..., N] in x's dtype, of x [..., K] and w4 of [N, K], by the projection that `impl` names.

    Raises ValueError on operands that do not fit, and Unsupported with one sentence where `impl` cannot do it.
    """
    import torch

    if not isinstance(x, torch.Tensor) or x.ndim < 1:
        raise ValueError(f"x must be a tensor [..., K], not {'a scalar' if isinstance(x, torch.Tensor) else type(x).__name__}.")
    if getattr(w4, "shape", ()) is None or len(getattr(w4, "shape", ())) != 2:
        raise ValueError("w4 must be an NVFP4Tensor of [N, K].")
    rows = x.reshape(-1, x.shape[-1])
    if rows.shape[0] == 0:
        return x.new_empty(*x.shape[:-1], w4.shape[0])
    problem = Projection(rows.shape[0], w4.shape[0], w4.shape[1], str(x.dtype).removeprefix("torch."))
    chosen, arch = projection(impl), arch_of(x.device)
    reason = chosen.why_not(problem, arch)
    if reason:
        raise Unsupported(reason)
    plan = chosen.plan(problem, arch)
    runner = plan.bind(rows, plan.pack(w4))
    runner()
    return runner.out.view(*x.shape[:-1], w4.shape[0])
