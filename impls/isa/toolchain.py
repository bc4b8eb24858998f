"""The assemblers and the disassembler that are found here.

A ptxas is looked for in the `nvidia-cuda-nvcc` package, in Triton's wheel (which carries two) and on PATH. Two copies of
one release count once. The disassembler reads cubins of its own release and older ones, so the newest one found reads all.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from impls.errors import CommandError
from impls.isa.processes import Finished, Processes

PINNED_RELEASE = "13.0.88"
"""The CUDA release that kernels are compiled with: the one probed unless another is named."""
HOW_TO_GET_PTXAS = f"pip install nvidia-cuda-nvcc=={PINNED_RELEASE}"
HOW_TO_GET_DISASSEMBLER = "pip install nvidia-cuda-nvdisasm"


@dataclass(frozen=True)
class Assembler:
    """One ptxas."""

    path: Path
    release: str
    """CUDA release, e.g. "13.0.88"."""
    ptx_version: str
    """Newest PTX ISA version it takes, e.g. "9.0"; programs are written in it."""
    targets: tuple[str, ...]
    """Every sm_ target it lists, in the order of compute capability, each as plain, f and a."""
    fingerprint: str
    """SHA-256 over the executable's bytes and what it says of its version."""


@dataclass(frozen=True)
class Disassembler:
    """One nvdisasm, the program that cuobjdump -sass calls too."""

    path: Path
    release: str
    fingerprint: str


def assemblers(processes: Processes) -> list[Assembler]:
    """Each release found, once, the pinned one first, then newest first.

    One that does not work counts as absent while another does. Raises CommandError if none is left.
    """
    found: dict[str, Assembler] = {}
    broken = None
    for path in _candidates("ptxas", "ptxas-blackwell"):
        try:
            assembler = inspect_assembler(path, processes)
        except CommandError as error:
            broken = error
            continue
        found.setdefault(assembler.release, assembler)
    if not found:
        raise broken or CommandError(f"there is no ptxas here; install one with: {HOW_TO_GET_PTXAS}")
    return sorted(found.values(), key=lambda one: (one.release == PINNED_RELEASE, version_key(one.release)), reverse=True)


def choose(wanted: str | None, processes: Processes) -> Assembler:
    """The assembler that `wanted` names: a release ("13.0", "13.0.88"), the path of a ptxas, or None for the first found."""
    if wanted is not None and "/" in wanted:
        return inspect_assembler(Path(wanted), processes)
    found = assemblers(processes)
    for assembler in found:
        if wanted is None or assembler.release == wanted or assembler.release.startswith(f"{wanted}."):
            return assembler
    known = ", ".join(assembler.release for assembler in found)
    raise CommandError(f"there is no ptxas of release {wanted} here; found are {known}, or name one by its path.")


def inspect_assembler(path: Path, processes: Processes) -> Assembler:
    """Ask a ptxas for its release, its targets and its PTX version. Raises CommandError when it does not answer."""
    release, says = _release(path, processes)
    text = _ask(path, ["--help"], processes).output
    allowed = re.search(r"--gpu-name.*?Allowed values for this option:(.*?)Default value", text, re.DOTALL)
    targets = set(re.findall(r"'(sm_\d+[af]?)'", allowed[1])) if allowed else set()
    if not targets:
        raise CommandError(f"{path} --help lists no targets; is it a ptxas?")
    return Assembler(path, release, _ptx_version(path, processes), tuple(sorted(targets, key=target_key)), _hash(path, says))


def disassembler(processes: Processes) -> Disassembler | None:
    """The newest nvdisasm, None if there is none."""
    found = []
    for path in _candidates("nvdisasm"):
        release, says = _release(path, processes)
        found.append(Disassembler(path, release, _hash(path, says)))
    return max(found, key=lambda one: version_key(one.release), default=None)


def target_key(target: str) -> tuple[int, str]:
    """Sorts targets by compute capability, then plain, f, a: sm_90, sm_90a, sm_100, sm_100f, sm_100a."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if match is None:
        raise ValueError(f"{target!r} is not a compile target; one looks like sm_90a.")
    return int(match[1]), {"": "0", "f": "1", "a": "2"}[match[2]]


def version_key(release: str) -> tuple[int, ...]:
    """Sorts releases: "13.10.1" after "13.2.86"."""
    return tuple(int(part) for part in release.split("."))


def _candidates(*names: str) -> Iterator[Path]:
    """Where tools of these names are: NVIDIA's pip packages, Triton's wheel, PATH."""
    for package, folders in (("nvidia", "*/bin"), ("triton", "backends/nvidia/bin")):
        for name in names:
            for root in package_folders(package):
                yield from (path for path in sorted(root.glob(f"{folders}/{name}")) if path.is_file())
    for name in names:
        found = shutil.which(name)
        if found:
            yield Path(found)


def package_folders(package: str) -> list[Path]:
    """Where a package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    return [Path(place) for place in spec.submodule_search_locations or ()] if spec else []


def _ask(path: Path, arguments: list[str], processes: Processes) -> Finished:
    try:
        answer = processes.run([path, *arguments])
    except OSError as error:
        raise CommandError(f"cannot run {path}: {error.strerror or error}.") from error
    if answer.status is None:
        raise CommandError(f"{path} {arguments[0]} gave no answer within {processes.time_limit:.0f} s.")
    return answer


def _release(path: Path, processes: Processes) -> tuple[str, str]:
    """(release, everything the tool says of its version)."""
    answer = _ask(path, ["--version"], processes)
    match = re.search(r"\bV(\d+(?:\.\d+)+)", answer.output)
    if match is None:
        raise CommandError(f"{path} --version names no CUDA release; is it one of NVIDIA's tools?")
    return match[1], answer.output


def _ptx_version(path: Path, processes: Processes) -> str:
    """Newest PTX version. There is no option that tells it on every release, so a module from the future is refused."""
    with tempfile.TemporaryDirectory(prefix="nvfp4bench-isa-") as folder:
        source = Path(folder) / "version.ptx"
        source.write_text(".version 99.9\n.target sm_90\n.address_size 64\n")
        answer = _ask(path, ["-arch=sm_90", str(source), "-o", str(source.with_suffix(".cubin"))], processes)
    match = re.search(r"current version is '(\d+\.\d+)'", answer.errors)
    if match is None:
        raise CommandError(f"{path} does not say which PTX version it takes; is it a ptxas?")
    return match[1]


def _hash(path: Path, says: str) -> str:
    return hashlib.sha256(path.read_bytes() + says.encode()).hexdigest()
