"""What a plan compiles to, as JSON: the function that a worker process calls, since LLVM may abort the process it is in.

with Worker("impls.triton.summary:compile_summary", env={"TRITON_INTERPRET": "0"}) as worker:
    worker.call({"arch": "sm_120a", "problem": {"batch": 1, ...}}, timeout=120)
"""

from __future__ import annotations

import base64
from typing import Any

from impls.arch import find
from impls.contract import Paged, Problem, Unsupported
from impls.registry import implementation


def compile_summary(request: dict[str, Any]) -> dict[str, Any]:
    """Compile `problem` for `arch`, as the implementation `impl` does ("triton" where left out).

    A problem is the fields of `Problem`; a paged layout is those of `Paged`.
    Returns the plan's description and, for each kernel, its PTX, its cubin in base64, and how it is launched.
    Raises Unsupported with the sentence of `why_not`.
    """
    problem, arch = problem_of(request["problem"]), find(request["arch"])
    chosen = implementation(request.get("impl", "triton"))
    reason = chosen.why_not(problem, arch)
    if reason:
        raise Unsupported(reason)
    from impls.triton.attention import TritonPlan

    plan = chosen.plan(problem, arch)
    assert isinstance(plan, TritonPlan), f"{chosen.name} is not made of Triton kernels"
    return {
        "plan": plan.describe(),
        "workspace_bytes": plan.workspace_bytes,
        "kernels": [
            {
                "entry": kernel.entry,
                "ptx": kernel.ptx,
                "cubin": base64.b64encode(kernel.cubin).decode(),
                "parameters": [*kernel.parameters, *["scratch"] * kernel.scratch_pointers],
                "threads": 32 * kernel.num_warps,
                "shared_bytes": kernel.shared_bytes,
            }
            for kernel in plan.kernels()
        ],
    }


def problem_of(fields: dict[str, Any]) -> Problem:
    """The problem that JSON states."""
    layout = {"layout": Paged(**fields["layout"])} if "layout" in fields else {}
    return Problem(**{**fields, **layout})
