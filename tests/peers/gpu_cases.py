"""Problems with data that would show a fault of a peer, or of how we call it, on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from impls.contract import Implementation, Inputs, Output, Problem, Runner
from impls.host import arch_of
from impls.numerics.bounds import declared_bound
from impls.numerics.metrics import Errors, errors
from impls.nvfp4 import NVFP4Tensor, decode, quantize
from impls.reference import reference_attention
from tests.peers.problems import problem

CHECKED_ROWS = 16


@dataclass(frozen=True)
class Case:
    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    """What differs from `tests.peers.problems.DECODE`."""
    negative: bool = False
    """Random codes, seven of eight negative, under random scales, in place of quantised normal numbers."""
    k_global: float | None = None
    v_global: float | None = None
    given: bool = False
    """`bind` gets the outputs: token-major, with gaps."""

    @property
    def problem(self) -> Problem:
        return problem(**self.fields)


def _cases() -> Iterator[Case]:
    for head_dim in (64, 128, 192, 256, 512):
        shape = {"head_dim": head_dim, "q_heads": 32, "kv_heads": 8}
        yield Case(f"decode-d{head_dim}", {**shape, "kv_len": 5003})
        yield Case(f"prefill-d{head_dim}", {**shape, "batch": 1, "q_len": 700, "kv_len": 700})
        yield Case(f"extend-d{head_dim}", {**shape, "batch": 1, "q_len": 100, "kv_len": 1500})
    yield Case("decode-long", {"batch": 1, "q_heads": 32, "kv_heads": 8, "kv_len": 131072})
    yield Case("decode-one-page", {"kv_len": 64})
    yield Case("decode-no-groups", {"q_heads": 2})
    yield Case("decode-group-of-6", {"q_heads": 12})
    yield Case("prefill-no-groups", {"batch": 1, "q_heads": 4, "kv_heads": 4, "q_len": 1024, "kv_len": 1024})
    yield Case("prefill-of-3", {"batch": 3, "q_len": 130, "kv_len": 130})
    yield Case("extend-of-3", {"batch": 3, "q_len": 4, "kv_len": 999})
    yield Case("not-causal", {"q_len": 33, "kv_len": 777, "causal": False})
    yield Case("softmax-scale", {"scale": 0.31})
    for name, fields in (("decode", {"kv_len": 3000}), ("prefill", {"q_len": 300, "kv_len": 300})):
        yield Case(f"{name}-float16", {**fields, "dtype": "float16"})
        yield Case(f"{name}-negative", fields, negative=True, k_global=0.01, v_global=0.05)
        yield Case(f"{name}-globals", fields, k_global=0.37, v_global=5.1)
        yield Case(f"{name}-given", fields, given=True)


CASES = {case.name: case for case in _cases()}


def make_inputs(case: Case, device: torch.device) -> Inputs:
    p = case.problem
    g = torch.Generator(device).manual_seed(0)
    q = torch.randn(p.batch, p.q_heads, p.q_len, p.head_dim, generator=g, device=device).to(getattr(torch, p.dtype))
    shape = (p.batch, p.kv_heads, p.kv_len, p.head_dim)
    make = negative if case.negative else normal
    return Inputs(q, make(shape, case.k_global, g), make(shape, case.v_global, g))


def normal(shape: tuple[int, ...], global_scale: float | None, g: torch.Generator) -> NVFP4Tensor:
    return quantize(torch.randn(shape, generator=g, device=g.device), global_scale=global_scale)


def negative(shape: tuple[int, ...], global_scale: float | None, g: torch.Generator) -> NVFP4Tensor:
    """Codes whose sign bit is the OR of three random bits, and scales from 0.25 to 2."""
    *outer, dim = shape

    def random(last: int, low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, (*outer, last), generator=g, device=g.device, dtype=torch.uint8)

    codes = random(dim // 2, 0, 256) | random(dim // 2, 0, 256) & 0x88 | random(dim // 2, 0, 256) & 0x88
    scales = random(dim // 16, 0x28, 0x41).view(torch.float8_e4m3fn)
    assert global_scale is not None
    return NVFP4Tensor(codes, scales, torch.tensor(global_scale, device=g.device))


def bind(peer: Implementation, case: Case, inputs: Inputs) -> Runner:
    p = case.problem
    plan = peer.plan(p, arch_of(inputs.q.device))
    into = {}
    if case.given:
        wide = inputs.q.new_empty(p.batch, p.q_len, p.q_heads, 2 * p.v_head_dim)
        into["out"] = wide[..., : p.v_head_dim].transpose(1, 2)
        into["lse"] = wide.new_empty(p.batch, p.q_len, 2 * p.q_heads, dtype=torch.float32)[..., ::2].transpose(1, 2)
    return plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4), **into)


def check(peer: Implementation, p: Problem, inputs: Inputs, output: Output) -> Errors:
    """Errors against float64 attention with the roundings that `peer` declares, over some of the query rows."""
    device = inputs.q.device
    rows = torch.linspace(0, p.q_len - 1, min(p.q_len, CHECKED_ROWS), device=device).round().long()
    reference = reference_attention(p, inputs, rows=rows, rounds=peer.rounds(p))
    v_max = float(decode(inputs.v4).abs().max()) * float(inputs.v4.global_scale)
    bound = declared_bound(peer, p, reference, v_max=v_max)
    return errors(output.out[:, :, rows], output.lse[:, :, rows], reference, bound)


def run(peer: Implementation, case: Case, device: torch.device) -> Errors:
    inputs = make_inputs(case, device)
    runner = bind(peer, case, inputs)
    runner()
    return check(peer, case.problem, inputs, runner.output)


def replay(peer: Implementation, case: Case, device: torch.device) -> Errors:
    """As `run`, for queries that came under a captured graph."""
    inputs = make_inputs(case, device)
    runner = bind(peer, case, inputs)
    captured = _captured(runner)
    inputs.q.copy_(inputs.q.flip(1) * 0.7)
    for tensor in (runner.output.out, runner.output.lse):
        tensor.fill_(torch.nan)
    captured()
    torch.cuda.synchronize()
    return check(peer, case.problem, inputs, runner.output)


def _captured(runner: Runner) -> Callable[[], None]:
    runner()  # libraries load their kernels at the first call, which a capture does not allow
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        runner()
    return graph.replay


REPLAYED = [
    replace(CASES[name], name=f"replay-{name}") for name in ("decode-d128", "prefill-d128", "prefill-of-3", "decode-negative")
]
