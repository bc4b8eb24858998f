"""Problems cut into chunks that are short enough for an interpreter, run on any device and held against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from impls.arch import CPU
from impls.contract import Inputs, Paged, Runner
from impls.dual_chunk import DualChunkAttention
from impls.host import arch_of
from impls.registry import implementation
from tests.triton import cases as triton_cases
from tests.triton.cases import MASKS, bind_plan, compare, make_inputs


@dataclass(frozen=True)
class Case:
    name: str
    given: triton_cases.Case
    longest: int = 32
    """Keys of a chunk."""
    inner: str = "triton"

    @property
    def chosen(self) -> DualChunkAttention:
        return DualChunkAttention(self.name, implementation(self.inner), self.longest)


def _case(name: str, longest: int = 32, inner: str = "triton", **given: Any) -> Case:
    fields = {key: value for key, value in given.items() if key not in ("lens", "strided", "gap")}
    rest = {key: value for key, value in given.items() if key not in fields}
    return Case(name, triton_cases.Case(name, fields, **rest), longest, inner)


def _cases() -> Iterator[Case]:
    lens = (1, 33, 36, 0, 100)
    one: dict[str, Any] = {"batch": 1, "q_heads": 2, "kv_heads": 1}
    many = {**one, "batch": len(lens), "lens": lens}
    for mask, fields in MASKS.items():
        yield _case(f"chunks-{mask}", **one, **fields)
        yield _case(f"tiles-{mask}", **one, q_len=70, **fields)
        yield _case(f"ragged-{mask}", **many, **fields)
    yield _case("ragged-tiles", **many, q_len=40)
    yield _case("ragged-one-query", **many, q_len=1)
    yield _case("chunks-of-one-token", 1, **one, q_len=1, kv_len=5)
    yield _case("more-queries-than-keys", **one, q_len=110, kv_len=50)
    yield _case("no-keys", **one, kv_len=0)
    yield _case("v-along-tokens", **one, q_len=40, v_block_axis=-2, kv_len=107)
    yield _case("ragged-v-along-tokens", **many, v_block_axis=-2)
    yield _case("pages", **{**many, "layout": Paged(16, "NHD")})
    yield _case("pages-v-along-tokens", **{**many, "q_len": 20, "layout": Paged(16), "v_block_axis": -2})
    yield _case("strided", **one, q_len=40, strided=True)
    yield _case("strided-by-1", **many, strided=True, gap=1)
    yield _case("float16", **one, q_len=40, dtype="float16")
    yield _case("wide-v", **one, head_dim=64, v_head_dim=80)
    yield _case("window-over-chunks", **one, q_len=1, window=71)
    yield _case("window-from-the-middle", **one, q_len=60, window=70)
    yield _case("splits-inside", 600, **one, q_len=1, kv_len=1300)
    yield _case("torch-inside", inner="torch-reference-bf16", **many)
    yield _case("torch-inside-tiles", inner="torch-reference-bf16", **one, q_len=70)
    yield _case("native-inside", inner="triton-native", **one, q_len=40)


CASES = {case.name: case for case in _cases()}


def bind(case: Case, inputs: Inputs, device: torch.device) -> Runner:
    problem = case.given.problem
    arch = CPU if device.type == "cpu" else arch_of(device)
    reason = case.chosen.why_not(problem, arch)
    assert reason is None, reason
    return bind_plan(case.chosen.plan(problem, arch), case.given, inputs, device)


def run(case: Case, device: torch.device) -> dict[str, float]:
    """Run a case once: errors over their bounds."""
    inputs = make_inputs(case.given, device)
    runner = bind(case, inputs, device)
    runner()
    return held_against(case, inputs, runner)


def held_against(case: Case, inputs: Inputs, runner: Runner) -> dict[str, float]:
    """What `runner` left in its outputs, against the reference for `inputs`."""
    problem = case.given.problem
    chain = case.chosen.accumulator_chain(problem)
    return compare(problem, inputs, runner.output, chain, case.chosen.rounds(problem))


def with_lens(case: Case, lens: tuple[int, ...]) -> Case:
    return replace(case, given=replace(case.given, lens=lens))
