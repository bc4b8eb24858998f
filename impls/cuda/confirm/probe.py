"""What a probe is: instructions that all threads of a kernel execute on words of their own, and what they should give.

    { .reg .b32 i<3>;  ld.global.b32 i0, [%0]; ...          inputs of this thread
      { .reg .b32 o<1>;  add.rn.f32 o0, i0, i1;             an instruction
        st.global.b32 [%1], o0; }                           its outputs
      { .reg .b32 o<1>;  add.rz.f32 o0, i0, i1;
        st.global.b32 [%1+4], o0; } }

So one launch evaluates many instructions on thousands of inputs. %0 and %1 are the thread's inputs and outputs, %2 is 32-bit
shared memory of the warp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from impls.arch import Arch
from impls.cuda.compiler import Kernel, compile_kernel

SOURCE = Path(__file__).with_name("probe.cu")
BLOCK = 128
WARP = 32
Words = npt.NDArray[np.uint32]
Predict = Callable[[Words], Words]
"""Inputs [threads, words] to outputs [threads, words]."""
Capability = tuple[int, int]
ANY_CAPABILITY: Capability = (8, 0)
NEXT_CAPABILITY: Capability = (99, 0)


@dataclass(frozen=True)
class Instruction:
    """One instruction, or a few that belong together, within a probe."""

    name: str
    text: str
    """PTX from the registers i0, i1, ... to o0, o1, ..."""
    outputs: int
    """Words of each thread."""
    predict: Predict
    """What it gives, by calls of the emulator's functions or by the text of the PTX ISA, without executing PTX."""
    rules: tuple[str, ...]
    """Of the emulator, that it tests."""
    approximates: str | None = None
    """Its entry in the table of documented errors; None where the result is exact."""
    since: Capability = ANY_CAPABILITY
    """The oldest compute capability that has it."""
    before: Capability = NEXT_CAPABILITY
    """The first one after that has it no longer."""

    def on(self, arch: Arch) -> bool:
        """Whether `arch` has it."""
        return self.since <= arch.compute_capability < self.before


@dataclass(frozen=True, eq=False)
class Probe:
    """Instructions on the same inputs."""

    name: str
    inputs: Callable[[np.random.Generator], Words]
    """Words [threads, words] of the threads, whole blocks of them."""
    instructions: tuple[Instruction, ...]
    shared_bytes: int = 16
    """Of each warp."""

    @cached_property
    def given(self) -> Words:
        """The inputs: the same ones each time, whatever other probes there are."""
        words = self.inputs(np.random.default_rng(list(self.name.encode())))
        return np.ascontiguousarray(words, np.uint32)

    def on(self, arch: Arch) -> Program | None:
        """What of it `arch` can execute, None if nothing."""
        instructions = tuple(each for each in self.instructions if each.on(arch))
        return Program(self, arch, instructions) if instructions else None


@dataclass(frozen=True, eq=False)
class Program:
    """A probe on one architecture."""

    probe: Probe
    arch: Arch
    instructions: tuple[Instruction, ...]

    @property
    def outputs(self) -> int:
        """Words of each thread."""
        return sum(each.outputs for each in self.instructions)

    def columns(self) -> list[slice]:
        """Of each instruction, where in a thread's outputs its own are."""
        ends = np.cumsum([each.outputs for each in self.instructions]).tolist()
        return [slice(end - each.outputs, end) for each, end in zip(self.instructions, ends, strict=True)]

    def predict(self, inputs: Words) -> Words:
        """All outputs [threads, words], without executing PTX."""
        with np.errstate(all="ignore"):
            return np.concatenate([each.predict(inputs) for each in self.instructions], axis=1)

    @cached_property
    def kernel(self) -> Kernel:
        """The compiled kernel; PTX and cubin are of one compilation. Raises CompileError."""
        words = self.probe.given.shape[1]
        defines = {
            "BODY": _c_string(_body(words, self.instructions)),
            "INPUTS": words,
            "OUTPUTS": self.outputs,
            "SHARED_BYTES": self.probe.shared_bytes,
        }
        return compile_kernel(SOURCE, "probe", self.arch, defines)


def instruction(name: str, text: str, outputs: int, predict: Predict, rules: Sequence[str], **more: Any) -> Instruction:
    """An instruction from its text with one statement a line."""
    return Instruction(
        name, "\n".join(line.strip() for line in text.strip().splitlines()), outputs, predict, tuple(rules), **more
    )


def _body(inputs: int, instructions: Sequence[Instruction]) -> str:
    lines = ["{", f".reg .b32 i<{inputs}>;"]
    lines += [f"ld.global.b32 i{number}, [%0+{4 * number}];" for number in range(inputs)]
    at = 0
    for each in instructions:
        lines += ["{", f".reg .b32 o<{each.outputs}>;", each.text]
        lines += [f"st.global.b32 [%1+{4 * (at + number)}], o{number};" for number in range(each.outputs)]
        lines.append("}")
        at += each.outputs
    return "\n".join([*lines, "}"])


def _c_string(text: str) -> str:
    return '"' + text.replace("\n", "\\n") + '"'
