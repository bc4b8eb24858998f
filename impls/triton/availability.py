"""What the installed Triton can do, found out without importing it."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

from impls.arch import Arch

OLDEST = (3, 6)
SINCE = {"sm_110a": (3, 7)}
"""Architectures that the oldest supported Triton cannot compile for: the ptxas of 3.6 does not know their name."""


def why_not(arch: Arch) -> str | None:
    """None if this process can run Triton kernels for `arch` (on a GPU: compile them), else one sentence."""
    version = installed_version()
    if version is None:
        return "triton is not installed; install triton 3.6 or newer (there are builds for Linux only)."
    if version < OLDEST:
        return f"triton {_dotted(version)} is too old; install triton {_dotted(OLDEST)} or newer."
    if arch.is_gpu and version < SINCE.get(arch.name, OLDEST):
        return f"triton {_dotted(version)} cannot compile for {arch.name}; install triton {_dotted(SINCE[arch.name])} or newer."
    if arch.is_gpu and interpreting():
        return f"this process interprets Triton; to compile for {arch.name}, use a child process without TRITON_INTERPRET."
    if not arch.is_gpu and not interpreting():
        return "on a CPU Triton runs only interpreted; use a child process with TRITON_INTERPRET=1 in its environment."
    return None


def interpreting() -> bool:
    """Whether this process interprets Triton. That is settled once: by TRITON_INTERPRET when triton is imported."""
    if "triton" in sys.modules:
        import triton

        return not isinstance(triton.language.cdiv, triton.JITFunction)
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def installed_version() -> tuple[int, int] | None:
    """(major, minor) of the triton that `import triton` would find, None if there is none."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    stated = re.search(r"^__version__ = ['\"](\d+)\.(\d+)", Path(spec.origin).read_text(), re.MULTILINE)
    return (int(stated[1]), int(stated[2])) if stated else None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
