"""Bounds are the work over the rate, and never count what may not be done."""

from __future__ import annotations

import numpy as np
import pytest

from impls.arch import ARCHES, PER_CLOCK, find, products
from impls.cuda.emulator.counting.bounds import Bound, bound, work
from impls.cuda.emulator.counting.counters import Counters

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
EX2 = "ex2.approx.ftz.f32"
CLOCK = 1e9


def executed(counts: dict[str, int], blocks: int = 1000) -> Counters:
    counters = Counters(list(counts), blocks)
    warps = np.array(list(counts.values()))
    counters.executed(warps, warps, 32 * warps)
    return counters


def least(counters: Counters, target: str = "sm_90a", sms: int = 10, dram: float | None = 1e12) -> Bound:
    return bound(counters, find(target).per_clock, sms=sms, clock_hz=CLOCK, dram_bytes_per_second=dram)


def test_an_mma_takes_its_products_over_the_rate() -> None:
    # 2048 products of a warp's m16n8k16, 2048 a clock on sm_90a: 1 clock each; ten SMs share 50
    assert least(executed({MMA: 50})).seconds["tensor 16-bit"] == pytest.approx(5 / CLOCK)
    assert least(executed({MMA: 50}), "sm_80").seconds["tensor 16-bit"] == pytest.approx(10 / CLOCK)


def test_exponentials_take_two_clocks_a_warp() -> None:
    found = least(executed({EX2: 100, "fma.rn.f32": 100}))
    assert found.seconds["xu"] == pytest.approx(100 * 32 / 16 / 10 / CLOCK)
    assert found.seconds["fma"] == pytest.approx(100 * 32 / 128 / 10 / CLOCK)
    assert found.seconds["issue"] == pytest.approx(200 / 4 / 10 / CLOCK)
    assert found.limit == "xu"


def test_no_more_sms_work_than_there_are_blocks() -> None:
    assert least(executed({MMA: 50}, blocks=5)).seconds == {
        pipe: pytest.approx(2 * seconds) for pipe, seconds in least(executed({MMA: 50})).seconds.items()
    }


def test_a_pipe_without_a_rate_is_said_to_be_unknown() -> None:
    found = least(executed({MMA: 50, EX2: 1}), "sm_103a")
    assert found == Bound({}, ("issue", "tensor 16-bit", "xu"))
    assert found.limit is None
    counters = executed({EX2: 1})
    counters.dram_bytes = 32
    assert least(counters, dram=None).unknown == ("dram",)


def test_memory_takes_its_bytes_over_the_rate() -> None:
    counters = executed({"ld.shared.v4.b32": 1})
    offsets = np.arange(0, 512, 16, dtype=np.uint32)[None]
    counters.shared(0, counters.shared_cost(offsets, 16, np.ones((1, 32), np.bool_)))
    counters.dram_bytes = 10**6
    found = least(counters, sms=1)
    assert found.seconds["dram"] == pytest.approx(1e-6)
    assert found.seconds["shared"] == pytest.approx(4 / CLOCK)
    assert found.seconds["lsu"] == pytest.approx(1 / CLOCK)
    assert list(found.seconds)[:2] == ["dram", "shared"]


def test_shared_memory_is_bound_by_its_conflicts_where_the_assembler_cannot_remove_them() -> None:
    counters = executed({"ld.shared.v4.b32": 1, "ld.shared.b32": 1})
    everyone = np.ones((1, 32), np.bool_)
    column, one_word = np.arange(0, 4096, 128, dtype=np.uint32)[None], np.zeros((1, 32), np.uint32)
    counters.shared(0, counters.shared_cost(column, 16, everyone))  # 32 wavefronts
    counters.shared(1, counters.shared_cost(one_word, 4, everyone))  # and maybe three more with it
    assert work(counters)["shared"] == 128 * (32 + 0.25)


def test_a_warp_of_which_no_lane_executes_it_does_no_work() -> None:
    """Machine code may branch over what a guard forbids: two warps came, one worked."""
    names = [MMA, EX2, "red.global.add.f32", "ld.shared.v4.b32"]
    counters = Counters(names, blocks=1)
    two, one = np.full(len(names), 2), np.ones(len(names), np.int64)
    counters.executed(two, one, 32 * two)
    assert work(counters) == {"issue": 4 * 32, "xu": 32, "lsu": 2 * 32, "tensor 16-bit": 2048}
    assert counters.mma_by_kind() == {"m16n8k16 f32.bf16.bf16.f32": {"working": 1, "products": 2048}}


def test_what_the_assembler_may_drop_is_no_work() -> None:
    assert work(executed({"mov.b32": 9, "add.s32": 9, "setp.lt.s32": 9, "bra": 9, "div.rn.f32": 9, "bar.sync": 9})) == {}


def test_every_rate_is_of_a_pipe_that_work_can_name() -> None:
    every = ("ex2.f32", "fma.rn.f32", "max.f32", "mul.rn.f16x2", "fma.rn.f64", "shfl.sync.idx.b32", MMA)
    every += ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
    every += tuple(f"mma.sync.aligned.m16n8k64.row.col.kind::{kind}.f32.e2m1.e2m1.f32" for kind in ("mxf4", "mxf4nvf4"))
    counters = executed(dict.fromkeys(every, 1))
    offsets = np.zeros((1, 32), np.uint32)
    counters.shared(0, counters.shared_cost(offsets, 4, np.ones((1, 32), np.bool_)))
    assert PER_CLOCK.keys() <= ARCHES.keys()
    for rates in PER_CLOCK.values():
        assert rates.keys() <= work(counters).keys()


@pytest.mark.parametrize(
    ("target", "product", "boost_hz"),
    [("sm_90a", "H200 SXM", 1.83e9), ("sm_100a", "B200", 1.86e9), ("sm_120a", "RTX PRO 6000", 2.617e9)],
)
def test_rates_make_up_the_products_peaks(target: str, product: str, boost_hz: float) -> None:
    stated = next(known for known in products(find(target)) if known.name == product)
    assert stated.sms is not None
    peaks = {"tensor 16-bit": stated.bf16_tflops, "tensor fp8": stated.fp8_tflops, "tensor nvfp4": stated.fp4_tflops}
    for pipe, tflops in peaks.items():
        if tflops is not None:
            flops = 2 * find(target).per_clock[pipe] * stated.sms * boost_hz
            assert flops == pytest.approx(1e12 * tflops, rel=0.01)
