"""Faults put into the emulator, each of which a check has to see: else the check would not see such a fault in a kernel either.

Every check holds for the emulator as it is, and fails with any of its mutations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from impls.arch import find
from impls.contract import Inputs, Problem
from impls.cuda.confirm.execute import in_emulator
from impls.cuda.confirm.probe import Program
from impls.cuda.confirm.probes import PROBES
from impls.cuda.emulation.launches import run_emulated
from impls.cuda.emulator.arithmetic import APPROXIMATE, operation
from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.machine import copies
from impls.cuda.emulator.machine.steps import cross_lane, matrices, scalar
from impls.cuda.emulator.tensor_cores import fragments, multiply, rounding, scales
from impls.nvfp4 import quantize
from impls.reference import reference_attention
from impls.registry import implementation
from tests.cuda.emulator.dots import Shape, run_nvfp4, run_plain
from tests.cuda.needs import needs_nvrtc

pytestmark = needs_nvrtc
Patch = pytest.MonkeyPatch


# Checks: True where the emulator is right.


def nvfp4_tile() -> bool:
    found, exact = run_nvfp4(Shape(32, 32, 128, 2), "anything")
    return bool((found == exact).all())


def bf16_tile() -> bool:
    found, exact = run_plain(Shape(32, 32, 64, 2), "bf16")
    return bool((found == exact).all())


def attention() -> bool:
    """Decode by a4q with NVFP4 products, two splits, against the reference."""
    problem = Problem(1, 4, 2, 1, 128, 64, 64, causal=False)
    a4q, arch = implementation("a4q"), find("sm_120a")
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(1, 4, 1, 64, generator=generator).bfloat16()
    k4, v4 = (quantize(torch.randn(1, 2, 128, 64, generator=generator)) for _ in range(2))
    plan = a4q.plan(problem, arch)
    runner = plan.bind(q, plan.pack(k4, v4))
    run_emulated(runner.launches, arch, schedules=("forward",))
    wanted = reference_attention(problem, Inputs(q, k4, v4), rows=torch.arange(1), rounds=a4q.rounds(problem)).out.double()
    return float((runner.output.out.double() - wanted).norm() / wanted.norm()) < 2.0**-8


def vectors(name: str, beginning: str) -> bool:
    """Instructions that begin so, against what their probe expects."""
    program, inputs, expected = _expected(name, beginning)
    return bool((in_emulator(program, inputs) == expected).all())


@cache
def _expected(name: str, beginning: str) -> tuple[Program, np.ndarray, np.ndarray]:
    """Of the emulator without mutations: `vectors` is first called with none."""
    probe, arch = next(each for each in PROBES if each.name == name), find("sm_120a")
    chosen = tuple(each for each in probe.instructions if each.on(arch) and each.name.startswith(beginning))
    program, inputs = Program(probe, arch, chosen), probe.given[:512]
    return program, inputs, program.predict(inputs)


def exponential() -> bool:
    """ex2.approx within its documented error of 2^x, which Python's own pow gives."""
    kind, most = APPROXIMATE["ex2.approx.f32"]
    assert kind == "ulp"
    x = np.linspace(-20, 20, 1001).astype(np.float32)
    exact = np.array([2.0 ** float(each) for each in x])
    found = operation("ex2", ("approx", "f32")).function(x.view(np.uint32)).view(np.float32)
    return bool((np.abs(found - exact) <= most * np.spacing(exact.astype(np.float32))).all())


# Mutations


def a_scale_byte_of_another_block(patch: Patch) -> None:
    select = scales.Scales.select
    patch.setattr(scales.Scales, "select", lambda self, *given: select(self, *given)[..., ::-1])


def scales_of_another_row(patch: Patch) -> None:
    patch.setattr(scales, "A", replace(scales.A, lanes=np.roll(scales.A.lanes, 1)))


def rows_0_and_8_take_one_lanes_scales(patch: Patch) -> None:
    patch.setattr(scales, "A", replace(scales.A, lanes=scales.A.lanes & ~1))


def thread_ids_counted_backwards(patch: Patch) -> None:
    patch.setattr(scales, "B", replace(scales.B, thread_step=-1, lanes=scales.B.lanes + 3))


def rounds_to_nearest(patch: Patch) -> None:
    def nearest(value: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(value), rounding.SINGLE_NAN, (value.astype(np.float32) + np.float32(0)).view(np.uint32))

    patch.setattr(rounding, "single_toward_zero", nearest)


def a_window_one_bit_narrower(patch: Patch) -> None:
    fused = multiply.fused_sum
    patch.setattr(multiply, "fused_sum", lambda *given: fused(*given[:-1], given[-1] - 1))


def two_rows_of_a_swapped(patch: Patch) -> None:
    patch.setitem(fragments.A_WORDS, 4, fragments.A_WORDS[4][[1, 0, *range(2, 16)]])


