"""NVRTC, NVIDIA's run-time compiler, as the Python packages `nvidia-cuda-nvrtc` and `nvidia-cuda-runtime` (headers) bring it.

It is called through ctypes, like the driver in `impls.cuda.driver`. `cuda-bindings` wraps the same library, but it has to fit
the Python as well as the CUDA release, and is not where torch, Triton and NumPy are all there is; the library is, since torch's
CUDA builds bring it. So this is the one way, on machines with and without a GPU.

Reference: NVRTC 13.0 documentation, "User Interface".
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from impls.arch import Arch
from impls.isa.toolchain import PINNED_RELEASE, package_folders, version_key

OLDEST = 13
"""Major release from which on one compilation for an `a` target gives PTX and cubin for all of `impls.arch`."""
PINNED_HEADERS = "13.0.96"
HOW_TO_GET_NVRTC = f"pip install nvidia-cuda-nvrtc=={PINNED_RELEASE} nvidia-cuda-runtime=={PINNED_HEADERS}"
_PROBE = 'extern "C" __global__ void probe() {}'


class NoCompiler(RuntimeError):
    """NVRTC is not here, is incomplete, or does not know a target; the message is one sentence."""


@dataclass(frozen=True)
class Outcome:
    """What came of one compilation. Refused source has a log alone; a refusal by the assembler inside NVRTC too."""

    accepted: bool
    log: str
    """Errors and warnings, empty where there are none."""
    ptx: str = ""
    cubin: bytes = b""
    entry: str = ""
    """Name of the kernel in PTX and cubin."""


@dataclass(frozen=True)
class Nvrtc:
    """One NVRTC with its headers."""

    path: Path
    headers: Path
    """Folder with cuda_fp16.h and the like."""
    release: str
    """CUDA release, e.g. "13.0.88"."""
    identity: str
    """What it writes of itself into PTX: release and build."""
    targets: frozenset[int]
    """Compute capabilities it compiles for, 90 for 9.0."""

    def why_not(self, arch: Arch) -> str | None:
        """None if it compiles for `arch`, else one sentence."""
        if not arch.is_gpu:
            return f"{arch.name} is no GPU, and CUDA kernels are compiled for GPUs alone."
        major, minor = arch.compute_capability
        if 10 * major + minor in self.targets:
            return None
        return f"NVRTC {self.release} does not know {arch.name}; install the one of CUDA 13.0 with: {HOW_TO_GET_NVRTC}"

    def compile(
        self, text: str, name: str, headers: Mapping[str, str], options: Sequence[str], kernel: str, target: str
    ) -> Outcome:
        """Compile `text`, called `name` in messages, with the files in `headers` {name in #include: text}.

        `kernel` is the C++ expression of the one that is asked for, e.g. "attend<128>"; `target` is like sm_90a, or like
        compute_90a for PTX alone.
        """
        return _compile(_load(self.path), text, name, headers, (*options, f"--gpu-architecture={target}"), kernel)


@cache
def find() -> Nvrtc:
    """The NVRTC that is here, the pinned release before newer ones. Raises NoCompiler."""
    best = _best([path for folder in package_folders("nvidia") for path in sorted(folder.glob("*/lib/libnvrtc.so.*"))])
    if best is None:
        raise NoCompiler(f"there is no NVRTC of CUDA {OLDEST} here; install it with: {HOW_TO_GET_NVRTC}")
    if not (best.headers / "cuda_fp16.h").is_file():
        raise NoCompiler(f"CUDA's headers are not beside NVRTC, in {best.headers}; install them with: {HOW_TO_GET_NVRTC}")
    return best


def why_not(arch: Arch) -> str | None:
    """None if CUDA kernels can be compiled here for `arch`, else one sentence."""
    try:
        return find().why_not(arch)
    except NoCompiler as reason:
        return str(reason)


def _best(places: Sequence[Path]) -> Nvrtc | None:
    """Of the libraries at `places` the one of the pinned release, else the newest; None if none is usable."""
    usable = [one for one in map(_inspect, places) if one is not None]
    return max(usable, key=lambda one: (one.release == PINNED_RELEASE, version_key(one.release)), default=None)


def _inspect(path: Path) -> Nvrtc | None:
    """The NVRTC at `path`, None if it is older than `OLDEST` or does not work."""
    release = path.suffix.removeprefix(".")
    if not release.isdigit() or int(release) < OLDEST:
        return None
    try:
        library = _load(path)
        count = ctypes.c_int()
        _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        targets = (ctypes.c_int * count.value)()
        _check(library, library.nvrtcGetSupportedArchs(targets))
        probed = _compile(library, _PROBE, "/probe.cu", {}, (), "probe")
    except (OSError, AttributeError, RuntimeError):  # no library, one that lacks a function, or one that fails
        return None
    identity = re.search(r"Build ID: \S+.*?\bV(\d+(?:\.\d+)+)", probed.ptx, re.DOTALL)
    if identity is None:
        return None
    return Nvrtc(path, path.parent.parent / "include", identity[1], identity[0], frozenset(targets))


@cache
def _load(path: Path) -> ctypes.CDLL:
    """The library at `path`. It opens its companion by name alone, which succeeds once that is in memory."""
    for companion in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(companion))
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _compile(
    library: ctypes.CDLL, text: str, name: str, headers: Mapping[str, str], options: Sequence[str], kernel: str
) -> Outcome:
    program = ctypes.c_void_p()
    contents, names = _strings(list(headers.values())), _strings(list(headers))
    _check(
        library,
        library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), len(headers), contents, names),
    )
    try:
        _check(library, library.nvrtcAddNameExpression(program, kernel.encode()))
        status = library.nvrtcCompileProgram(program, len(options), _strings(options))
        log = _read(library, program, "nvrtcGetProgramLog").decode(errors="replace").strip("\0\n ")
        if status:
            return Outcome(False, log or library.nvrtcGetErrorString(status).decode())
        entry = ctypes.c_char_p()
        _check(library, library.nvrtcGetLoweredName(program, kernel.encode(), ctypes.byref(entry)))
        return Outcome(
            True,
            log,
            _read(library, program, "nvrtcGetPTX").decode(),
            _read(library, program, "nvrtcGetCUBIN", terminated=False),
            (entry.value or b"").decode(),
        )
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(values: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(values))(*(value.encode() for value in values))


def _read(library: ctypes.CDLL, program: ctypes.c_void_p, getter: str, *, terminated: bool = True) -> bytes:
    """What `getter` gives, whose size `getter`Size gives; without the zero byte of what is text."""
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"{getter}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, getter)(program, buffer))
    return buffer.raw[:-1] if terminated else buffer.raw


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC failed with {library.nvrtcGetErrorString(status).decode()} ({status}).")
