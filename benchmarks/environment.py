"""What a run runs on: the GPU or CPU, the driver, and the versions of what compiles and executes the kernels.

A GPU is looked at in a child process, so that the caller never holds a CUDA context. Where a GPU is there and torch cannot
use it, `environment` and `machine_name` raise: the CPU is measured when it is asked for, never because a GPU did not work.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.records import Environment
from impls.arch import Arch, find
from impls.errors import CommandError
from impls.host import driver_version
from impls.worker import Worker

PROBE_SECONDS = 120
"""Longest time the first CUDA context may take: importing torch from a cold disk is most of it."""
NVRTC_PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")


@dataclass(frozen=True)
class GpuState:
    """What is known of GPU 0. `arch` is there exactly when torch can use it, `why_not` exactly when it cannot."""

    present: bool
    """The driver lists at least one GPU, whether or not torch can use it. CUDA_VISIBLE_DEVICES counts."""
    arch: Arch | None = None
    why_not: str | None = None
    """One sentence."""
    name: str | None = None
    """Product name as the driver gives it, e.g. "NVIDIA H200"."""
    driver: str | None = None
    """Version of the driver, e.g. "580.95.05"."""
    cuda: str | None = None
    """Version of CUDA that torch was built with."""


@cache
def gpu() -> GpuState:
    """The state of GPU 0, found once per process."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return GpuState(present=False, why_not="there is no NVIDIA driver here (libcuda.so.1 does not load).")
    with Worker("benchmarks.environment:probe") as child:
        reply = child.call({}, timeout=PROBE_SECONDS)
    if reply.status != "ok":
        return GpuState(present=True, why_not=f"the GPU cannot be used: {reply.sentence}")
    found: dict[str, Any] = reply.value
    arch = found.pop("arch")
    return GpuState(**found, arch=arch and find(arch))


def probe(request: dict[str, Any]) -> dict[str, Any]:
    """The fields of `GpuState` as JSON data. Runs in a child of `gpu`, because it creates a CUDA context."""
    name = _gpu_name()
    if name is None:
        return {"present": False, "arch": None, "why_not": "the NVIDIA driver lists no GPU here."}
    state = {"present": True, "arch": None, "name": name, "driver": driver_version()}
    if importlib.util.find_spec("torch") is None:
        return {**state, "why_not": "the GPU cannot be used: torch is not installed."}
    import torch

    from impls.host import gpu_here

    arch, why_not = gpu_here()
    return {**state, "arch": arch and arch.name, "why_not": why_not, "cuda": torch.version.cuda}


def environment(*, cpu: bool = False) -> Environment:
    """What a run on the GPU here has, or on the CPU where there is no GPU or `cpu` asks for it.

    Raises CommandError where a GPU is there but cannot be used, and where torch or numpy is missing.
    """
    state = _device_state(cpu)
    return Environment(
        device=state.name if state and state.name else cpu_model(),
        arch=state.arch.name if state and state.arch else "cpu",
        platform=f"{sys.platform}-{_machine()}",
        python=platform.python_version(),
        numpy=_required("numpy"),
        torch=_required("torch"),
        triton=package_version("triton"),
        driver=state.driver if state else None,
        cuda=state.cuda if state else None,
        ptxas=_ptxas_version_for(state.arch if state else None),
        nvrtc=next(filter(None, map(package_version, NVRTC_PACKAGES)), None),
    )


def without_device(device: str) -> Environment:
    """What compiles kernels here, for a run that is of no machine; `device` says so.

    Raises CommandError where torch or numpy is missing.
    """
    found = compilers()
    ptxas = [f"{found[name]} {told}" for name, told in (("triton_ptxas", "up to sm_90a"), ("triton_ptxas_sm_100", "beyond"))]
    return Environment(
        device=device,
        arch="cpu",
        platform="any",
        python=platform.python_version(),
        numpy=_required("numpy"),
        torch=_required("torch"),
        triton=found["triton"],
        ptxas=", ".join(ptxas) if found["triton"] else None,
        nvrtc=found["nvrtc"],
    )


def compilers() -> dict[str, str | None]:
    """Releases of what compiles kernels here, None for what is not here."""
    from impls.cuda import nvrtc

    try:
        nvrtc_release: str | None = nvrtc.find().release
    except nvrtc.NoCompiler:
        nvrtc_release = None
    before, from_sm_100 = (triton_ptxas(blackwell=blackwell) for blackwell in (False, True))
    return {
        "nvrtc": nvrtc_release,
        "triton": package_version("triton"),
        "triton_ptxas": tool_version(before) if before else None,
        "triton_ptxas_sm_100": tool_version(from_sm_100) if from_sm_100 else None,
    }


def machine_name(*, cpu: bool = False) -> str:
    """Folder name below results/: "nvidia-h200", "cpu-x86_64". Made of the model alone, so that updates keep its history.

    Raises CommandError as `environment` does.
    """
    state = _device_state(cpu)
    if state is None or state.name is None:
        return f"cpu-{_machine()}"
    return re.sub(r"[^a-z0-9.]+", "-", state.name.lower()).strip("-.")


def package_version(name: str) -> str | None:
    """Version of an installed package, without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def cpu_model() -> str:
    """Product name of the CPU, or its instruction set where the system does not tell (most Arm machines)."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if model:
            return model[1].strip()
    return platform.processor() or _machine()


@cache
def triton_ptxas(*, blackwell: bool = False) -> Path | None:
    """The ptxas that Triton calls, found without importing it; it carries another one for compute capability 10.0 and up."""
    chosen = os.environ.get("TRITON_PTXAS_BLACKWELL_PATH" if blackwell else "TRITON_PTXAS_PATH")
    if chosen:
        return Path(chosen)
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "backends/nvidia/bin" / ("ptxas-blackwell" if blackwell else "ptxas")
    return path if path.is_file() else None


@cache
def tool_version(path: Path) -> str | None:
    """What a CUDA tool says its version is ("12.9.86"); None if it does not run or does not say."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bV(\d+(?:\.\d+)+)", said)
    return found[1] if found else None


def _device_state(cpu: bool) -> GpuState | None:
    """The usable GPU, None where the CPU is to be measured."""
    if cpu:
        return None
    state = gpu()
    if state.arch is not None:
        return state
    if state.present:
        raise CommandError(f"a GPU is here, but {state.why_not} Repair that, or measure the CPU with --cpu.")
    return None


def _ptxas_version_for(arch: Arch | None) -> str | None:
    path = triton_ptxas(blackwell=arch is not None and arch.compute_capability >= (10, 0))
    return tool_version(path) if path else None


def _required(package: str) -> str:
    found = package_version(package)
    if found is None:
        raise CommandError(
            f"{package} is not installed for {sys.executable}; install it there, or let `make bench` set up .venv."
        )
    return found


def _machine() -> str:
    """Instruction set under one name on every system: macOS says arm64 where Linux says aarch64."""
    name = platform.machine().lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)


def _gpu_name() -> str | None:
    """Name of GPU 0 as the CUDA driver gives it, None where it lists none."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0) or driver.cuDeviceGetName(name, len(name), device):
        return None
    return name.value.decode()