def two_columns_of_b_swapped(patch: Patch) -> None:
    patch.setitem(fragments.B_WORDS, 2, fragments.B_WORDS[2][[1, 0, *range(2, 8)]])


def ldmatrix_rows_swapped(patch: Patch) -> None:
    found = matrices.ldmatrix

    def mutated(modifiers: tuple[str, ...]) -> Any:
        move = found(modifiers)
        index = move.source.reshape(32, -1)
        return replace(move, source=index[[4, 5, 6, 7, 0, 1, 2, 3, *range(8, 32)]].reshape(-1))

    patch.setattr(matrices, "ldmatrix", mutated)


def waits_that_leave_one_group_more(patch: Patch) -> None:
    wait = copies.Copies.wait
    patch.setattr(copies.Copies, "wait", lambda self, front, mask, left: wait(self, front, mask, left + 1))


def shuffles_from_the_next_lane(patch: Patch) -> None:
    lane_of = cross_lane._lane_of

    def mutated(*given: Any) -> Any:
        found = lane_of(*given)

        def off_by_one(front: Any) -> Any:
            lane, inside = found(front)
            return (lane + 1) % 32, inside

        return off_by_one

    patch.setattr(cross_lane, "_lane_of", mutated)


def _instead(patch: Patch, opcode: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    found = scalar.operation

    def mutated(name: str, *given: Any, **more: Any) -> Any:
        known = found(name, *given, **more)
        return replace(known, function=change(known.function)) if name == opcode else known

    patch.setattr(scalar, "operation", mutated)


def permutations_with_another_selector(patch: Patch) -> None:
    _instead(patch, "prmt", lambda function: lambda a, b, selector: function(a, b, selector ^ np.uint32(1)))


def conversions_with_the_halves_swapped(patch: Patch) -> None:
    _instead(patch, "cvt", lambda function: lambda *given: function(*given[::-1]))


def an_fma_that_rounds_twice(patch: Patch) -> None:
    def twice(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return (a.view(np.float32) * b.view(np.float32) + c.view(np.float32)).view(np.uint32)

    _instead(patch, "fma", lambda function: twice)


def an_exponential_beyond_its_bound(patch: Patch) -> None:
    function = operation("ex2", ("approx", "f32")).function
    known = replace(operation("ex2", ("approx", "f32")), function=lambda a: function(a) + np.uint32(3))
    patch.setitem(globals(), "operation", lambda *given: known)


@dataclass(frozen=True)
class Case:
    check: Callable[[], bool]
    mutations: tuple[Callable[[Patch], None], ...]


CASES = {
    "NVFP4 tile": Case(
        nvfp4_tile,
        (
            a_scale_byte_of_another_block,
            scales_of_another_row,
            rows_0_and_8_take_one_lanes_scales,
            two_rows_of_a_swapped,
            two_columns_of_b_swapped,
        ),
    ),
    "bf16 tile": Case(bf16_tile, (two_rows_of_a_swapped, two_columns_of_b_swapped)),
    "attention": Case(
        attention,
        (
            a_scale_byte_of_another_block,
            two_columns_of_b_swapped,
            shuffles_from_the_next_lane,
            waits_that_leave_one_group_more,
            conversions_with_the_halves_swapped,
        ),
    ),
    "NVFP4 vectors": Case(
        lambda: vectors("mma nibble nibble ue4m3", "mma"),
        (rounds_to_nearest, a_window_one_bit_narrower, thread_ids_counted_backwards),
    ),
    "f16 vectors": Case(lambda: vectors("mma f16 f16", "mma"), (rounds_to_nearest, a_window_one_bit_narrower)),
    "ldmatrix vectors": Case(lambda: vectors("matrices", "ldmatrix.sync.aligned.m8n8"), (ldmatrix_rows_swapped,)),
    "copies": Case(lambda: vectors("copies", "cp.async"), (waits_that_leave_one_group_more,)),
    "shuffles": Case(lambda: vectors("lanes", "shfl"), (shuffles_from_the_next_lane,)),
    "integer vectors": Case(lambda: vectors("integer", "prmt"), (permutations_with_another_selector,)),
    "float vectors": Case(lambda: vectors("single", "fma.rn.f32"), (an_fma_that_rounds_twice,)),
    "exponential": Case(exponential, (an_exponential_beyond_its_bound,)),
}


@pytest.mark.parametrize("name", CASES)
def test_mutations_are_seen(name, monkeypatch):
    case = CASES[name]
    assert case.check()
    unseen = []
    for mutate in case.mutations:
        with monkeypatch.context() as patch:
            mutate(patch)
            try:
                holds = case.check()
            except EmulationError:
                holds = False
            if holds:
                unseen.append(mutate.__name__)
    assert not unseen
    assert case.check()
