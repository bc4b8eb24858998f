"""One shape's data on the device, shared by all its candidates, and what is right on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.data import device_inputs, largest_value
from impls.contract import EXACT, Implementation, Inputs, Output, Problem, Rounds

if TYPE_CHECKING:
    import torch

    from impls.numerics.bounds import Bound
    from impls.numerics.metrics import Errors
    from impls.reference import Reference

CHECKED_ROWS = 16
"""Query rows compared with the reference; float64 attention over all of a long prefill would take hours."""
CHECKSUM_BYTES = 1 << 24


@dataclass(frozen=True)
class Comparison:
    """An output's sampled query rows against the reference."""

    errors: Errors
    why_wrong: str | None
    """One sentence, where they break a bound."""
    exact_relative_l2: float
    """Against the reference without the implementation's declared roundings."""


class Shape:
    """The inputs of a problem, and its references: computed once, and shared by candidates that round alike."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        import torch

        self.problem = problem
        self.device = device
        self.inputs = device_inputs(problem, device)
        count = min(problem.q_len, CHECKED_ROWS)
        self._rows = torch.linspace(0, problem.q_len - 1, count, device=device).round().long()
        self._v_max = largest_value(self.inputs.v4)
        self._negated = False
        self._references: dict[tuple[bool, frozenset[tuple[str, str]]], Reference] = {}
        self._checksums = self._summed()

    def compare(self, chosen: Implementation, output: Output) -> Comparison:
        """`output` of `chosen` for the queries as they are now."""
        from impls.numerics.bounds import error_bound
        from impls.numerics.measure import why_wrong
        from impls.numerics.metrics import errors, ratio

        rounds = chosen.rounds(self.problem)
        reference, exact = self._reference(rounds), self._reference({})
        chain = chosen.accumulator_chain(self.problem)
        bound: Bound = error_bound(
            self.problem,
            reference,
            p=rounds.get("p", EXACT),
            partial=rounds.get("partial", EXACT),
            chain=chain,
            v_max=self._v_max,
        )
        rows = Output(output.out[:, :, self._rows], output.lse[:, :, self._rows])
        found = errors(rows.out, rows.lse, reference, bound)
        return Comparison(found, why_wrong(rows, reference, bound, found), ratio(rows.out.double() - exact.out, exact.out))

    def negate_queries(self) -> None:
        """Change q in place, exactly and reversibly; other outputs are right from then on."""
        self.inputs.q.neg_()
        self._negated = not self._negated

    def overwritten(self) -> list[str]:
        """Names of the inputs that are no longer what they were."""
        return [name for name, found in self._summed().items() if found != self._checksums[name]]

    def restore(self) -> None:
        """Put back what `overwritten` finds changed."""
        fresh = _tensors(device_inputs(self.problem, self.device))
        for name, tensor in _tensors(self.inputs).items():
            tensor.copy_(fresh[name])

    def _reference(self, rounds: Rounds) -> Reference:
        """Float64 attention over the sampled rows. Those of p and of partial results are not executed: no part of the key."""
        from impls.reference import reference_attention

        executed: Rounds = {
            operand: rounding for operand, rounding in rounds.items() if operand not in ("p", "partial") and rounding != EXACT
        }
        key = self._negated, frozenset((operand, rounding.name) for operand, rounding in executed.items())
        if key not in self._references:
            self._references[key] = reference_attention(self.problem, self.inputs, rows=self._rows, rounds=executed)
        return self._references[key]

    def _summed(self) -> dict[str, tuple[int, ...]]:
        return {name: _checksum(tensor) for name, tensor in _tensors(self.inputs).items()}


def _tensors(inputs: Inputs) -> dict[str, torch.Tensor]:
    import torch

    named = {"q": inputs.q}
    for name, cache in (("k4", inputs.k4), ("v4", inputs.v4)):
        named[f"{name}.codes"] = cache.codes
        named[f"{name}.scales"] = cache.scales.view(torch.uint8)
        named[f"{name}.global_scale"] = cache.global_scale
    return named


def _checksum(tensor: torch.Tensor) -> tuple[int, ...]:
    """The bytes, each times its position, summed piece by piece: a copy of the tensor may not fit."""
    import torch

    flat = tensor.reshape(-1).view(torch.uint8)
    weights = torch.arange(1, min(len(flat), CHECKSUM_BYTES) + 1, device=tensor.device)
    sums = [(piece * weights[: len(piece)]).sum() for piece in flat.split(CHECKSUM_BYTES)]
    return tuple(torch.stack(sums).tolist())
