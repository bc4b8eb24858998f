"""One attention problem's data on the device, shared by all its candidates, and what is right on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.data import device_inputs, largest_value
from benchmarks.subject import Checked, Subject, of_nvfp4
from benchmarks.work import attended_bytes, flops
from impls.contract import EXACT, Cache, Implementation, Inputs, Output, Plan, Problem, Rounds, Runner

if TYPE_CHECKING:
    import torch

    from impls.numerics.metrics import Errors
    from impls.nvfp4 import NVFP4Tensor
    from impls.reference import Reference

CHECKED_ROWS = 16
"""Query rows compared with the reference; float64 attention over all of a long prefill would take hours."""
SHARED_ERRORS = ("relative_l2", "largest_row_error", "magnitude_ratio", "lse_error", "cosine", "nan_count", "inf_count")
"""Fields that `impls.numerics.metrics.Errors` and `benchmarks.records.Numerics` both have."""


@dataclass(frozen=True)
class Comparison:
    """An output's sampled query rows against the reference."""

    errors: Errors
    why_wrong: str | None
    """One sentence, where they break a bound."""
    exact_relative_l2: float
    """Against the reference without the implementation's declared roundings."""


class Shape(Subject):
    """The inputs of a problem, and its references: computed once, and shared by candidates that round alike."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        import torch

        self.problem = problem
        self.device = device
        self.inputs = device_inputs(problem, device)
        count = min(problem.q_len, CHECKED_ROWS)
        self._rows = torch.linspace(0, problem.q_len - 1, count, device=device).round().long()
        self._v_max = largest_value(self.inputs.v4)
        self._references: dict[tuple[bool, frozenset[tuple[str, str]]], Reference] = {}
        self.begin()

    def compare(self, chosen: Implementation, output: Output) -> Comparison:
        """`output` of `chosen` for the queries as they are now."""
        from impls.numerics.bounds import declared_bound
        from impls.numerics.measure import why_wrong
        from impls.numerics.metrics import errors, ratio

        reference, exact = self._reference(chosen.rounds(self.problem)), self._reference({})
        bound = declared_bound(chosen, self.problem, reference, v_max=self._v_max)
        rows = Output(output.out[:, :, self._rows], output.lse[:, :, self._rows])
        found = errors(rows.out, rows.lse, reference, bound)
        return Comparison(found, why_wrong(rows, reference, bound, found), ratio(rows.out.double() - exact.out, exact.out))

    def pack(self, plan: Plan) -> Cache:
        return plan.pack(self.inputs.k4, self.inputs.v4)

    def conversion(self, plan: Plan, packed: Cache) -> Callable[[], object] | None:
        return conversion_of(plan, packed, self.inputs.k4, self.inputs.v4)

    def bind(self, plan: Plan, packed: Cache) -> Runner:
        return plan.bind(self.inputs.q, packed)

    def written(self, runner: Runner) -> tuple[torch.Tensor, ...]:
        return runner.output.out, runner.output.lse

    def check(self, chosen: Implementation, written: tuple[torch.Tensor, ...]) -> Checked:
        compared = self.compare(chosen, Output(*written))
        found = compared.errors
        numerics = {
            **{name: getattr(found, name) for name in SHARED_ERRORS},
            "error_over_bound": max(found.out_over_bound, found.lse_over_bound),
            "exact_relative_l2": compared.exact_relative_l2,
        }
        return Checked(numerics, compared.why_wrong)

    def facts(self, plan: Plan, packed: Cache) -> dict[str, Any]:
        work = {
            "flops": flops(self.problem),
            "nvfp4_bytes": attended_bytes(self.problem),
            "cache_bytes": packed.nbytes,
            "workspace_bytes": plan.workspace_bytes,
        }
        return {"cache_layout": packed.layout, "work": work}

    def changing(self) -> torch.Tensor:
        return self.inputs.q

    def tensors(self) -> dict[str, torch.Tensor]:
        return _tensors(self.inputs)

    def fresh(self) -> dict[str, torch.Tensor]:
        return _tensors(device_inputs(self.problem, self.device))

    def _reference(self, rounds: Rounds) -> Reference:
        """Float64 attention over the sampled rows. Those of p and of partial results are not executed: no part of the key."""
        from impls.reference import reference_attention

        executed: Rounds = {
            operand: rounding for operand, rounding in rounds.items() if operand not in ("p", "partial") and rounding != EXACT
        }
        key = self.negated, frozenset((operand, rounding.name) for operand, rounding in executed.items())
        if key not in self._references:
            self._references[key] = reference_attention(self.problem, self.inputs, rows=self._rows, rounds=executed)
        return self._references[key]


def conversion_of(plan: Plan, cache: Cache, k4: NVFP4Tensor, v4: NVFP4Tensor) -> Callable[[], object] | None:
    """What makes `cache` of K and V; None where it holds these two and nothing else."""
    taken_as_it_is = cache.k4 is k4 and cache.v4 is v4 and not cache.extra
    return None if taken_as_it_is else lambda: plan.pack(k4, v4)


def _tensors(inputs: Inputs) -> dict[str, torch.Tensor]:
    return {"q": inputs.q, **of_nvfp4("k4", inputs.k4), **of_nvfp4("v4", inputs.v4)}
