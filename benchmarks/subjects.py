"""The subject of a problem, by its operation; and those of projections and layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.data import device_inputs, normal_weights
from benchmarks.layers import Layer, LayerPlan, LayerProblem, LayerRunner, PackedLayer
from benchmarks.shape import CHECKED_ROWS, Shape, conversion_of
from benchmarks.subject import Checked, Subject, of_nvfp4
from benchmarks.work import flops, nvfp4_bytes
from impls.contract import Inputs, Problem
from impls.weights.contract import (
    Packed,
    Projection,
    ProjectionImplementation,
    ProjectionPlan,
    ProjectionRounds,
    ProjectionRunner,
)

if TYPE_CHECKING:
    import torch


def subject(problem: Problem | Projection | LayerProblem, device: torch.device) -> Subject:
    """The data of `problem`, made on `device`."""
    if isinstance(problem, Projection):
        return ProjectionSubject(problem, device)
    return LayerSubject(problem, device) if isinstance(problem, LayerProblem) else Shape(problem, device)


class ProjectionSubject(Subject):
    """Rows and NVFP4 weights, both normal."""

    outputs = "out"

    def __init__(self, problem: Projection, device: torch.device) -> None:
        self.problem = problem
        self.device = device
        self.x = _normal_rows(problem, device)
        self.w4 = normal_weights(problem.outputs, problem.inputs, 1, device)
        self.begin()

    def pack(self, plan: ProjectionPlan) -> Packed:
        return plan.pack(self.w4)

    def conversion(self, plan: ProjectionPlan, packed: Packed) -> None:
        """There is no cache."""

    def bind(self, plan: ProjectionPlan, packed: Packed) -> ProjectionRunner:
        return plan.bind(self.x, packed)

    def written(self, runner: ProjectionRunner) -> tuple[torch.Tensor, ...]:
        return (runner.out,)

    def check(self, chosen: ProjectionImplementation, written: tuple[torch.Tensor, ...]) -> Checked:
        rows = _some_rows(self.x)
        return _checked_rows(chosen.rounds(self.problem), self.x[rows], self.w4, written[0][rows])

    def facts(self, plan: ProjectionPlan, packed: Packed) -> dict[str, Any]:
        work = {
            "flops": flops(self.problem),
            "nvfp4_bytes": nvfp4_bytes(self.problem),
            "weight_bytes": packed.nbytes,
            "workspace_bytes": plan.workspace_bytes,
        }
        return {"cache_layout": packed.layout, "work": work}

    def changing(self) -> torch.Tensor:
        return self.x

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"x": self.x, **of_nvfp4("w4", self.w4)}

    def fresh(self) -> dict[str, torch.Tensor]:
        w4 = normal_weights(self.problem.outputs, self.problem.inputs, 1, self.device)
        return {"x": _normal_rows(self.problem, self.device), **of_nvfp4("w4", w4)}


class LayerSubject(Subject):
    """New tokens, the weights of two projections, and a cache. What each part writes is checked against its own input."""

    outputs = "qkv, attended and out"

    def __init__(self, problem: LayerProblem, device: torch.device) -> None:
        self.problem = problem
        self.device = device
        self._make()
        self.begin()

    def _make(self) -> None:
        p = self.problem
        # projections scale by the root of what they sum over, so that queries and outputs are about as large as tokens
        self.x = _normal_rows(p.qkv, self.device).mul_(p.qkv.inputs**-0.5)
        self.qkv = normal_weights(p.qkv.outputs, p.qkv.inputs, 1, self.device)
        self.output = normal_weights(p.output.outputs, p.output.inputs, 2, self.device)
        made = device_inputs(p.attention, self.device)
        self.k4, self.v4 = made.k4, made.v4

    def pack(self, plan: LayerPlan) -> PackedLayer:
        return plan.pack(self.qkv, self.k4, self.v4, self.output)

    def conversion(self, plan: LayerPlan, packed: PackedLayer) -> Callable[[], object] | None:
        return conversion_of(plan.attention, packed.cache, self.k4, self.v4)

    def bind(self, plan: LayerPlan, packed: PackedLayer) -> LayerRunner:
        return plan.bind(self.x, packed)

    def written(self, runner: LayerRunner) -> tuple[torch.Tensor, ...]:
        return runner.written

    def check(self, chosen: Layer, written: tuple[torch.Tensor, ...]) -> Checked:
        """The largest errors of the three parts, each on what the part before it has written."""
        qkv, attended, out = written
        rows = _some_rows(self.x)
        parts = {
            "qkv": _checked_rows(chosen.projection.rounds(self.problem.qkv), self.x[rows], self.qkv, qkv[rows]),
            "attention": self._attention(chosen, qkv, attended, rows),
            "output": _checked_rows(chosen.projection.rounds(self.problem.output), attended[rows], self.output, out[rows]),
        }
        numerics = {
            key: min(values) if key in ("cosine", "magnitude_ratio") else max(values)
            for key in parts["qkv"].numerics
            if (values := [part.numerics[key] for part in parts.values()])
        }
        wrong = [f"{name}: {part.why_wrong}" for name, part in parts.items() if part.why_wrong]
        return Checked(numerics, wrong[0] if wrong else None)

    def _attention(self, chosen: Layer, qkv: torch.Tensor, attended: torch.Tensor, rows: torch.Tensor) -> Checked:
        import torch

        from benchmarks.data import largest_value
        from impls.numerics.bounds import declared_bound
        from impls.reference import reference_attention

        p = self.problem.attention
        width = p.q_heads * p.head_dim
        q, out = (x[:, :width].view(1, p.q_len, p.q_heads, p.head_dim).transpose(1, 2) for x in (qkv, attended))
        inputs = Inputs(q, self.k4, self.v4)
        reference = reference_attention(p, inputs, rows=rows, rounds=chosen.attention.rounds(p))
        bound = declared_bound(chosen.attention, p, reference, v_max=largest_value(self.v4))
        exact = reference_attention(p, inputs, rows=rows)
        ratio = ((out[:, :, rows].double() - reference.out).abs() / bound.out).nan_to_num(nan=torch.inf)
        return _checked(out[:, :, rows], reference.out, exact.out, float(ratio.max()))

    def facts(self, plan: LayerPlan, packed: PackedLayer) -> dict[str, Any]:
        work = {
            "flops": flops(self.problem),
            "nvfp4_bytes": nvfp4_bytes(self.problem),
            "weight_bytes": packed.qkv.nbytes + packed.output.nbytes,
            "cache_bytes": packed.cache.nbytes,
            "workspace_bytes": plan.workspace_bytes,
        }
        return {"cache_layout": packed.cache.layout, "work": work}

    def changing(self) -> torch.Tensor:
        return self.x

    def tensors(self) -> dict[str, torch.Tensor]:
        named = {"qkv weights": self.qkv, "k4": self.k4, "v4": self.v4, "output weights": self.output}
        parts = [of_nvfp4(name, tensor) for name, tensor in named.items()]
        return {"x": self.x} | {name: tensor for part in parts for name, tensor in part.items()}

    def fresh(self) -> dict[str, torch.Tensor]:
        return LayerSubject(self.problem, self.device).tensors()


def _normal_rows(problem: Projection, device: torch.device) -> torch.Tensor:
    import torch

    generator = torch.Generator(device).manual_seed(0)
    rows = torch.randn(problem.rows, problem.inputs, generator=generator, device=device)
    return rows.to(getattr(torch, problem.dtype))


def _some_rows(x: torch.Tensor) -> torch.Tensor:
    """Numbers of the rows that are compared with the reference."""
    import torch

    return torch.linspace(0, len(x) - 1, min(len(x), CHECKED_ROWS), device=x.device).round().long()


def _checked_rows(rounds: ProjectionRounds, x: torch.Tensor, w4: Any, out: torch.Tensor) -> Checked:
    import torch

    from impls.nvfp4 import dequantize
    from impls.weights.reference import over_bound, reference_projection

    reference = reference_projection(x, w4, rounds)
    exact = x.double() @ dequantize(w4, torch.float64).T
    return _checked(out, reference.out, exact, over_bound(out, reference))


def _checked(out: torch.Tensor, reference: torch.Tensor, exact: torch.Tensor, over: float) -> Checked:
    """`out` [..., n] against float64 references, with declared roundings and without. What is no number is infinite.

    There is no LSE to compare: a layer keeps that of its attention to itself.
    """
    import torch

    error, value = out.double() - reference, out.double()
    row = (error.norm(dim=-1) / reference.norm(dim=-1)).nan_to_num(nan=torch.inf).max()
    numerics = {
        "error_over_bound": over,
        "relative_l2": float((error.norm() / reference.norm()).nan_to_num(nan=torch.inf)),
        "exact_relative_l2": float(((value - exact).norm() / exact.norm()).nan_to_num(nan=torch.inf)),
        "largest_row_error": float(row),
        "magnitude_ratio": float((value.norm() / reference.norm()).nan_to_num(nan=torch.inf)),
        "cosine": float((value * reference).sum() / (value.norm() * reference.norm())),
        "nan_count": int(value.isnan().sum()),
        "inf_count": int(value.isinf().sum()),
    }
    return Checked(numerics, None if over <= 1 else f"its largest error is {over:.3g} times its bound.")
