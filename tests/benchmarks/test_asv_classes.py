"""What asv finds by importing the benchmark modules is what the files made from journals say."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import host
from benchmarks.asv_classes import benchmark_classes
from benchmarks.asv_file import benchmark_list
from benchmarks.asv_names import TRACKS, benchmark_name, class_name, class_names
from benchmarks.cells import workloads
from benchmarks.operations import all_names, names
from benchmarks.records import PROTOCOL, to_json
from tests.benchmarks.records_made_up import failed_cell, host_cell

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def discovered(tmp_path_factory) -> dict[str, dict]:
    """asv's own discovery, in a process of its own as asv does it; that process must not import torch or triton."""
    found = tmp_path_factory.mktemp("asv") / "benchmarks.json"
    script = f"""
import sys
from asv_runner.discovery import _discover
_discover(({str(ROOT / "benchmarks")!r}, {str(found)!r}))
assert not {{"torch", "triton"}} & set(sys.modules), "torch or triton was imported"
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {entry["name"]: entry for entry in json.loads(found.read_text())}


def test_asv_finds_the_series_that_journals_are_made_into(discovered):
    described = benchmark_list(all_names())
    assert set(discovered) == set(described)
    for name, entry in described.items():
        for key in ("params", "param_names", "unit", "type", "version"):
            assert discovered[name][key] == entry[key], (name, key)


def test_each_family_has_a_sweep_of_its_own(discovered):
    """asv keys a cache by module and line; families that shared one would read each other's cells."""
    keys = {name.split(".")[0]: entry["setup_cache_key"] for name, entry in discovered.items()}
    assert len(set(keys.values())) == len(keys) == 9
    assert all(key.split(":")[0] == family for family, key in keys.items())


def test_there_is_a_class_for_every_workload_and_implementation(discovered):
    wanted = {
        benchmark_name(workload, impl, track)
        for workload in workloads().values()
        for impl in workload.done_by(names(workload.operation))
        for track in TRACKS[workload.suite]
    }
    assert set(discovered) == wanted
    assert "decode.TritonB8.track_latency" in wanted
    assert "host.TorchReferenceBf16.track_call" in wanted
    assert "projection.W4a16.track_latency" in wanted
    assert "layer.TritonW4a16Prefill.track_latency" in wanted
    assert "decode.W4a16.track_latency" not in wanted
    assert "static.A4qDecode.track_registers" in wanted
    assert "static.SdpaFlashDecode.track_registers" not in wanted  # it has no kernels of ours to inspect
    assert "counters.A4qDecode.track_wavefronts" in wanted


def test_names_have_no_hyphen():
    """asv takes what follows a hyphen for the index of a parameter."""
    assert class_name(workloads()["decode-b8"], "dual_chunk-x") == "DualChunkXB8"
    assert class_name(workloads()["host"], "4bit") == "Impl4bit"
    assert not [name for name in benchmark_list(all_names()) if "-" in name]


def test_two_implementations_cannot_share_a_name():
    with pytest.raises(ValueError, match="asv would call 'a-b' and 'a_b' both AB"):
        class_names(workloads()["host"], ["a-b", "a_b"])


def test_a_track_hands_asv_samples_or_says_why_there_are_none():
    classes = benchmark_classes("benchmarks.host")
    cell, broken = host_cell(), failed_cell()
    unsupported = failed_cell("host/torch-reference-bf16/d256/kv1024", "unsupported", "no.")
    found = {one.id: to_json(one) for one in (cell, broken, unsupported)}
    bench = classes["TorchReferenceBf16"]()
    bench.setup(found, 128, 1024)
    assert bench.track_call(found, 128, 1024) == {"samples": list(cell.series["call"]), "number": 1}
    bench.setup(found, 64, 1024)
    with pytest.raises(RuntimeError, match="it broke"):
        bench.track_call(found, 64, 1024)
    with pytest.raises(NotImplementedError, match="no"):
        bench.setup(found, 256, 1024)


def test_unit_type_and_version_are_set_on_the_functions():
    """asv ignores them on a class."""
    for workload in workloads().values():
        for name, made in benchmark_classes(f"benchmarks.{workload.name.partition('-')[0]}").items():
            tracks = [member for key, member in inspect.getmembers(made) if key.startswith("track_")]
            assert tracks, name
            assert all(vars(track)["version"] == PROTOCOL and vars(track)["unit"] for track in tracks)


def test_the_sweep_may_take_longer_than_a_benchmark():
    assert host.setup_cache.timeout > 600
