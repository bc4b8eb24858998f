"""`attention()`: the implementation that was named and no other, and a sentence where it cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import nvfp4bench
from impls.api import attention
from impls.contract import Cache, Dense, Implementation, Paged, Plan, Problem, Runner, Unsupported
from impls.nvfp4 import quantize
from impls.reference import reference_attention
from impls.registry import why_not
from tests.contract.attention_cases import OPTIONS, Case, make

IMPL = "torch-reference-bf16"


def call(case: Case, **changes: Any) -> Any:
    p, i = case.problem, case.inputs
    options: dict[str, Any] = {
        "impl": IMPL,
        "causal": p.causal,
        "scale": p.scale,
        "window": p.window,
        "kv_lens": i.kv_lens,
        "block_table": i.block_table,
        "layout": p.layout,
    }
    return attention(i.q, i.k4, i.v4, **{**options, **changes})


STATED = [n for n, o in OPTIONS.items() if o.get("dtype") != "float16" and n != "paged-full"]


@pytest.mark.parametrize("name", STATED)
def test_every_option_reaches_the_implementation(name: str) -> None:
    case = make(name)
    out, lse = call(case, return_lse=True)
    exact = reference_attention(case.problem, case.inputs)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(lse.double(), exact.lse, rtol=1e-4, atol=1e-4)
    assert ((out.double() - exact.out).abs() <= 2.0**-7 * exact.mass + 1e-12).all()


def test_options_left_out_mean_causal_and_one_over_root_d() -> None:
    case = make("causal")
    i = case.inputs
    defaults = attention(i.q, i.k4, i.v4, impl=IMPL)
    assert isinstance(defaults, torch.Tensor)
    assert torch.equal(defaults, call(case))
    assert torch.equal(call(case, layout=None), call(case, layout=Dense()))
    assert torch.equal(call(case, scale=None), call(case, scale=32**-0.5))
    assert torch.equal(call(case, scale=2**70), call(case, scale=2.0**70))
    for other in ({"causal": False}, {"scale": 0.5}, {"window": 2}):
        assert not torch.equal(call(case, **other), call(case))


def test_lse_comes_only_when_asked_for() -> None:
    assert isinstance(call(make("causal")), torch.Tensor)
    out, lse = call(make("causal"), return_lse=True)
    assert (out.shape, lse.shape) == ((2, 4, 5, 16), (2, 4, 5))


def test_an_unknown_implementation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^unknown implementation 'flash'; there are torch-reference-bf16, triton"):
        call(make("causal"), impl="flash")
    with pytest.raises(TypeError, match="impl"):
        i = make("causal").inputs
        attention(i.q, i.k4, i.v4)  # type: ignore[call-arg]


@pytest.mark.parametrize("option", ["sinks", "softcap", "mask", "is_causal", "sm_scale"])
def test_an_unknown_option_is_refused(option: str) -> None:
    """vLLM #52148, SageAttention: options that are taken and ignored."""
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
        call(make("causal"), **{option: None})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"scale": -1.0}, "scale must be a positive finite number, not -1.0."),
        ({"window": 0}, "window must be a whole number of at least 1, not 0."),
        ({"layout": "paged"}, "layout must be Dense() or Paged(page_size), not 'paged'."),
        ({"layout": Paged(16)}, "a paged cache needs block_table [B, max_pages] and kv_lens [B]."),
        ({"kv_lens": torch.ones(2)}, "kv_lens must be int32, not float32."),
    ],
)
def test_options_that_make_no_sense_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        call(make("causal"), **changes)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"q": None}, "q must be a tensor of torch, not NoneType."),
        ({"q": [1.0]}, "q must be a tensor of torch, not list."),
        ({"k4": torch.zeros(2, 2, 8, 32)}, "k4 must be an NVFP4Tensor, as `quantize` makes one, not Tensor."),
        ({"v4": None}, "v4 must be an NVFP4Tensor, as `quantize` makes one, not NoneType."),
        ({"kv_lens": [8, 8]}, "kv_lens must be a tensor of torch, not list."),
        ({"block_table": 3}, "block_table must be a tensor of torch, not int."),
        ({"impl": None}, "unknown implementation None; there are torch-reference-bf16, triton"),
        ({"impl": []}, "unknown implementation []; there are torch-reference-bf16, triton"),
    ],
)
def test_operands_of_other_types_are_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    i = make("causal").inputs
    with pytest.raises(ValueError) as caught:
        attention(**{"q": i.q, "k4": i.k4, "v4": i.v4, "impl": IMPL, **changes})
    assert str(caught.value).startswith(sentence)


