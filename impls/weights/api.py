"""`linear()`: validate, plan, pack, bind, run. Pack once and keep it, or time, by calling the four steps yourself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from impls.contract import Unsupported
from impls.host import arch_of
from impls.weights.contract import Projection, check_weights
from impls.weights.registry import projection

if TYPE_CHECKING:
    import torch

    from impls.nvfp4 import NVFP4Tensor


def linear(x: torch.Tensor, w4: NVFP4Tensor, *, impl: str = "w4a16") -> torch.Tensor:
    """x @ deq(w4)^T [..., N] in x's dtype, of x [..., K] and w4 of [N, K], by the projection that `impl` names.

    The result carries no autograd graph, whatever requires a gradient. Without rows nothing is computed, but all is checked.
    Raises ValueError on operands that do not fit, and Unsupported with one sentence where `impl` cannot do it.
    """
    import torch

    from impls.nvfp4 import NVFP4Tensor, why_not_plain

    if not isinstance(x, torch.Tensor) or x.ndim < 1:
        raise ValueError(f"x must be a tensor [..., K], not {'a scalar' if isinstance(x, torch.Tensor) else type(x).__name__}.")
    if not isinstance(w4, NVFP4Tensor) or len(w4.shape) != 2:
        raise ValueError("w4 must be an NVFP4Tensor of [N, K].")
    if x.layout != torch.strided:
        raise ValueError(f"x {why_not_plain(x)}")
    count, (outputs, inputs) = x.shape[:-1].numel(), w4.shape
    if x.shape[-1] != inputs:
        raise ValueError(f"x must have shape [M, K] = {[count, inputs]}, not {[count, x.shape[-1]]}.")
    if w4.device != x.device:
        raise ValueError(f"w4 must be on {x.device}, as x is, not on {w4.device}.")
    problem = Projection(max(count, 1), outputs, inputs, str(x.dtype).removeprefix("torch."))
    check_weights(problem, w4)
    chosen, arch = projection(impl), arch_of(x.device)
    reason = chosen.why_not(problem, arch)
    if reason is not None:
        raise Unsupported(reason)
    if not count:
        return x.new_empty(*x.shape[:-1], outputs)
    with torch.no_grad():
        plan = chosen.plan(problem, arch)
        runner = plan.bind(x.resolve_neg().reshape(count, inputs), plan.pack(w4))
        runner()
    return runner.out.view(*x.shape[:-1], outputs)
