"""Counters add up, whatever the order, and say what they hold in a stable form."""

from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pytest

from impls.cuda.emulator.counting.counters import COUNTED, Counters, matrix_cost
from impls.cuda.emulator.errors import Unknown

KERNEL = (
    "ld.global.v4.u32",
    "st.shared.v4.b32",
    "bar.sync",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "add.rn.f32",
    "bra",
    "ret",
)
LANE = np.arange(32)
ALL = np.ones((2, 32), np.bool_)
SIDE_BY_SIDE = np.broadcast_to(16 * LANE, (2, 32)).astype(np.uint64)


def executed(counters: Counters, instruction: int, warps: int, lanes: int) -> None:
    column = np.arange(len(KERNEL)) == instruction
    counters.executed(warps * column, warps * column, lanes * column)


def load(counters: Counters) -> None:
    executed(counters, 0, 2, 64)
    counters.global_access(0, SIDE_BY_SIDE, 16, ALL)


def store(counters: Counters) -> None:
    executed(counters, 1, 2, 40)
    half = np.broadcast_to(LANE < 20, (2, 32))
    counters.shared(1, counters.shared_cost(SIDE_BY_SIDE * np.uint64(8), 16, half))
    counters.met(2, 1)


def multiply(counters: Counters) -> None:
    executed(counters, 3, 2, 64)
    counters.shared(3, matrix_cost(SIDE_BY_SIDE * np.uint64(2), 4))
    executed(counters, 4, 2, 64)
    executed(counters, 5, 1, 32)
    executed(counters, 7, 2, 64)
    counters.diverged(7, 1)


STEPS = (load, store, multiply)


def counted(*steps: object) -> Counters:
    counters = Counters(KERNEL, blocks=4)
    for step in steps or STEPS:
        step(counters)
    return counters


def test_each_access_is_counted_where_it_stands() -> None:
    counters = counted()
    expected = {
        "executions": [2, 2, 0, 2, 2, 1, 0, 2, 0],
        "working": [2, 2, 0, 2, 2, 1, 0, 2, 0],
        "lanes": [64, 40, 0, 64, 64, 32, 0, 64, 0],
        "global_bytes": [1024, 0, 0, 0, 0, 0, 0, 0, 0],
        "global_requests": [2, 0, 0, 0, 0, 0, 0, 0, 0],
        "sectors": [32, 0, 0, 0, 0, 0, 0, 0, 0],
        "shared_bytes": [0, 640, 0, 1024, 0, 0, 0, 0, 0],
        "wavefronts": [0, 2 * 20, 0, 2 * 4 * 2, 0, 0, 0, 0, 0],
        "ideal_wavefronts": [0, 2 * 3, 0, 2 * 4, 0, 0, 0, 0, 0],
        "barriers": [0, 0, 1, 0, 0, 0, 0, 0, 0],
        "divergent_branches": [0, 0, 0, 0, 0, 0, 0, 1, 0],
    }
    assert {name: counters.by_instruction(name).tolist() for name in expected} == expected
    assert set(COUNTED) == {*expected, "shared_least_bytes"}


def test_classes_hold_what_was_executed() -> None:
    classes = counted().by_class()
    assert list(classes) == ["barrier", "branch", "global load", "shared load", "shared store", "tensor 16-bit"]
    assert classes["tensor 16-bit"]["executions"] == 3
    assert classes["shared store"]["wavefronts"] == 40


def test_source_lines_hold_their_instructions() -> None:
    lines = [("a.cu", 1), ("a.cu", 2), ("a.cu", 2), ("a.cu", 1), None, None, None, ("b.cu", 1), None]
    found = counted().by_source_line(lines)
    assert {place: counts["executions"] for place, counts in found.items()} == {
        ("a.cu", 1): 4,
        ("a.cu", 2): 2,
        None: 3,
        ("b.cu", 1): 2,
    }
    assert found["a.cu", 2]["barriers"] == 1


def test_a_line_with_a_barrier_alone_is_not_lost() -> None:
    assert counted(store).by_source_line(range(len(KERNEL)))[2]["barriers"] == 1


def test_products_are_told_by_kind() -> None:
    counters = counted()
    assert counters.mma_by_kind() == {
        "m16n8k16 f32.bf16.bf16.f32": {"working": 2, "products": 4096},
        "m16n8k16 f32.f16.f16.f32": {"working": 1, "products": 2048},
    }
    assert counters.products_by_class() == {"tensor 16-bit": 6144}


def test_the_record_is_the_same_in_every_order_and_survives_json() -> None:
    texts = {json.dumps(counted(*steps).record()) for steps in permutations(STEPS)}
    assert len(texts) == 1
    assert json.loads(texts.pop()) == counted().record()


def test_a_warp_without_an_active_lane_asks_for_nothing() -> None:
    """So warps that are served together cost as much as those that are served alone."""
    counters, lanes = counted(), np.stack([LANE < 0, LANE < 1])
    counters.global_access(0, SIDE_BY_SIDE, 16, lanes)
    counters.global_access(0, SIDE_BY_SIDE[:1], 16, lanes[:1])
    for name, before in (("global_bytes", 1024), ("global_requests", 2), ("sectors", 32)):
        assert counters.by_instruction(name)[0] == before + {"global_bytes": 16}.get(name, 1)


def test_a_lane_that_wants_the_first_bytes_alone_asks_for_those() -> None:
    counters = counted(store)
    counters.global_access(0, SIDE_BY_SIDE, 16, ALL, asked=2 * 32 * 12)
    assert counters.by_instruction("global_bytes")[0] == 768
    assert counters.by_instruction("sectors")[0] == 32


def test_a_bulk_copy_is_one_request() -> None:
    counters = counted(store)
    counters.bulk_access(0, 16, 48)
    counters.bulk_access(0, 16, 64)
    found = {name: int(counters.by_instruction(name)[0]) for name in ("global_bytes", "global_requests", "sectors")}
    assert found == {"global_bytes": 112, "global_requests": 2, "sectors": 2 + 3}


def test_an_instruction_without_class_is_refused_at_once() -> None:
    with pytest.raises(Unknown, match="frobnicate"):
        Counters([*KERNEL, "frobnicate.b32"], blocks=1)
