"""The installed FlashInfer: whether it can be used, and how it is made to compile a kernel for an architecture."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

    from impls.arch import Arch

OLDEST = (0, 7)
"""Earlier releases never split the context of an NVFP4 cache."""
INSTALL = "pip install flashinfer-python==0.7.0"
ARCH_LIST = "FLASHINFER_CUDA_ARCH_LIST"
TOOLKIT = "/usr/local/cuda/bin"
SCRIPTS = str(Path(sys.executable).parent)
"""Where pip puts programs of this environment, which need not be on PATH."""
COMPILERS = "8"
"""nvcc processes for one module of ten files: preparing processes compile several modules side by side."""


def why_not() -> str | None:
    """None if FlashInfer is installed and can compile, else one sentence. Imports nothing of it."""
    try:
        installed = version("flashinfer-python")
    except PackageNotFoundError:
        return f"flashinfer is not installed; {INSTALL}."
    if tuple(map(int, re.findall(r"\d+", installed)[:2])) < OLDEST:
        return f"flashinfer {installed} is too old; {INSTALL}."
    if find_spec("tvm_ffi") is None:
        return "flashinfer lacks apache-tvm-ffi, which it loads its kernels with; pip install 'apache-tvm-ffi<0.2'."
    if _tool("nvcc", TOOLKIT) is None and not os.environ.get("CUDA_HOME", os.environ.get("CUDA_PATH")):
        return "flashinfer compiles its kernels, and there is no nvcc on PATH and no CUDA_HOME; install a CUDA toolkit."
    if _tool("ninja", SCRIPTS) is None:
        return "flashinfer compiles its kernels with ninja, which is not installed; pip install ninja."
    return None


def compile_prefill(arch: Arch, backend: Literal["fa2", "fa3"], q: torch.dtype, cache: torch.dtype, head_dim: int) -> None:
    """Compile the module of batch prefill that a wrapper of these dtypes loads, unless it lies in FlashInfer's cache.

    Needs no GPU. Processes that ask for the same module wait for each other.
    """
    _target(arch)
    import torch
    from filelock import FileLock
    from flashinfer.jit.env import FLASHINFER_JIT_DIR
    from flashinfer.prefill import get_batch_prefill_module
    from flashinfer.utils import PosEncodingMode

    FLASHINFER_JIT_DIR.mkdir(parents=True, exist_ok=True)
    module = "-".join((backend, str(q), str(cache), str(head_dim)))
    # FlashInfer's own lock does not cover the writing of sources, which another process may be compiling
    with FileLock(FLASHINFER_JIT_DIR / f"nvfp4bench-{module}.lock"):
        # window, soft cap and sums of q . k in float16 are compiled in, and are off
        get_batch_prefill_module(
            backend, q, cache, q, torch.int32, head_dim, head_dim, PosEncodingMode.NONE.value, False, False, False
        )


def prefill_wrapper(workspace: torch.Tensor, backend: Literal["fa2", "fa3"]) -> Any:
    """A wrapper over pages in HND order that launches no other backend."""
    import flashinfer

    return flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND", backend=backend)


def _target(arch: Arch) -> None:
    """Compile for `arch`. FlashInfer would ask the driver, once for a process, and so start a CUDA context in it.

    Raises ValueError where this process compiles for others already.
    """
    number = "{}.{}".format(*arch.compute_capability)
    if shutil.which("ninja") is None:  # FlashInfer looks on PATH alone
        os.environ["PATH"] = os.pathsep.join((os.environ["PATH"], SCRIPTS))
    os.environ.setdefault("MAX_JOBS", COMPILERS)
    targets = os.environ.setdefault(ARCH_LIST, number)
    if number not in (target.rstrip("af") for target in targets.split()):
        raise ValueError(f"this process compiles FlashInfer's kernels for {targets} ({ARCH_LIST}), and not for {arch.name}.")


def _tool(name: str, folder: str) -> str | None:
    """The program called `name` on PATH, or in `folder`."""
    return shutil.which(name) or shutil.which(name, path=folder)
