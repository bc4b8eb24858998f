"""The conversion bit by bit, and attention over what it leaves against the float64 reference, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from impls.worker import Worker
from tests.hybrid.behaviours import BEHAVIOURS
from tests.hybrid.conversions import CONVERSIONS

INTERPRET = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
QUICK = ("head-dim-48-80-axis-1", "pages-48-NHD-causal-axis-1", "two-parts-causal", "decoded-by-bits-bfloat16")
"""The gate has more; these are what it has not."""
QUICK_CONVERSIONS = ("16-bit-80-axis-1", "16-bit-bytes-apart-axis-2", "e4m3-80-axis-2", "e4m3-words-apart", "folded-80-axis-1")
QUICK_CONVERSIONS += ("16-bit-pages-NHD-axis-1", "e4m3-pages-NHD-axis-2")
SLOW_CONVERSIONS = [pytest.param(name, marks=pytest.mark.slow) for name in CONVERSIONS if name not in QUICK_CONVERSIONS]


@pytest.fixture(scope="module")
def cases() -> Iterator[Worker]:
    with Worker("tests.hybrid.children:run_case", env=INTERPRET) as worker:
        yield worker


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("impl", ["hybrid-bf16", "hybrid-fp8"])
def test_within_its_error_bound(cases: Worker, impl: str, name: str) -> None:
    reply = cases.call({"impl": impl, "case": name}, timeout=120)
    assert reply.status == "ok", reply.sentence
    assert reply.value["bad_empty_rows"] == 0, "a row that sees no key must give out 0 and lse -inf"
    assert reply.value["out_over_bound"] <= 1
    assert reply.value["lse_over_bound"] <= 1


@pytest.fixture(scope="module")
def conversions() -> Iterator[Worker]:
    with Worker("tests.hybrid.children:run_conversion", env=INTERPRET) as worker:
        yield worker


@pytest.mark.parametrize("name", [*QUICK_CONVERSIONS, *SLOW_CONVERSIONS])
def test_a_conversion_is_exact_or_rounded_once(conversions: Worker, name: str) -> None:
    reply = conversions.call({"conversion": name}, timeout=120)
    assert reply.status == "ok", reply.sentence


@pytest.fixture(scope="module")
def by_ptx() -> Iterator[Worker]:
    with Worker("tests.hybrid.children:run_conversion_by_ptx", env=INTERPRET) as worker:
        yield worker


def _quick_or_slow(name: str, has_e4m3: bool, quick: bool) -> Any:
    marks = () if quick else (pytest.mark.slow,)
    return pytest.param(name, has_e4m3, marks=marks, id=f"{name}{'' if has_e4m3 else '-rounded-by-bits'}")


BY_PTX = [_quick_or_slow(name, True, name in QUICK_CONVERSIONS) for name in CONVERSIONS]
BY_PTX += [_quick_or_slow(name, False, name == "e4m3-80-axis-2") for name, one in CONVERSIONS.items() if one.kind == "e4m3"]


@pytest.mark.parametrize(("name", "has_e4m3"), BY_PTX)
def test_a_conversion_by_ptx(by_ptx: Worker, name: str, has_e4m3: bool) -> None:
    """What a GPU runs, of which the interpreter else runs none."""
    reply = by_ptx.call({"conversion": name, "has_e4m3": has_e4m3}, timeout=120)
    assert reply.status == "ok", reply.sentence


@pytest.mark.parametrize("has_e4m3", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_scale_and_code_by_ptx(by_ptx: Worker, has_e4m3: bool) -> None:
    request = {"behaviour": "every_scale_and_code_is_converted_exactly", "has_e4m3": has_e4m3}
    reply = by_ptx.call(request, timeout=120)
    assert reply.status == "ok", reply.sentence


@pytest.fixture(scope="module")
def behaviours() -> Iterator[Worker]:
    with Worker("tests.hybrid.children:run_behaviour", env=INTERPRET) as worker:
        yield worker


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviour(behaviours: Worker, name: str) -> None:
    reply = behaviours.call({"behaviour": name}, timeout=120)
    assert reply.status == "ok", reply.sentence
