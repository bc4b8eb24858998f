"""Projections and layers are timed and checked like attention: by the same session, into the same records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from benchmarks import latency, presets
from benchmarks.cells import Workload, find
from benchmarks.latency import Session, prepare
from benchmarks.operations import implementation
from benchmarks.presets import Preset
from benchmarks.records import Cell, from_json
from benchmarks.subjects import subject
from impls.arch import CPU
from impls.contract import Cache, Rounding, Unsupported
from impls.nvfp4 import dequantize
from tests.benchmarks.fake_clock import FakeClock

PROJECTION = Workload("tiny-projection", "projection", "A product that is soon done.", ())
LAYER = Workload("tiny-layer", "layer", "A layer that is soon done.", ())
OPENED = {
    "projection": {"workload": "tiny-projection", "values": ["144x40", 5]},
    "layer": {"workload": "tiny-layer", "values": ["tiny", 100]},
}
IMPL = {"projection": "torch-bf16-linear", "layer": "torch-reference-bf16+torch-bf16-linear"}
OPERATION = pytest.mark.parametrize("operation", ["projection", "layer"])


@pytest.fixture(autouse=True)
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "workloads", lambda: {one.name: one for one in (PROJECTION, LAYER)})
        patch.setitem(presets.PRESETS, "tiny", Preset(48, 4, 2, 32, "nobody/nothing"))
        yield


def session(operation: str) -> Session:
    opened = Session(FakeClock())
    opened.answer({"do": "open", **OPENED[operation]})
    return opened


def add(operation: str) -> dict[str, Any]:
    return session(operation).answer({"do": "add", "impl": IMPL[operation]})


@OPERATION
def test_what_is_found_is_a_cell(operation):
    added = add(operation)
    assert added["series"][:3] == ("latency", "eager", "host")
    ids = {"kind": "cell", "id": f"{operation}/x/y", "suite": operation, "how": "gpu", "status": "ok"}
    cell = from_json({**ids, **json.loads(json.dumps(added["facts"]))})
    assert isinstance(cell, Cell)
    assert cell.verdict == "ok"
    assert cell.numerics is not None
    assert 0 < cell.numerics.relative_l2 < cell.numerics.exact_relative_l2 < 0.02
    assert cell.numerics.lse_error is None


def test_work_is_that_of_weights_and_cache():
    work = add("projection")["facts"]["work"]
    assert work["flops"] == 2 * 5 * 144 * 40
    assert work["nvfp4_bytes"] == 40 * 9 * 9
    assert work["weight_bytes"] == 2 * 144 * 40
    work = add("layer")["facts"]["work"]
    cache = 2 * 100 * 64 * 9 // 16
    assert work["nvfp4_bytes"] == cache + (256 * 48 + 48 * 128) * 9 // 16
    assert work["weight_bytes"] == 2 * (256 * 48 + 48 * 128)
    assert work["cache_bytes"] >= cache
    assert work["flops"] == 2 * 256 * 48 + 2 * 48 * 128 + 2 * 64 * 4 * 100


@OPERATION
def test_each_part_that_is_wrong_is_told(operation):
    workload = {"projection": PROJECTION, "layer": LAYER}[operation]
    on = subject(workload.problem(*OPENED[operation]["values"]), torch.device("cpu"))
    chosen = implementation(IMPL[operation])
    plan = chosen.plan(on.problem, CPU)
    runner = on.bind(plan, on.pack(plan))
    runner()
    right = tuple(tensor.clone() for tensor in on.written(runner))
    assert on.check(chosen, right).why_wrong is None
    for number in range(len(right)):
        wrong = tuple(tensor * 1.1 if number == place else tensor for place, tensor in enumerate(right))
        assert "times its bound" in (on.check(chosen, wrong).why_wrong or "")


def test_what_an_attention_merges_once_more_is_allowed_for_in_a_layer(monkeypatch):
    """`dual-chunk` declares the rounding of its partial results, beside what its chunks round."""
    on = subject(LAYER.problem(*OPENED["layer"]["values"]), torch.device("cpu"))
    chosen = implementation(IMPL["layer"])
    plan = chosen.plan(on.problem, CPU)
    runner = on.bind(plan, on.pack(plan))
    runner()
    qkv, attended, out = on.written(runner)
    wrong = (qkv, attended * 1.1, out)
    strict = on.check(chosen, wrong).numerics["error_over_bound"]
    rounds = {**chosen.attention.rounds(on.problem.attention), "partial": Rounding("bfloat16")}
    monkeypatch.setattr(type(chosen.attention), "rounds", lambda self, problem: rounds)
    assert on.check(chosen, wrong).numerics["error_over_bound"] < 0.8 * strict


@OPERATION
def test_data_is_the_same_again_and_restored(operation):
    workload = {"projection": PROJECTION, "layer": LAYER}[operation]
    on = subject(workload.problem(*OPENED[operation]["values"]), torch.device("cpu"))
    for tensor in on.tensors().values():
        tensor.zero_()
    assert on.overwritten() == list(on.tensors())
    on.restore()
    assert on.overwritten() == []


def test_a_layer_is_charged_for_converting_its_cache_and_not_for_packing_its_weights(monkeypatch):
    opened = session("layer")
    packs: list[str] = []
    attention, weights = implementation("torch-reference-bf16").plan, implementation("torch-bf16-linear").plan

    def converting(self: Any, problem: Any, arch: Any) -> Any:
        plan = attention(problem, arch)
        plan.pack = lambda k4, v4: (packs.append("cache"), Cache(k4, v4, {"k": dequantize(k4), "v": dequantize(v4)}))[1]
        return plan

    def packing(self: Any, problem: Any, arch: Any) -> Any:
        plan = weights(problem, arch)
        pack = plan.pack
        plan.pack = lambda w4: (packs.append("weights"), pack(w4))[1]
        return plan

    monkeypatch.setattr(type(implementation("torch-reference-bf16")), "plan", converting)
    monkeypatch.setattr(type(implementation("torch-bf16-linear")), "plan", packing)
    added = opened.answer({"do": "add", "impl": IMPL["layer"]})
    assert added["series"] == ("latency", "eager", "host", "pack", "total")
    assert packs == ["weights", "cache", "weights"]
    packs.clear()
    for series in ("pack", "total"):
        opened.answer({"do": "sample", "impl": IMPL["layer"], "series": series})
    assert packs == ["cache"] * 4  # a warm-up and a sample each


def test_a_refusal_names_the_part():
    with pytest.raises(Unsupported, match="only interpreted"):
        session("projection").answer({"do": "add", "impl": "w4a16"})
    with pytest.raises(ValueError, match="unknown implementation 'nobody'"):
        session("layer").answer({"do": "add", "impl": "nobody+w4a16"})


@OPERATION
def test_plans_are_prepared_ahead(operation):
    assert prepare({**OPENED[operation], "impl": IMPL[operation], "arch": "cpu"}) is None


def test_cells_of_projections_and_layers_are_found_by_id():
    for cell_id, impl in (
        ("projection/w4a16/4096x14336/m1", "w4a16"),
        ("layer/triton+w4a16/llama-3-8b/kv8192", "triton+w4a16"),
    ):
        assert find(cell_id, {impl: impl}).suite == cell_id.split("/")[0]
