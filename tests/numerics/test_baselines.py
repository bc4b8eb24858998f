"""The baseline rule, and files that are missing, damaged or of another version."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from impls.cuda import nvrtc
from impls.errors import CommandError
from impls.numerics.baselines import METRICS, Baselines, default_path, largest_ratio, read, toolchain, worse_than

BOUNDS = dict.fromkeys(METRICS, 1.0)
ENTRY = dict.fromkeys(METRICS, 0.2)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("now", "baseline", "fails"),
    [
        (0.20, 0.20, False),
        (0.10, 0.20, False),  # better
        (0.249, 0.20, False),  # just under 1.25 times
        (0.251, 0.20, True),
        (0.049, 0.01, False),  # nearly five times, but by less than 1/20 of the bound
        (0.061, 0.01, True),
        (math.inf, 0.20, True),
    ],
)
def test_rule_needs_a_quarter_more_and_a_twentieth_of_the_bound(metric: str, now: float, baseline: float, fails: bool) -> None:
    sentence = worse_than({**ENTRY, metric: baseline}, {**ENTRY, metric: now}, BOUNDS)
    assert (sentence is not None) == fails
    assert sentence is None or metric in sentence


def test_recording_keeps_three_digits_and_says_what_changed() -> None:
    baselines = Baselines()
    first = dict.fromkeys(METRICS, 0.123456)
    assert "relative_l2 none -> 0.123" in str(baselines.record("a", "x", first))
    assert baselines.entry("a", "x") == dict.fromkeys(METRICS, 0.123)
    assert baselines.record("a", "x", {**first, "lse_error": 0.12344}) is None
    assert baselines.record("a", "x", {**first, "lse_error": 2e-7}) == "lse_error 0.123 -> 2e-07"


def test_file_comes_back_and_is_the_same_bytes_twice(tmp_path: Path) -> None:
    baselines = Baselines(toolchain={"torch": "2.13.0"})
    for name in ("b", "a"):
        baselines.record(name, "x", dict.fromkeys(METRICS, 0.5))
    baselines.write(tmp_path / "one.json")
    again = read(tmp_path / "one.json")
    assert again == baselines
    assert list(again.entries) == ["a", "b"]  # sorted: the order of a run leaves no trace
    again.write(tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "two.json"]


def test_unknown_implementation_or_case_has_no_entry() -> None:
    baselines = Baselines({"a": {"x": ENTRY}})
    assert baselines.entry("a", "y") is None
    assert baselines.entry("b", "x") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 2, "toolchain": {}, "entries": {}}',
        '{"schema": 1, "toolchain": {}}',
        '{"schema": 1, "toolchain": {}, "entries": {"a": {"x": {"relative_l2": 1}}}}',
        json.dumps({"schema": 1, "toolchain": {}, "entries": {"a": {"x": {**ENTRY, "lse_error": "0.1"}}}}),
        json.dumps({"schema": 1, "toolchain": {}, "entries": {"a": {"x": {**ENTRY, "lse_error": math.nan}}}}),
        json.dumps({"schema": 1, "toolchain": {}, "entries": {"a": {"x": {**ENTRY, "lse_error": -1.0}}}}),
        json.dumps({"schema": 1, "toolchain": {}, "entries": {"a": {"x": {**ENTRY, "lse_error": 10**400}}}}),
        "[" * 100_000,
    ],
)
def test_damaged_file_is_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    path.write_text(text)
    with pytest.raises(CommandError, match=r"cpu\.json") as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert "remove that file, then make them anew with --update" in str(caught.value)


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/null")):
        with pytest.raises(CommandError, match="are not a regular file"):
            read(path)


def test_writing_touches_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "cpu.tmp").write_text("somebody's")
    Baselines({"a": {"x": ENTRY}}).write(tmp_path / "cpu.json")
    assert (tmp_path / "cpu.tmp").read_text() == "somebody's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cpu.json", "cpu.tmp"]


def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpu.json"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CommandError, match=r"cannot write the baselines .*cpu\.json: No space left on device"):
        Baselines({"a": {"x": ENTRY}}).write(path)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("cpu.json", "old")]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "cpu.json")
    Baselines({"a": {"x": ENTRY}}).write(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert read(tmp_path / "cpu.json").entry("a", "x") == ENTRY


def test_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot read the baselines"):
        read(tmp_path / "none.json")


def test_a_gpu_has_a_file_of_its_own() -> None:
    assert default_path("cpu", "cpu").name == "cpu.json"
    assert default_path("gpu", "sm_90a").name == "gpu-sm_90a.json"
    assert default_path("emulated:sm_120a", "sm_120a").name == "emulated-sm_120a.json"


def test_a_toolchain_names_what_compiles_and_launches_cuda_kernels_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvrtc, "find", lambda: SimpleNamespace(release="13.0.88"))
    monkeypatch.setattr("impls.numerics.baselines.driver_version", lambda: "580.95.05")
    on_cpu, on_gpu, emulated = toolchain("cpu"), toolchain("gpu"), toolchain("emulated:sm_120a")
    assert on_cpu["torch"] and on_cpu.keys().isdisjoint({"nvrtc", "driver"})
    assert on_gpu == on_cpu | {"nvrtc": "13.0.88", "driver": "580.95.05"}
    assert emulated == on_cpu | {"nvrtc": "13.0.88"}


def test_a_toolchain_is_named_without_what_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> None:
        raise nvrtc.NoCompiler("there is no NVRTC here.")

    monkeypatch.setattr(nvrtc, "find", find)
    monkeypatch.setattr("impls.numerics.baselines.driver_version", lambda: None)
    assert toolchain("gpu") == toolchain("cpu")


def test_ratio_is_one_where_nothing_was_and_is_wrong() -> None:
    zero = dict.fromkeys(METRICS, 0.0)
    assert largest_ratio(zero, zero) == 1
    assert largest_ratio(zero, {**zero, "lse_error": 1e-9}) == math.inf
    assert largest_ratio(ENTRY, {**ENTRY, "relative_l2": 0.3}) == pytest.approx(1.5)