def test_a_cache_without_a_page_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^k4 must have at least one page, also where no sequence has a token\.$"):
        attention(
            torch.zeros(1, 2, 1, 16, dtype=torch.bfloat16),
            quantize(torch.zeros(0, 2, 16, 16)),
            quantize(torch.zeros(0, 2, 16, 16)),
            impl=IMPL,
            layout=Paged(16),
            kv_lens=torch.zeros(1, dtype=torch.int32),
            block_table=torch.zeros(1, 1, dtype=torch.int32),
        )


def test_what_an_implementation_cannot_do_raises_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unsupported) as caught:
        call(make("float16"))
    assert str(caught.value) == "torch-reference-bf16 takes bfloat16 queries, not float16."
    problem = make("float16").problem
    assert why_not(IMPL, problem, "cpu") == str(caught.value)


def test_a_device_that_is_no_gpu_and_no_cpu_is_refused() -> None:
    i = make("causal").inputs
    with pytest.raises(ValueError, match=r"^tensors must be on a CUDA device or the CPU, not on meta\.$"):
        attention(i.q.to("meta"), i.k4.to("meta"), i.v4.to("meta"), impl=IMPL)


def test_the_four_steps_are_taken_in_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    class Recorded(Implementation):
        name = "recorded"
        summary = "says what it is asked"

        def why_not(self, problem: Problem, arch: object) -> str | None:
            steps.append("why_not")
            return None

        def plan(self, problem: Problem, arch: object) -> Plan:
            steps.append("plan")
            return RecordedPlan()

    class RecordedPlan(Plan):
        def pack(self, k4: Any, v4: Any) -> Cache:
            steps.append("pack")
            return super().pack(k4, v4)

        def bind(self, q: torch.Tensor, cache: Cache, **rest: Any) -> Runner:
            steps.append("bind")
            return RecordedRunner()

    class RecordedRunner(Runner):
        def __init__(self) -> None:
            from impls.contract import Output

            self.output = Output(torch.zeros(1), torch.ones(1))

        def __call__(self) -> None:
            steps.append("run")

    monkeypatch.setattr("impls.api.implementation", lambda name: Recorded())
    out, lse = call(make("causal"), return_lse=True)
    assert steps == ["why_not", "plan", "pack", "bind", "run"]
    assert (out.item(), lse.item()) == (0.0, 1.0)


def test_defaults_of_plans_runners_and_caches() -> None:
    class LeastPlan(Plan):
        def bind(self, q: torch.Tensor, cache: Cache, **rest: Any) -> Runner:
            return LeastRunner()

    class LeastRunner(Runner):
        def __call__(self) -> None: ...

    i = make("causal").inputs
    cache = LeastPlan().pack(i.k4, i.v4)
    assert cache.k4 is i.k4
    assert cache.nbytes == i.k4.nbytes + i.v4.nbytes
    assert Cache(i.k4, i.v4, {"scales": torch.zeros(3, dtype=torch.float32)}).nbytes == cache.nbytes + 12
    assert (LeastPlan().workspace_bytes, LeastPlan().describe(), LeastRunner().launches) == (0, {}, ())


def test_public_names() -> None:
    for name in nvfp4bench.__all__:
        assert getattr(nvfp4bench, name) is not None
    with pytest.raises(AttributeError, match=r"^module 'nvfp4bench' has no attribute 'flash'$"):
        nvfp4bench.flash  # noqa: B018


def test_a_view_that_is_negated_when_read_is_taken_as_it_reads() -> None:
    i = make("causal").inputs
    wanted = attention(-i.q, i.k4, i.v4, impl=IMPL)
    assert isinstance(wanted, torch.Tensor)
    assert torch.equal(wanted, attention(torch._neg_view(i.q), i.k4, i.v4, impl=IMPL))  # type: ignore[arg-type]


def test_a_result_carries_no_graph() -> None:
    i = make("causal").inputs
    for result in attention(i.q.clone().requires_grad_(), i.k4, i.v4, impl=IMPL, return_lse=True):
        assert not result.requires_grad
