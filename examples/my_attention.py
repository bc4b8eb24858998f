"""A whole implementation in one file: softmax attention in float32 torch, for dense caches of equal length.

    nvfp4bench gate --on cpu --impl examples/my_attention.py:MyAttention

What it cannot do it refuses in `why_not`; the gate shows those cases as unsupported, with its sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from impls.contract import Cache, Dense, Implementation, Inputs, Output, Plan, Problem, Runner
from impls.validation import bind_inputs

if TYPE_CHECKING:  # importing an implementation imports no torch: asv starts a process per benchmark
    import torch

    from impls.arch import Arch


class MyAttention(Implementation):
    name = "my-attention"
    summary = "float32 torch, dense caches, no window"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        if not isinstance(problem.layout, Dense) or problem.ragged:
            return f"{self.name} takes dense caches of equal length, no pages and no kv_lens."
        if problem.window is not None:
            return f"{self.name} has no window."
        return None

    def plan(self, problem: Problem, arch: Arch) -> MyPlan:
        return MyPlan(problem, arch)


class MyPlan(Plan):
    """What depends on the problem alone: here nothing but the problem itself."""

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
    ) -> MyRunner:
        inputs = Inputs(q, cache.k4, cache.v4, kv_lens, block_table)
        return MyRunner(self.problem, inputs, bind_inputs(self.problem, inputs, out, lse))  # checks every tensor


class MyRunner(Runner):
    """What depends on the data: each call reads q and the cache anew and writes `output`."""

    def __init__(self, problem: Problem, inputs: Inputs, output: Output) -> None:
        self.problem = problem
        self.inputs = inputs
        self.output = output

    def __call__(self) -> None:
        import torch

        from impls.nvfp4 import decode

        problem, q, k4, v4 = self.problem, self.inputs.q, self.inputs.k4, self.inputs.v4
        k = decode(k4).repeat_interleave(problem.group, dim=1)  # [B, Hq, Sk, D], without its global scale
        v = decode(v4).repeat_interleave(problem.group, dim=1)  # [B, Hq, Sk, Dv]
        # The global scales stay outside the products: there they can neither overflow nor cost digits.
        s = q.float() @ k.mT * (k4.global_scale * problem.softmax_scale)  # [B, Hq, Sq, Sk]
        if problem.causal:
            row = torch.arange(problem.q_len, device=q.device)[:, None]
            key = torch.arange(problem.kv_len, device=q.device)
            s = s.masked_fill(key > row + problem.kv_len - problem.q_len, -torch.inf)
        lse = torch.logsumexp(s, dim=-1)  # [B, Hq, Sq], -inf where a row sees no key
        weights = torch.exp(s - lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(-1))
        self.output.out.copy_(weights @ v * v4.global_scale)
        self.output.lse.copy_(lse)
