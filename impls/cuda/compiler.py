"""Compiles a kernel for any architecture, without its GPU and without a CUDA toolkit: PTX and cubin from one compilation.

    kernel = compile_kernel(Path(__file__).with_name("decode.cu"), "decode<128, true>", arch, {"ROWS": 8})
    launch = kernel.launch(grid=(132, 1, 1), block=(128, 1, 1), shared_bytes=40_960, args=(q, k, Scalar("i32", 7)))

What decides the outcome, and so names it in the cache: the source with all it includes, CUDA's headers too; the options; the
kernel asked for; the target; release and build of NVRTC. Equal ones give equal PTX and cubin on every host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from impls.arch import Arch
from impls.contract import Launch, Scalar, Unsupported
from impls.cuda import cache as kept
from impls.cuda import nvrtc, source
from impls.cuda.cubin import Facts, facts_of
from impls.cuda.nvrtc import Nvrtc, Outcome
from impls.cuda.source import Source

if TYPE_CHECKING:
    import torch

OPTIONS = ("--std=c++17", "--generate-line-info", "--no-source-include")
"""Line info lets PTX, SASS and profilers name source lines. Only what `impls.cuda.source` has read can be included."""
SCALAR_BYTES = {"i32": 4, "i64": 8, "f32": 4}
POINTER_BYTES = 8
FORMATS = {"float16": "Float16", "bfloat16": "Bfloat16", "float32": "Float32"}
"""What our sources call the types of queries and results."""
_PTX_LINE = re.compile(r"ptx input, line (\d+)")
_LOCATION = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)", re.MULTILINE)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.MULTILINE)


class CompileError(RuntimeError):
    """A source was refused. The first line names the first error and its place; the compiler's whole log follows."""


@dataclass(frozen=True)
class Kernel:
    """A kernel compiled for one architecture."""

    arch: Arch
    ptx: str
    cubin: bytes
    entry: str
    """Its name in both."""
    log: str
    """Warnings; empty where there were none."""

    @cached_property
    def facts(self) -> Facts:
        """Registers, local and declared shared memory, parameters: as the cubin states them."""
        return facts_of(self.cubin, self.entry)

    def launch(
        self,
        *,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        args: tuple[torch.Tensor | Scalar | None, ...],
        overlaps: bool = False,
    ) -> Launch:
        """One launch with `shared_bytes` of dynamic shared memory. Raises ValueError if the arguments are not the kernel's."""
        given = tuple(SCALAR_BYTES[arg.kind] if isinstance(arg, Scalar) else POINTER_BYTES for arg in args)
        if given != self.facts.parameter_bytes:
            wanted, got = (", ".join(map(str, sizes)) or "none" for sizes in (self.facts.parameter_bytes, given))
            raise ValueError(f"{self.entry} takes arguments of {wanted} bytes, and was given {got}.")
        together = shared_bytes + self.facts.shared_bytes
        if together > self.arch.shared_per_block:
            most = self.arch.shared_per_block
            raise ValueError(f"{self.entry} asks for {together} B of shared memory; a block has {most} B on {self.arch.name}.")
        return Launch(self.ptx, self.cubin, self.entry, grid, block, shared_bytes, args, overlaps=overlaps)


def compile_kernel(
    path: Path, kernel: str, arch: Arch, defines: Mapping[str, int | str] | None = None, *, folder: Path | None = None
) -> Kernel:
    """`kernel`, a C++ expression such as "attend<128, true>", of the source at `path`, with macros `defines`.

    Compiled once a process, and once for all while the cache in `folder` (left out: the user's) has it. Raises Unsupported
    where there is no NVRTC or it does not know `arch`, CompileError where it refuses the source.
    """
    macros = tuple(sorted((name, str(value)) for name, value in (defines or {}).items()))
    return _compile_once(path.absolute(), kernel, arch, macros, folder or kept.default_folder())


@cache
def _compile_once(path: Path, kernel: str, arch: Arch, macros: tuple[tuple[str, str], ...], folder: Path) -> Kernel:
    reason = nvrtc.why_not(arch)
    if reason:
        raise Unsupported(reason)
    compiler = nvrtc.find()
    options = [*OPTIONS, *(f"--define-macro={name}={value}" for name, value in macros)]
    text = source.read(path, compiler.headers)
    name = kept.key([text.digest, *options, kernel, arch.name, compiler.identity])
    built = kept.load(folder, name)
    if built is None:
        built = compiler.compile(text.text, text.name, text.headers, options, kernel, arch.name)
        if not built.accepted:
            raise _refusal(compiler, text, options, kernel, arch, built)
        kept.store(folder, name, built)
    return Kernel(arch, built.ptx, built.cubin, built.entry, source.readable(built.log))


def _refusal(compiler: Nvrtc, text: Source, options: list[str], kernel: str, arch: Arch, refused: Outcome) -> CompileError:
    """The log as one message, led by the first error."""
    lines = [line for line in refused.log.splitlines() if line.strip("\0 ")]
    if any(_PTX_LINE.search(line) for line in lines):  # an asm statement: the assembler knows lines of PTX alone
        target = arch.name.replace("sm_", "compute_")
        ptx = compiler.compile(text.text, text.name, text.headers, options, kernel, target).ptx
        lines = [part for line in lines for part in (*_in_source(line, ptx, text), line)]
    first = next((line for line in lines if "error" in line), lines[0])
    if first.startswith("__nv_name_map"):  # the file that NVRTC adds to look the kernel up
        first = f"{text.name}: there is no kernel {kernel}: {first.partition('error: ')[2]}"
    log = "\n".join(f"  {line}" for line in lines)
    return CompileError(source.readable(f"{first} ({kernel} for {arch.name}, NVRTC {compiler.release})\n{log}"))


def _in_source(message: str, ptx: str, text: Source) -> list[str]:
    """The assembler's message about a line of PTX as one about the source line that it comes from, and that line."""
    named = _PTX_LINE.search(message)
    locations = _LOCATION.findall("\n".join(ptx.splitlines()[: int(named[1])])) if named else []
    if named is None or not locations:
        return []
    number, line = locations[-1]
    name = dict(_FILE.findall(ptx))[number]
    what = re.sub(r"error\s*:", "error:", message[named.end() :].lstrip("; "))
    return [f"{name}({line}): {what}", f"  {text.line(name, int(line))}"]
