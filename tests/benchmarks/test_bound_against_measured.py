"""The table of bounds against measurements: how launches add up, and that nothing is said of other machine code."""

from __future__ import annotations

import dataclasses
import hashlib
from types import SimpleNamespace

import bound_against_measured as script
import pytest

from benchmarks.records import Cell, LaunchRecord
from impls.cuda.emulator.counting.bounds import Bound
from tests.benchmarks.records_made_up import latency_cell

CUBIN = b"machine code"


def launch(*, overlaps: bool = False) -> SimpleNamespace:
    return SimpleNamespace(cubin=CUBIN, entry="attend", grid=(8, 1, 1), block=(128, 1, 1), overlaps=overlaps)


def bound(seconds: float) -> Bound:
    return Bound({"xu": seconds, "issue": seconds / 2}, ())


def measured(seconds: float, **changes: object) -> Cell:
    record = LaunchRecord(entry="attend", cubin=hashlib.sha256(CUBIN).hexdigest(), grid=(8, 1, 1), block=(128, 1, 1))
    changed = dataclasses.replace(record, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(latency_cell(), launches=(changed,), series={"latency": (seconds,)}, clocks={})


def test_launches_one_after_the_other_add_up():
    assert script._least([launch(), launch()], [bound(2.0), bound(3.0)]) == 5.0


def test_of_launches_that_overlap_the_longest_counts():
    overlapping = [launch(), launch(), launch(overlaps=True), launch(overlaps=True)]
    assert script._least(overlapping, [bound(2.0), bound(3.0), bound(5.0), bound(1.0)]) == 7.0


@pytest.mark.parametrize("changes", [{"cubin": "b" * 64}, {"grid": (9, 1, 1)}, {"block": (64, 1, 1)}])
def test_other_machine_code_or_another_grid_is_not_the_same(changes):
    assert script._same([launch()], measured(1.0))
    assert not script._same([launch()], measured(1.0, **changes))


def test_a_measurement_below_its_bound_is_told():
    launches = (("attend", bound(2.0)),)
    assert script.Compared(measured(1.9), launches, 2.0, 1.9).is_beaten
    assert not script.Compared(measured(2.1), launches, 2.0, 2.1).is_beaten


def test_a_row_is_a_launch():
    launches = (("attend", bound(2e-6)), ("merge", Bound({"dram": 1e-6, "tensor 16-bit": 5e-7}, ())))
    first, second = script.lines(script.Compared(measured(6e-6), launches, 3e-6, 6e-6))
    assert first.split(" | ")[1:] == ["`attend`", "1.00", "", "2.00", "", "", "xu", "3.00", "6.00", "2.00 |"]
    assert second.split(" | ")[1:8] == ["`merge`", "", "0.50", "", "", "1.00", "dram"]
