"""What this machine has: cores, the architecture behind a torch device, and the driver."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from impls.arch import CPU, Arch, of_capability

if TYPE_CHECKING:
    import torch


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def arch_of(device: torch.device | str) -> Arch:
    """The architecture of a torch device. Raises ValueError for a GPU that is not in `impls.arch`."""
    import torch

    device = torch.device(device)
    if device.type == "cpu":
        return CPU
    if device.type != "cuda":
        raise ValueError(f"tensors must be on a CUDA device or the CPU, not on {device}.")
    capability = torch.cuda.get_device_capability(device)
    arch = of_capability(*capability)
    if arch is None:
        name = torch.cuda.get_device_name(device)
        raise ValueError(f"the GPU {name} has compute capability {capability}, which impls/arch.py does not list.")
    return arch


def require_arch(device: torch.device, arch: Arch) -> None:
    """Raises ValueError if tensors on `device` are on a GPU that is not `arch`, which their plan is for."""
    if device.type == "cuda" and arch_of(device) != arch:
        here = arch_of(device).name
        raise ValueError(f"the tensors are on a GPU of {here} and the plan is for {arch.name}; plan for {here}.")


def gpu_here() -> tuple[Arch | None, str | None]:
    """(the architecture of GPU 0, None), or (None, one sentence that says why no GPU can be used)."""
    import torch

    if torch.version.cuda is None:
        return None, "this build of torch has no CUDA support."
    try:
        if not torch.cuda.is_available():
            return None, "torch sees no CUDA GPU here."
        torch.zeros(1, device="cuda").item()
        return arch_of("cuda"), None
    except (RuntimeError, AssertionError, ValueError) as error:
        return None, f"the GPU cannot be used: {str(error).splitlines()[0]}"


def driver_version() -> str | None:
    """Version of the NVIDIA driver as its management library gives it, None where that library is not here."""
    try:
        management = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    text = ctypes.create_string_buffer(96)
    if management.nvmlInit_v2() or management.nvmlSystemGetDriverVersion(text, len(text)):
        return None
    return text.value.decode()
