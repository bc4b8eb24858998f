"""The list of implementations, and how one from outside joins it."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Container
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path
from types import ModuleType

from impls.arch import Arch, find
from impls.contract import Implementation, Plan, Problem, Unsupported
from impls.weights.registry import projections

ENTRY_POINT_GROUP = "nvfp4_attention.implementations"
_WORD = "[A-Za-z][A-Za-z0-9_.+-]{0,63}"
NAME = re.compile(f"{_WORD}(:{_WORD})?")
"""What an implementation may be called: names are parts of cell ids, options and asv's class names. Behind a colon stands the
implementation inside another: dual-chunk:triton."""
ALLOWED = "a letter, then at most 63 letters, digits and any of _ . + -, and perhaps a colon and another such word"

BUILT_IN = {
    "torch-reference-bf16": "impls.torch_reference:TorchReference",
    "triton": "impls.triton:TritonAttention",
    "triton-native": "impls.triton_native:TritonNativeAttention",
    "a4q": "impls.a4q:A4Q",
    "a4q-q16": "impls.a4q:A4QQ16",
    "smem-unpack": "impls.smem_unpack:SmemUnpack",
    "dual-chunk:triton": "impls.dual_chunk:DualChunkTriton",
    "hybrid-bf16": "impls.hybrid:HybridBf16",
    "hybrid-fp8": "impls.hybrid:HybridFp8",
    "hybrid-bf16:sdpa": "impls.hybrid:HybridSdpa",
    "sdpa-flash": "impls.peers:SdpaFlash",
    "sdpa-cudnn": "impls.peers:SdpaCudnn",
    "sdpa-efficient": "impls.peers:SdpaEfficient",
    "flashinfer-bf16": "impls.peers:FlashInferBf16",
    "flashinfer-fa3-bf16": "impls.peers:FlashInferFa3",
    "flashinfer-fp8": "impls.peers:FlashInferFp8",
    "flashinfer-nvfp4-paged": "impls.peers:FlashInferNvfp4",
}

STAND_INS = {"dual-chunk": "impls.dual_chunk:DualChunk"}
"""Names for the best of several, which are listed by names of their own. They are taken wherever a name is given; what runs all
there are leaves them out, or it would run one twice."""


def implementations() -> dict[str, Implementation]:
    """{name: implementation}: the built-in ones, stand-ins, then those of installed packages (entry points).

    An installed one that cannot be used is listed all the same, and its `why_not` says what went wrong.
    Raises ValueError where an installed one has a name that is taken, or it cannot be found out what is installed.
    """
    found = built_in() | {name: _load(place) for name, place in STAND_INS.items()}
    for entry in _installed():
        if reason := _misnamed(entry):
            found[entry.name] = _Unloadable(entry.name, reason)
            continue
        try:
            made = _load(entry.value)
            if made.name != entry.name:
                raise ValueError(
                    f"{entry.value} calls itself {made.name!r}, and its entry point {entry.name!r}; make them one."
                )
        except ValueError as error:
            made = _Unloadable(entry.name, str(error))
        found[entry.name] = made
    return found


def built_in() -> dict[str, Implementation]:
    """{name: implementation} of this tree, stand-ins apart."""
    return {name: _load(place) for name, place in BUILT_IN.items()}


def names() -> list[str]:
    """The names of `implementations()` but for stand-ins and `misnamed`, without importing what an installed package brings.

    Raises ValueError as `implementations` does.
    """
    return [*BUILT_IN, *(entry.name for entry in _installed() if not _misnamed(entry))]


def misnamed() -> list[str]:
    """A sentence for each installed one that nothing can run, because of its name."""
    return list(filter(None, map(_misnamed, _installed())))


def implementation(name: str) -> Implementation:
    """The implementation called `name`, or the one at `path/to/file.py:Class`.

    `outer:inner` is outer with inner inside, also where that pair is not listed. Raises ValueError if there is none.
    """
    found = implementations()
    if isinstance(name, str) and ".py:" in name:
        outer = name.partition(":")[0]
        if outer in found:
            raise ValueError(
                f"{name} has a file inside {outer}, which takes registered implementations only; install it as one."
            )
        outside = _load(name)
        if _is_taken(outside.name, found):
            raise ValueError(f"the implementation at {name} calls itself {outside.name!r}, which is taken; rename it.")
        return outside
    if isinstance(name, str) and name not in found:
        outer, _, inner = name.partition(":")
        if inner and outer in found:
            return found[outer].using(inner)
    if not isinstance(name, str) or name not in found:
        raise ValueError(
            f"unknown implementation {name!r}; there are {', '.join(found)}, or name one as path/to/file.py:Class."
        )
    chosen = found[name]
    if isinstance(chosen, _Unloadable) and not NAME.fullmatch(name):
        raise ValueError(chosen.sentence)
    return chosen


def why_not(name: str, problem: Problem, arch: Arch | str) -> str | None:
    """None if implementation `name` can do `problem` on `arch`, else one sentence. Raises TypeError where it gives another."""
    reason = implementation(name).why_not(problem, arch if isinstance(arch, Arch) else find(arch))
    return str(Unsupported(reason)) if reason is not None else None


class _Unloadable(Implementation):
    """Stands for an installed implementation whose module does not import."""

    summary = "installed, but cannot be loaded"

    def __init__(self, name: str, sentence: str) -> None:
        self.name = name
        self.sentence = sentence

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return self.sentence

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        raise Unsupported(self.sentence)


def _installed() -> list[EntryPoint]:
    """What installed packages bring. Raises ValueError where that cannot be read, or a name is taken."""
    try:
        found = list(entry_points(group=ENTRY_POINT_GROUP))
    except Exception as error:  # a malformed file is whatever its parser stumbles over
        raise ValueError(f"the entry points of {_damaged()} cannot be read; reinstall or remove it.") from error
    listed = {*BUILT_IN, *STAND_INS}
    taken = listed.copy()
    for entry in found:
        if entry.name in taken or _is_taken(entry.name, listed):
            raise ValueError(
                f"the installed implementation {entry.value} is called {entry.name!r}, which is taken; uninstall it."
            )
        taken.add(entry.name)
    return found


def _damaged() -> str:
    """The distribution whose entry points cannot be read."""
    for one in distributions():
        try:
            _ = one.entry_points
        except Exception:  # as above
            return f"the installed package {one.name}"
    return "an installed package"


def _misnamed(entry: EntryPoint) -> str | None:
    if NAME.fullmatch(entry.name):
        return None
    return f"the installed implementation {entry.value} is called {entry.name!r:.80}, and a name is {ALLOWED}."


def _is_taken(name: str, listed: Container[str]) -> bool:
    """Whether `name` is one of `listed` or a projection, of a pair with one of `listed` outside, or of a layer."""
    return name.partition(":")[0] in listed or name.rpartition("+")[2] in projections()


def _load(place: str) -> Implementation:
    """The implementation at "package.module:Class" or "path/to/file.py:Class"."""
    source, _, attribute = place.rpartition(":")
    try:
        module = _import_file(Path(source)) if source.endswith(".py") else importlib.import_module(source)
        if not hasattr(module, attribute):
            raise AttributeError(f"there is no {attribute} in it")
        made = getattr(module, attribute)()
    except (Exception, SystemExit) as error:  # whatever a module of somebody else's does when it is imported
        what = (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")
        raise ValueError(f"cannot load implementation {place}: {type(error).__name__}: {what}.") from error
    if not isinstance(made, Implementation):
        raise ValueError(f"cannot load implementation {place}: {attribute} is not an impls.contract.Implementation.")
    if not (hasattr(made, "name") and hasattr(made, "summary")):
        raise ValueError(f"cannot load implementation {place}: {attribute} has no name or no summary.")
    if not (isinstance(made.name, str) and NAME.fullmatch(made.name)):
        raise ValueError(f"cannot load implementation {place}: it calls itself {made.name!r:.80}, and a name is {ALLOWED}.")
    return made


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]  # files of one name in two folders are two modules
    spec = importlib.util.spec_from_file_location(f"nvfp4bench_external_{path.stem}_{place}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up the annotations of their fields
    spec.loader.exec_module(module)
    return module
