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


def journal(cell: Cell, **ceilings: float) -> SimpleNamespace:
    run = SimpleNamespace(environment=SimpleNamespace(arch="sm_90a"), ceilings=ceilings)
    return SimpleNamespace(path="a journal", run=run, cells=(cell,))


def test_a_run_without_what_bounds_need_is_refused():
    rates = {"copy_bytes_per_s": 4e12, "read_bytes_per_s": 4e12}
    clocked = dataclasses.replace(latency_cell(), clocks={"latency": (1980,) * len(latency_cell().series["latency"])})
    for lacking in (journal(clocked), journal(dataclasses.replace(clocked, clocks={}), **rates)):
        with pytest.raises(ValueError, match="nothing to bound by"):
            list(script.compared(lacking, "*"))


def test_a_cell_that_cannot_be_bound_does_not_end_the_table(monkeypatch):
    def refuses(*given):
        raise script.Unsupported("it does not list its kernels.")

    monkeypatch.setattr(script, "launches", refuses)
    clocked = dataclasses.replace(latency_cell(), clocks={"latency": (1980,) * len(latency_cell().series["latency"])})
    made = journal(clocked, copy_bytes_per_s=4e12, read_bytes_per_s=4e12)
    made.cells = (clocked, dataclasses.replace(clocked, suite="projection"))
    first, second = script.compared(made, "*")
    assert first == f"{clocked.id}: it does not list its kernels." and second == f"{clocked.id}: only attention is bound."


def test_a_glob_that_names_no_cell_is_told(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["bound_against_measured.py", "--cell", "nope"])
    assert script.main() == 2
    assert "is called 'nope'" in capsys.readouterr().err
