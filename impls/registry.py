"""The list of implementations, and how one from outside joins it."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from impls.arch import Arch, find
from impls.contract import Implementation, Plan, Problem, Unsupported

ENTRY_POINT_GROUP = "nvfp4_attention.implementations"
_WORD = "[A-Za-z][A-Za-z0-9_.+-]{0,63}"
NAME = re.compile(f"{_WORD}(:{_WORD})?")
"""What an implementation may be called: names are parts of cell ids, options and asv's class names. Behind a colon stands the
implementation inside another: dual-chunk:triton."""

BUILT_IN = {
    "torch-reference-bf16": "impls.torch_reference:TorchReference",
    "triton": "impls.triton:TritonAttention",
    "triton-native": "impls.triton_native:TritonNativeAttention",
    "a4q": "impls.a4q:A4Q",
    "a4q-q16": "impls.a4q:A4QQ16",
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
    Raises ValueError when two share a name.
    """
    found = built_in() | {name: _load(place) for name, place in STAND_INS.items()}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name in found:
            raise ValueError(f"two implementations are called {entry.name!r}; the second comes from {entry.value}.")
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
    """The names of `implementations()` but for stand-ins, without importing what an installed package brings."""
    return [*BUILT_IN, *(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))]


def implementation(name: str) -> Implementation:
    """The implementation called `name`, or the one at `path/to/file.py:Class`.

    `outer:inner` is outer with inner inside, also where that pair is not listed. Raises ValueError if there is none.
    """
    found = implementations()
    if isinstance(name, str) and ".py:" in name:
        outside = _load(name)
        if outside.name in found:
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
    return found[name]


def why_not(name: str, problem: Problem, arch: Arch | str) -> str | None:
    """None if implementation `name` can do `problem` on `arch`, else one sentence."""
    return implementation(name).why_not(problem, arch if isinstance(arch, Arch) else find(arch))


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


def _load(place: str) -> Implementation:
    """The implementation at "package.module:Class" or "path/to/file.py:Class"."""
    source, _, attribute = place.rpartition(":")
    try:
        module = _import_file(Path(source)) if source.endswith(".py") else importlib.import_module(source)
        made = getattr(module, attribute)()
    except (Exception, SystemExit) as error:  # whatever a module of somebody else's does when it is imported
        what = (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")
        raise ValueError(f"cannot load implementation {place}: {type(error).__name__}: {what}.") from error
    if not isinstance(made, Implementation):
        raise ValueError(f"cannot load implementation {place}: {attribute} is not an impls.contract.Implementation.")
    if not (hasattr(made, "name") and hasattr(made, "summary")):
        raise ValueError(f"cannot load implementation {place}: {attribute} has no name or no summary.")
    if not (isinstance(made.name, str) and NAME.fullmatch(made.name)):
        allowed = "a letter, then at most 63 letters, digits and any of _ . + -, and perhaps a colon and another such word"
        raise ValueError(f"cannot load implementation {place}: it calls itself {made.name!r:.80}, and a name is {allowed}.")
    return made


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"nvfp4bench_external_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up the annotations of their fields
    spec.loader.exec_module(module)
    return module
