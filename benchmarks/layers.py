"""The attention layer of a model: q, k and v by one projection, attention over an NVFP4 cache, the output projection.

    x [tokens, hidden] -> qkv [tokens, (Hq + 2 Hkv) * D] -> attended [tokens, Hq * D] -> out [tokens, hidden]

The cache is there already, the new tokens included: k and v are computed, as they are in a model, and appended by nobody.
Norms, rotary embedding and the residual are left out, so it is the time of what has weights or a cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.presets import PRESETS
from impls.arch import Arch
from impls.contract import Cache, Implementation, Launch, Plan, Problem, Runner
from impls.weights.contract import Packed, Projection, ProjectionImplementation, ProjectionPlan, ProjectionRunner

if TYPE_CHECKING:
    import torch

    from impls.nvfp4 import NVFP4Tensor


@dataclass(frozen=True)
class LayerProblem:
    """One layer of a preset, for so many new tokens of one sequence."""

    preset: str
    q_len: int
    kv_len: int

    @property
    def attention(self) -> Problem:
        p = PRESETS[self.preset]
        return Problem(1, p.q_heads, p.kv_heads, self.q_len, self.kv_len, p.head_dim, p.head_dim)

    @property
    def qkv(self) -> Projection:
        p = PRESETS[self.preset]
        return Projection(self.q_len, (p.q_heads + 2 * p.kv_heads) * p.head_dim, p.hidden)

    @property
    def output(self) -> Projection:
        p = PRESETS[self.preset]
        return Projection(self.q_len, p.hidden, p.q_heads * p.head_dim)


class Layer:
    """An attention and a projection, one after the other."""

    def __init__(self, attention: Implementation, projection: ProjectionImplementation) -> None:
        self.attention = attention
        self.projection = projection
        self.name = f"{attention.name}+{projection.name}"

    def why_not(self, problem: LayerProblem, arch: Arch) -> str | None:
        """The first reason of those who do a part of it."""
        parts = (problem.qkv, problem.output)
        reasons = (self.attention.why_not(problem.attention, arch), *(self.projection.why_not(one, arch) for one in parts))
        return next(filter(None, reasons), None)

    def plan(self, problem: LayerProblem, arch: Arch) -> LayerPlan:
        return LayerPlan(
            problem,
            self.projection.plan(problem.qkv, arch),
            self.attention.plan(problem.attention, arch),
            self.projection.plan(problem.output, arch),
        )


@dataclass(frozen=True)
class PackedLayer:
    qkv: Packed
    cache: Cache
    output: Packed


@dataclass(frozen=True)
class LayerPlan:
    """The plans of its three parts."""

    problem: LayerProblem
    qkv: ProjectionPlan
    attention: Plan
    output: ProjectionPlan

    @property
    def workspace_bytes(self) -> int:
        return sum(plan.workspace_bytes for plan in (self.qkv, self.attention, self.output))

    def describe(self) -> dict[str, int | str]:
        parts: Mapping[str, ProjectionPlan | Plan] = {"qkv": self.qkv, "attention": self.attention, "output": self.output}
        return {f"{name}.{key}": value for name, plan in parts.items() for key, value in plan.describe().items()}

    def pack(self, qkv: NVFP4Tensor, k4: NVFP4Tensor, v4: NVFP4Tensor, output: NVFP4Tensor) -> PackedLayer:
        return PackedLayer(self.qkv.pack(qkv), self.attention.pack(k4, v4), self.output.pack(output))

    def bind(self, x: torch.Tensor, packed: PackedLayer) -> LayerRunner:
        """Allocates what lies between the parts. Heads are views of rows, so nothing is copied there but by torch's operators,
        which write to no memory that they are given: `sdpa-*` copies what it got to the rows, on the layer's time."""
        a = self.problem.attention
        qkv = self.qkv.bind(x, packed.qkv)
        width = a.q_heads * a.head_dim
        attended = x.new_empty(a.q_len, width)
        q, out = (rows.view(1, a.q_len, a.q_heads, a.head_dim).transpose(1, 2) for rows in (_first(qkv.out, width), attended))
        attention = self.attention.bind(q, packed.cache, out=out)
        return LayerRunner(qkv, attention, self.output.bind(attended, packed.output), attended)


class LayerRunner:
    """Calls the three parts in order."""

    def __init__(self, qkv: ProjectionRunner, attention: Runner, output: ProjectionRunner, attended: torch.Tensor) -> None:
        self.written = (qkv.out, attended, output.out)
        self._parts = (qkv, attention, output)

    def __call__(self) -> None:
        for part in self._parts:
            part()

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(launch for part in self._parts for launch in part.launches)


def _first(rows: torch.Tensor, width: int) -> torch.Tensor:
    """The first columns of `rows` [tokens, ...], with heads apart from each other as `view` wants them."""
    return rows[:, :width]
