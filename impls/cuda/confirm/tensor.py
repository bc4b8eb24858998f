"""Probes of mma.sync: every type, shape, accumulator and selector, on operands that ask different things of the adder.

Words of a thread: A in i0 to i3, B in i4 and i5, C of f32 or s32 in i6 to i9, C of f16 in i10 and i11, scales in i12 and i13.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise, product

from impls.cuda.confirm.operands import ELEMENTS, SCALES, integers, operands
from impls.cuda.confirm.probe import ANY_CAPABILITY, Capability, Instruction, Probe, Words, instruction
from impls.cuda.confirm.scalar import ADA
from impls.cuda.emulator.tensor_cores.forms import mma
from impls.cuda.emulator.tensor_cores.multiply import Mma, Selectors

RTX_BLACKWELL = (12, 0)
TARGETS = {(8, 0): "sm_80", (8, 6): "sm_86", (8, 9): "sm_89", (9, 0): "sm_90a", (12, 0): "sm_120a"}
"""By capability, what an instruction that is the same from there on up to the next one is compiled for."""
C_WORD = {"f32": 6, "s32": 6, "f16": 10}


def _on_each(name: str, since: Capability = ANY_CAPABILITY, selectors: Selectors | None = None) -> list[Instruction]:
    """The instruction once for each target whose tensor cores may add in another way."""
    found = []
    capabilities = [*TARGETS, (13, 0)]
    for capability, following in pairwise(capabilities):
        if capability >= since:
            found.append(_multiply(name, capability, following, selectors))
    return found


def _multiply(name: str, since: Capability, before: Capability, selectors: Selectors | None) -> Instruction:
    form = mma(tuple(name.split(".")[1:]), TARGETS[since])
    c = C_WORD[form.accumulator]
    groups = [(0, form.a_registers), (4, form.b_registers), (c, form.c_registers)]
    given = [f"{{{', '.join(f'i{first + n}' for n in range(count))}}}" for first, count in groups]
    results = f"{{{', '.join(f'o{n}' for n in range(form.d_registers))}}}"
    text, called = f"{name} {results}, {', '.join(given)}", name
    if selectors is not None:
        byte_a, thread_a, byte_b, thread_b = selectors
        text += f", {{i12}}, {{{byte_a}, {thread_a}}}, {{i13}}, {{{byte_b}, {thread_b}}}"
        called += f" {{{byte_a}, {thread_a}}} {{{byte_b}, {thread_b}}}"
    predict = partial(_predicted, form, c, selectors)
    return instruction(called, text + ";", form.d_registers, predict, form.rules, since=since, before=before)


def _predicted(form: Mma, c: int, selectors: Selectors | None, inputs: Words) -> Words:
    warps = inputs.reshape(-1, 32, inputs.shape[1])
    a = warps[..., : form.a_registers].copy()
    b = warps[..., 4 : 4 + form.b_registers].copy()
    accumulated = warps[..., c : c + form.c_registers].copy()
    if selectors is None:
        d = form.multiply(a, b, accumulated)
    else:
        d = form.multiply(a, b, accumulated, warps[..., 12].copy(), warps[..., 13].copy(), selectors)
    return d.reshape(len(inputs), -1)


def _plain(
    a: str, shapes: Iterable[int], accumulators: Iterable[str], since: Capability = ANY_CAPABILITY, b: str = "", kind: str = ""
) -> list[Instruction]:
    found: list[Instruction] = []
    for k, accumulator in product(shapes, accumulators):
        types = f"{accumulator}.{a}.{b or a}.{accumulator}"
        found += _on_each(f"mma.sync.aligned.m16n8k{k}.row.col{kind}.{types}", since)
    return found


def _scaled(k: int, kind: str, vector: str, a: str, b: str, scale: str) -> list[Instruction]:
    """With enough selectors that each value of each occurs, and every pair of A's and of B's."""
    bytes_ = {"1X": (0, 1, 2, 3), "2X": (0, 2), "4X": (0,)}[vector]
    name = f"mma.sync.aligned.m16n8k{k}.row.col.kind::{kind}.block_scale.scale_vec::{vector}.f32.{a}.{b}.f32.{scale}"
    of_b = list(product(bytes_, (0, 1, 2, 3)))
    of_a = list(product(bytes_, (0, 1)))
    found: list[Instruction] = []
    for number, (byte, thread) in enumerate(of_b):
        found += _on_each(name, RTX_BLACKWELL, (*of_a[number % len(of_a)], byte, thread))
    return found


def _whole() -> list[Instruction]:
    found: list[Instruction] = []
    for a, b, k, clamp in product(("s8", "u8"), ("s8", "u8"), (16, 32), ("", ".satfinite")):
        found += _on_each(f"mma.sync.aligned.m16n8k{k}.row.col{clamp}.s32.{a}.{b}.s32")
    return found


def _probe(a: str, b: str, instructions: list[Instruction], scale: str = "ue8m0") -> Probe:
    name = f"mma {a} {b}" + (f" {scale}" if any("scale" in each.name for each in instructions) else "")
    return Probe(name, partial(operands, ELEMENTS[a], ELEMENTS[b], SCALES[scale]), tuple(instructions))


def _narrow(a: str, b: str) -> Probe:
    """The types that kind::f8f6f4 and kind::mxf8f6f4 have in 8-bit containers."""
    fp8 = {a, b} <= {"e4m3", "e5m2"}
    of_ada = _plain(a, (16, 32), ("f32", "f16"), ADA, b) if fp8 else []
    newer = _plain(a, (32,), ("f32", "f16"), RTX_BLACKWELL, b, ".kind::f8f6f4")
    return _probe(a, b, [*of_ada, *newer, *_scaled(32, "mxf8f6f4", "1X", a, b, "ue8m0")])


_PAIRS = (
    ("e4m3", "e4m3"),
    ("e5m2", "e5m2"),
    ("e4m3", "e5m2"),
    ("e5m2", "e4m3"),
    ("e3m2", "e2m3"),
    ("e2m3", "e3m2"),
    ("e2m1", "e2m1"),
    ("e2m1", "e4m3"),
)
PROBES = (
    _probe("f16", "f16", _plain("f16", (8, 16), ("f32", "f16"))),
    _probe("bf16", "bf16", _plain("bf16", (8, 16), ("f32",))),
    _probe("tf32", "tf32", _plain("tf32", (4, 8), ("f32",))),
    *(_narrow(a, b) for a, b in _PAIRS),
    _probe(
        "nibble",
        "nibble",
        [*_scaled(64, "mxf4", "2X", "e2m1", "e2m1", "ue8m0"), *_scaled(64, "mxf4nvf4", "2X", "e2m1", "e2m1", "ue8m0")],
    ),
    _probe("nibble", "nibble", _scaled(64, "mxf4nvf4", "4X", "e2m1", "e2m1", "ue4m3"), "ue4m3"),
    Probe("mma integers", integers, tuple(_whole())),
)
