"""Wrong operands end in one sentence that names the tensor, what it should be and what came."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from impls.arch import CPU
from impls.contract import Unsupported
from impls.nvfp4 import quantize
from impls.weights.api import linear
from impls.weights.contract import Packed, Projection, ProjectionPlan, ProjectionRounds
from impls.weights.planner import schedule
from impls.weights.reference import over_bound, reference_projection
from impls.weights.registry import projection
from impls.weights.tiled import TiledPlan

X = torch.randn(3, 64).bfloat16()
W4 = quantize(torch.randn(32, 64))
LINEAR = "torch-bf16-linear"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((0, 1, 1), "rows must be a whole number from 1"),
        ((1, 2**31, 1), "outputs must be a whole number"),
        ((1, 1, 1.5), "inputs must be a whole number"),
        ((1, 1, 1, "float32"), "x must be one of bfloat16, float16, not float32"),
    ],
)
def test_a_problem_that_makes_no_sense(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        Projection(*fields)


@pytest.mark.parametrize(
    ("x", "w4", "sentence"),
    [
        (X[:, :48], W4, r"x must have shape \[M, K\] = \[3, 64\], not \[3, 48\]"),
        (X.float(), W4, "x must be one of bfloat16, float16, not float32"),
        (X, torch.zeros(32, 64), "w4 must be an NVFP4Tensor"),
        (X, quantize(torch.randn(2, 32, 64)), r"w4 must be an NVFP4Tensor of \[N, K\]"),
        (X, quantize(torch.randn(32, 64), block_axis=0), "blocks must run along K, axis -1, not along axis -2"),
        ([1.0], W4, "x must be a tensor"),
        (torch.tensor(1.0), W4, "x must be a tensor"),
        (X[:0, :48], W4, r"x must have shape \[M, K\] = \[0, 64\], not \[0, 48\]"),
        (X[:0].float(), W4, "x must be one of bfloat16, float16, not float32"),
        (X[:0], quantize(torch.randn(32, 64), block_axis=0), "blocks must run along K, axis -1"),
        (X[:0], W4.to("meta"), "w4 must be on cpu, as x is, not on meta"),
        (X[:, :0], quantize(torch.randn(32, 0)), "inputs must be a whole number from 1"),
        (X, quantize(torch.randn(0, 64)), "outputs must be a whole number from 1"),
        (X.to_sparse(), W4, "x must be a dense tensor, not sparse_coo"),
    ],
)
def test_operands_that_do_not_fit(x, w4, sentence):
    with pytest.raises(ValueError, match=sentence):
        linear(x, w4, impl=LINEAR)


def test_tensors_that_are_not_the_plans():
    plan = projection(LINEAR).plan(Projection(3, 32, 64), CPU)
    packed = plan.pack(W4)
    with pytest.raises(ValueError, match=r"out must have shape \[M, N\] = \[3, 32\], not \[3, 31\]"):
        plan.bind(X, packed, out=torch.zeros(3, 31).bfloat16())
    with pytest.raises(ValueError, match="the rows of x must be contiguous; theirs has a stride of 3"):
        plan.bind(torch.zeros(64, 3).bfloat16().T, packed)
    with pytest.raises(ValueError, match="out must be bfloat16, not float16"):
        plan.bind(X, packed, out=torch.zeros(3, 32).half())
    with pytest.raises(ValueError, match="pack them with this plan"):
        plan.bind(X, Packed({}, "nothing"))


def _plan(name: str) -> ProjectionPlan:
    """Without what a kernel needs: operands are looked at before."""
    from impls.weights.converting import ConvertingPlan
    from impls.weights.few_rows import FewRowsPlan
    from impls.weights.fused import FusedPlan

    problem = Projection(3, 32, 64)
    if name == LINEAR:
        return projection(LINEAR).plan(problem, CPU)
    kinds: dict[str, type[TiledPlan]] = {
        "w4a16:fused": FusedPlan,
        "w4a16:convert": ConvertingPlan,
        "w4a16-cuda": FewRowsPlan,
    }
    plan = object.__new__(kinds[name])
    plan.problem, plan.arch = problem, CPU
    if isinstance(plan, FusedPlan):
        plan.schedule = schedule(problem, CPU)
    return plan


def _later(tensor: torch.Tensor) -> torch.Tensor:
    """The same at an odd number of elements."""
    room = torch.cat((tensor.new_zeros(1), tensor.flatten()))
    return room[1:].view(tensor.shape)


@pytest.mark.parametrize("name", [LINEAR, "w4a16:fused", "w4a16:convert", "w4a16-cuda"])
def test_packed_weights_that_are_not_as_pack_leaves_them(name):
    plan = _plan(name)
    packed = plan.pack(W4)
    for given in (None, W4, packed.tensors):
        with pytest.raises(ValueError, match=r"^packed must be what plan.pack\(w4\) returns, not "):
            plan.bind(X, given)
    sentences = {
        "must be tensors": lambda t: None,
        "and this plan takes": lambda t: t.view(torch.int16 if t.element_size() == 2 else torch.int8),
        "must be contiguous": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
        "must begin at a multiple of 16 bytes": _later,
        "must be a dense tensor": lambda t: t.to_sparse(),
        "is a view whose values are negated": torch._neg_view,
        "must be on cpu, as x is, not on meta": lambda t: t.to("meta"),
    }
    for part in packed.tensors.keys() - {"global_scale"}:
        for sentence, change in sentences.items():
            with pytest.raises(ValueError, match=sentence):
                plan.bind(X, replace(packed, tensors={**packed.tensors, part: change(packed.tensors[part])}))
    if name != LINEAR:
        with pytest.raises(ValueError, match=r"global_scale float64 \[\], and this plan takes .*global_scale float32 \[\]; "):
            plan.bind(X, replace(packed, tensors={**packed.tensors, "global_scale": torch.tensor(1.0).double()}))


def test_an_output_whose_rows_share_memory_is_refused():
    plan = projection(LINEAR).plan(Projection(3, 32, 64), CPU)
    packed = plan.pack(W4)
    memory = torch.zeros(3, 128).bfloat16()
    with pytest.raises(ValueError, match=r"^out is an expanded tensor whose entries share memory; "):
        plan.bind(X, packed, out=memory[:1, :32].expand(3, 32))
    with pytest.raises(ValueError, match=r"^out has entries that may share memory \(shape \[3, 32\], strides \[31, 1\]\); "):
        plan.bind(X, packed, out=memory.as_strided((3, 32), (31, 1)))
    with pytest.raises(ValueError, match=r"^out may share memory with x; "):
        plan.bind(memory[:, :64], packed, out=memory[:, 63:95])
    runner = plan.bind(memory[:, :64], packed, out=memory[:, 64:96])
    memory[:, :64] = X
    runner()
    assert torch.equal(runner.out, linear(X, W4, impl=LINEAR))


def test_a_name_that_is_none_lists_those_that_are():
    with pytest.raises(
        ValueError, match="unknown projection 'w4'; there are w4a16, w4a16:fused, w4a16:convert, w4a16-cuda, torch"
    ):
        projection("w4")


def test_what_cannot_run_here_says_why():
    with pytest.raises(Unsupported, match="only interpreted"):
        linear(X, W4)
    with pytest.raises(Unsupported, match="takes bfloat16, not float16"):
        linear(X.half(), W4, impl=LINEAR)


def test_no_rows_are_no_work():
    assert linear(X[:0], W4, impl=LINEAR).shape == (0, 32)
    assert linear(X.view(3, 1, 64)[:, :0], W4, impl=LINEAR).shape == (3, 0, 32)
    with pytest.raises(Unsupported, match="only interpreted"):
        linear(X[:0], W4)


@pytest.mark.parametrize("name", [["w4a16"], None, 3])
@pytest.mark.parametrize("rows", [0, 3])
def test_a_name_that_is_no_text_is_refused(name, rows):
    with pytest.raises(ValueError, match=r"unknown projection .*; there are w4a16"):
        linear(X[:rows], W4, impl=name)


@pytest.mark.parametrize("rows", [0, 3])
def test_a_result_carries_no_graph(rows):
    x = X[:rows].clone().requires_grad_()
    assert not linear(x, W4, impl=LINEAR).requires_grad
    plan = projection(LINEAR).plan(Projection(3, 32, 64), CPU)
    runner = plan.bind(X.clone().requires_grad_(), plan.pack(W4))
    runner()
    assert not runner.out.requires_grad


def test_a_view_that_is_negated_when_read_is_taken_as_it_reads():
    assert torch.equal(linear(torch._neg_view(X), W4, impl=LINEAR), linear(-X, W4, impl=LINEAR))
    plan = projection(LINEAR).plan(Projection(3, 32, 64), CPU)
    with pytest.raises(ValueError, match="x is a view whose values are negated"):
        plan.bind(torch._neg_view(X), plan.pack(W4))


@pytest.mark.parametrize("fault", ["nibbles", "a line later", "scale", "zero"])
def test_the_bound_catches_faults(fault):
    reference = reference_projection(X, W4, ProjectionRounds())
    right = reference.out.bfloat16()
    wrong = {
        "nibbles": (X.double().view(3, 32, 2).flip(-1).view(3, 64) @ _values().T).bfloat16(),
        "a line later": right.roll(1, 1),
        "scale": right * 1.02,
        "zero": torch.zeros_like(right),
    }[fault]
    assert over_bound(right, reference) <= 1
    assert over_bound(wrong, reference) > 1


def test_torch_is_within_its_bound():
    assert (
        over_bound(linear(X, W4, impl=LINEAR), reference_projection(X, W4, projection(LINEAR).rounds(Projection(3, 32, 64))))
        <= 1
    )


def _values() -> torch.Tensor:
    from impls.nvfp4 import dequantize

    return dequantize(W4, torch.float64)
