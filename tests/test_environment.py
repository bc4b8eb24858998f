from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import environment as module
from benchmarks.environment import GpuState, environment, gpu, machine_name, tool_version, triton_ptxas
from benchmarks.records import Run
from impls.arch import ARCHES
from impls.errors import CommandError
from impls.worker import Reply, Worker

H200 = GpuState(present=True, arch=ARCHES["sm_90a"], name="NVIDIA H200", driver="580.95.05", cuda="13.0")
BROKEN = GpuState(present=True, why_not="this build of torch has no CUDA support.", name="NVIDIA H200", driver="580.95.05")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test finds out anew what is here."""
    for cached in (module.gpu, module.tool_version, module.triton_ptxas):
        cached.cache_clear()
    yield
    for cached in (module.gpu, module.tool_version, module.triton_ptxas):
        cached.cache_clear()


def with_gpu(monkeypatch: pytest.MonkeyPatch, state: GpuState) -> None:
    monkeypatch.setattr(module, "gpu", lambda: state)


def with_driver(monkeypatch: pytest.MonkeyPatch, reply: Reply) -> None:
    """A driver whose library loads, and a child that answers `reply`."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(Worker, "call", lambda self, request, *, timeout: reply)


def test_torch_and_triton_are_not_imported_where_there_is_no_gpu() -> None:
    code = (
        "import sys\nfrom benchmarks.environment import environment, gpu\nenvironment(cpu=True)\n"
        "assert gpu().present or not {'torch', 'triton'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(module.__file__).parent.parent)


def test_the_cpu_is_described_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, GpuState(present=False, why_not="there is none."))
    found = environment()
    assert (found.arch, found.driver, found.cuda) == ("cpu", None, None)
    assert found.device == module.cpu_model() and found.device
    assert machine_name() in ("cpu-x86_64", "cpu-aarch64")


def test_the_gpu_is_described_where_it_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, H200)
    found = environment()
    assert (found.device, found.arch, found.driver, found.cuda) == ("NVIDIA H200", "sm_90a", "580.95.05", "13.0")
    assert machine_name() == "nvidia-h200"


def test_asking_for_the_cpu_leaves_the_gpu_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, H200)
    assert environment(cpu=True).arch == "cpu"
    assert environment(cpu=True).driver is None
    assert machine_name(cpu=True).startswith("cpu-")


def test_a_gpu_that_cannot_be_used_never_becomes_a_cpu_run_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, BROKEN)
    for ask in (environment, machine_name):
        with pytest.raises(CommandError, match=r"this build of torch has no CUDA support\..*--cpu\.$"):
            ask()
    assert machine_name(cpu=True).startswith("cpu-")


@pytest.mark.parametrize(
    ("product", "machine"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "nvidia-h100-80gb-hbm3-mig-1g.10gb"),
        ("NVIDIA RTX PRO 6000 Blackwell (Server) ", "nvidia-rtx-pro-6000-blackwell-server"),
        ("../../etc", "etc"),
    ],
)
def test_a_product_name_becomes_a_folder_name(monkeypatch: pytest.MonkeyPatch, product: str, machine: str) -> None:
    with_gpu(monkeypatch, GpuState(present=True, arch=ARCHES["sm_90a"], name=product))
    assert machine_name() == machine
    Run(
        command="x", commit="unknown", source="x", machine=machine, started="2026-11-29T12:00:00Z", environment=environment()
    )  # the record takes it


@pytest.mark.parametrize(("said", "machine"), [("arm64", "cpu-aarch64"), ("aarch64", "cpu-aarch64"), ("AMD64", "cpu-x86_64")])
def test_one_instruction_set_has_one_name(monkeypatch: pytest.MonkeyPatch, said: str, machine: str) -> None:
    monkeypatch.setattr(module.platform, "machine", lambda: said)
    assert machine_name(cpu=True) == machine


def test_no_driver_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    state = gpu()
    assert not state.present and state.arch is None and "there is no NVIDIA driver here" in str(state.why_not)


def test_a_gpu_that_kills_its_process_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(monkeypatch, Reply("crashed", sentence="the process died by SIGSEGV."))
    assert gpu() == GpuState(present=True, why_not="the GPU cannot be used: the process died by SIGSEGV.")


def test_what_the_child_found_is_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"present": True, "arch": "sm_90a", "why_not": None, "name": "NVIDIA H200", "driver": "580.95.05", "cuda": "13.0"}
    with_driver(monkeypatch, Reply("ok", value))
    assert gpu() == H200


def test_the_child_says_when_the_driver_lists_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_gpu_name", lambda: None)
    assert module.probe({}) == {"present": False, "arch": None, "why_not": "the NVIDIA driver lists no GPU here."}


def test_the_child_says_when_torch_cannot_use_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_gpu_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(module, "driver_version", lambda: "580.95.05")
    monkeypatch.setattr("impls.host.gpu_here", lambda: (None, "torch sees no CUDA GPU here."))
    found = module.probe({})
    assert (found["present"], found["arch"], found["why_not"]) == (True, None, "torch sees no CUDA GPU here.")


def test_torch_that_is_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "package_version", lambda name: None if name == "torch" else "1.0")
    with pytest.raises(CommandError, match=r"^torch is not installed for .*make bench"):
        environment(cpu=True)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("blackwell", [False, True])
def test_tritons_ptxas_is_found_and_says_its_version(blackwell: bool) -> None:
    path = triton_ptxas(blackwell=blackwell)
    assert path is not None
    parts = str(tool_version(path)).split(".")
    assert len(parts) == 3 and all(part.isdigit() for part in parts)


def test_a_ptxas_named_for_triton_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/some/ptxas")
    assert triton_ptxas() == Path("/some/ptxas")


@pytest.mark.parametrize("says", ["echo nonsense", "exit 1", "kill -9 $$"])
def test_a_tool_that_does_not_say_its_version_has_none(tmp_path: Path, says: str) -> None:
    tool = tmp_path / "ptxas"
    tool.write_text(f"#!/bin/sh\n{says}\n")
    tool.chmod(0o755)
    assert tool_version(tool) is None


def test_a_tool_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert tool_version(tmp_path / "missing") is None
