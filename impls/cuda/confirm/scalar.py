"""Probes of what a lane does by itself: every rounding, flush and clamp, conversions, the approximate functions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from impls.cuda.confirm import numbers
from impls.cuda.confirm.probe import ANY_CAPABILITY, Capability, Instruction, Probe, Words, instruction
from impls.cuda.emulator.arithmetic import APPROXIMATE, Operation, operation
from impls.cuda.emulator.arithmetic.forms import BITS, SIGNED, register

ADA, HOPPER, BLACKWELL = (8, 9), (9, 0), (10, 0)
ROUNDINGS = ("rn", "rz", "rm", "rp")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def scalar(name: str, operands: int, since: Capability = ANY_CAPABILITY) -> Instruction:
    """The instruction `name` of the arithmetic, on as many words as its operands take: operand n starts at the word n, or at
    2n if operands have 64 bits; 16-bit and narrower ones are the lowest bits."""
    opcode, *modifiers = name.split(".")
    known = operation(opcode, tuple(modifiers), operands=operands)
    (result,) = known.results
    widths = [BITS[kind] for kind in known.operands]
    step = 2 if 64 in widths else 1
    lines = []
    for number, width in enumerate(widths):
        lines += _loaded(f"a{number}", width, number * step)
    given = ", ".join(f"a{number}" for number in range(len(widths)))
    lines += _stored(name, given, BITS[result], result)
    return instruction(
        f"{name} of three" if opcode in ("min", "max") and operands == 3 else name,
        "\n".join(lines),
        2 if BITS[result] == 64 else 1,
        partial(_predicted, known, step),
        (known.rule,),
        approximates=_documented(opcode, known) if "approximation" in known.rule else None,
        since=since,
    )


def _logic(table: int) -> Instruction:
    """lop3, whose table is a constant."""
    known = operation("lop3", ("b32",), operands=4)

    def predict(inputs: Words) -> Words:
        return np.asarray(known.function(*inputs.T, np.uint32(table)))[:, None]

    return instruction(f"lop3.b32 {table:#04x}", f"lop3.b32 o0, i0, i1, i2, {table};", 1, predict, (known.rule,))


def _loaded(name: str, width: int, word: int) -> list[str]:
    if width == 64:
        return [f".reg .b64 {name};", f"mov.b64 {name}, {{i{word}, i{word + 1}}};"]
    if width == 32:
        return [f".reg .b32 {name};", f"mov.b32 {name}, i{word};"]
    if width == 16:
        return [f".reg .b16 {name};", f"cvt.u16.u32 {name}, i{word};"]
    return [f".reg .b8 {name}, {name}x, {name}y, {name}z;", f"mov.b32 {{{name}, {name}x, {name}y, {name}z}}, i{word};"]


def _stored(name: str, given: str, width: int, result: str) -> list[str]:
    if width == 1:
        return [".reg .pred d;", f"{name} d, {given};", "selp.b32 o0, 1, 0, d;"]
    if width == 64:
        return [".reg .b64 d;", f"{name} d, {given};", "mov.b64 {o0, o1}, d;"]
    if width == 32 or (width == 8 and result in ("u8", "s8")):  # a wider register is filled with the sign
        return [f"{name} o0, {given};"]
    if width == 16:
        return [".reg .b16 d;", f"{name} d, {given};", "cvt.u32.u16 o0, d;"]
    return [".reg .b8 d, z;", "mov.b32 {z, z, z, z}, 0;", f"{name} d, {given};", "mov.b32 o0, {d, z, z, z};"]


def _predicted(known: Operation, step: int, inputs: Words) -> Words:
    columns: list[Any] = []
    for number, kind in enumerate(known.operands):
        word: Any = np.ascontiguousarray(inputs[:, number * step])
        if BITS[kind] == 64:
            word = np.ascontiguousarray(inputs[:, number * step : number * step + 2]).view(np.uint64)[:, 0]
        elif BITS[kind] == 8:
            word = word & np.uint32(0xFF)
        columns.append(word.astype(register(kind)))
    (kind,) = known.results
    found = np.asarray(known.function(*columns))
    if BITS[kind] == 64:
        return np.ascontiguousarray(found).view(np.uint32).reshape(-1, 2)
    if kind in SIGNED and BITS[kind] == 8:
        return found.astype(np.uint16).view(np.int16).astype(np.int32).view(np.uint32)[:, None]
    return found.astype(np.uint32)[:, None]


def _documented(opcode: str, known: Operation) -> str | None:
    """The entry of an approximate function in the table of documented errors; both halves of a pair have it."""
    how = next(
        (how for how in ("full", "approx") if f"{opcode}.{how}.{known.results[0].removesuffix('x2')}" in APPROXIMATE), ""
    )
    return f"{opcode}.{how}.{known.results[0]}" if how else None


def _names(*parts: Iterable[str]) -> list[str]:
    """Every combination of modifiers, of which "" is none."""
    return [".".join(filter(None, words)) for words in product(*parts)]


def _all(names: Iterable[str], operands: int, since: Capability = ANY_CAPABILITY) -> list[Instruction]:
    return [scalar(name, operands, since) for name in names]


FTZ, SAT, RELU, FINITE = (("", name) for name in ("ftz", "sat", "relu", "satfinite"))
WHOLE = ("rni", "rzi", "rmi", "rpi")
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def _single() -> list[Instruction]:
    return [
        *_all(_names(("add", "sub", "mul"), ROUNDINGS, FTZ, SAT, ("f32",)), 2),
        *_all(_names(("fma",), ROUNDINGS, FTZ, SAT, ("f32",)), 3),
        *_all(_names(("div",), ROUNDINGS, FTZ, ("f32",)), 2),
        *_all(_names(("rcp", "sqrt"), ROUNDINGS, FTZ, ("f32",)), 1),
        *_all(_names(("min", "max"), FTZ, ("", "NaN"), ("f32",)), 2),
        *_all(_names(("min", "max"), FTZ, ("", "NaN"), ("xorsign.abs.f32",)), 2, (8, 6)),
        *_all(_names(("min", "max"), FTZ, ("", "NaN"), ("", "abs"), ("f32",)), 3, BLACKWELL),
        *_all(_names(("abs", "neg"), FTZ, ("f32",)), 1),
        scalar("copysign.f32", 2),
        *_all(_names(("testp",), ("finite", "infinite", "number", "notanumber", "normal", "subnormal"), ("f32",)), 1),
        *_all(_names(("setp",), COMPARISONS, FTZ, ("f32",)), 2),
        *_all(_names(("div.approx", "div.full"), FTZ, ("f32",)), 2),
        *_all(_names(("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2"), ("approx",), FTZ, ("f32",)), 1),
        scalar("tanh.approx.f32", 1),
    ]


def _from_single() -> list[Instruction]:
    return [
        *_all(_names(("cvt",), WHOLE, FTZ, INTEGERS, ("f32",)), 1),
        *_all(_names(("cvt",), WHOLE, FTZ, SAT, ("f32.f32",)), 1),
        *_all(_names(("cvt",), ROUNDINGS, FTZ, ("", "sat"), ("f16.f32",)), 1),
        *_all(_names(("cvt",), ("rn", "rz"), ("relu.f16.f32", "bf16.f32", "relu.bf16.f32")), 1),
        *_all(_names(("cvt",), ("rn", "rz"), RELU, ("f16x2.f32", "bf16x2.f32")), 2),
        *_all(_names(("cvt",), ("rn", "rz"), RELU, ("satfinite.f16.f32", "satfinite.bf16.f32")), 1, BLACKWELL),
        *_all(_names(("cvt",), ("rn", "rz"), RELU, ("satfinite.f16x2.f32", "satfinite.bf16x2.f32")), 2, BLACKWELL),
        scalar("cvt.rna.tf32.f32", 1),
        *_all(_names(("cvt",), ("rn", "rz"), RELU, ("tf32.f32",)), 1, HOPPER),
        *_all(_names(("cvt.rn.satfinite",), RELU, ("e4m3x2", "e5m2x2"), ("f32",)), 2, ADA),
        *_all(_names(("cvt.rn.satfinite",), RELU, ("e2m1x2", "e2m3x2", "e3m2x2"), ("f32",)), 2, BLACKWELL),
        *_all(_names(("cvt",), ("rz", "rp"), FINITE, ("ue8m0x2.f32",)), 2, BLACKWELL),
        *_all(_names(("cvt",), FTZ, ("f64.f32",)), 1),
    ]


def _half() -> list[Instruction]:
    kinds = ("f16", "f16x2")
    return [
        *_all(_names(("add", "sub", "mul"), ("rn",), FTZ, SAT, kinds), 2),
        *_all(_names(("fma.rn",), FTZ, ("", "sat", "relu"), kinds), 3),
        *_all(_names(("min", "max"), FTZ, ("", "NaN"), ("", "xorsign.abs"), kinds), 2, (8, 6)),
        *_all(_names(("abs", "neg"), FTZ, kinds), 1),
        *_all(_names(("setp",), COMPARISONS, FTZ, ("f16",)), 2),
        *_all(_names(("ex2.approx", "tanh.approx"), kinds), 1),
        *_all(_names(("cvt",), FTZ, ("f32.f16",)), 1),
        *_all(_names(("cvt",), WHOLE, INTEGERS, ("f16",)), 1),
        *_all(_names(("cvt.rn.satfinite",), RELU, ("e4m3x2", "e5m2x2"), ("f16x2",)), 1, ADA),
    ]


def _bfloat() -> list[Instruction]:
    kinds = ("bf16", "bf16x2")
    return [
        *_all(_names(("fma.rn",), RELU, kinds), 3),
        *_all(_names(("add", "sub", "mul"), ("rn",), kinds), 2, HOPPER),
        *_all(_names(("min", "max"), ("", "NaN"), kinds), 2),
        *_all(_names(("min", "max"), ("", "NaN"), ("xorsign.abs",), kinds), 2, (8, 6)),
        *_all(_names(("abs", "neg"), kinds), 1),
        *_all(_names(("setp",), COMPARISONS, ("bf16",)), 2, HOPPER),
        *_all(_names(("tanh.approx",), kinds), 1, HOPPER),
        *_all(_names(("ex2.approx.ftz",), kinds), 1, HOPPER),
        scalar("cvt.f32.bf16", 1, HOPPER),
    ]


def _narrow() -> list[Instruction]:
    return [
        *_all(_names(("cvt.rn",), RELU, ("f16x2",), ("e4m3x2", "e5m2x2")), 1, ADA),
        *_all(_names(("cvt.rn",), RELU, ("f16x2",), ("e2m1x2", "e2m3x2", "e3m2x2")), 1, BLACKWELL),
        scalar("cvt.rn.bf16x2.ue8m0x2", 1, BLACKWELL),
    ]


def _double() -> list[Instruction]:
    return [
        *_all(_names(("add", "sub", "mul", "div"), ROUNDINGS, ("f64",)), 2),
        *_all(_names(("fma",), ROUNDINGS, ("f64",)), 3),
        *_all(_names(("rcp", "sqrt"), ROUNDINGS, ("f64",)), 1),
        *_all(_names(("min", "max"), ("f64",)), 2),
        *_all(_names(("abs", "neg"), ("f64",)), 1),
        *_all(_names(("cvt",), WHOLE, ("u32", "s32", "u64", "s64"), ("f64",)), 1),
        *_all(_names(("cvt",), ROUNDINGS, FTZ, ("f32.f64",)), 1),
        *_all(_names(("add", "mul"), ROUNDINGS, FTZ, ("f32x2",)), 2, BLACKWELL),
        *_all(_names(("fma",), ROUNDINGS, FTZ, ("f32x2",)), 3, BLACKWELL),
    ]


def _whole() -> list[Instruction]:
    signed = ("u32", "s32")
    return [
        *_all(_names(("add", "sub"), signed), 2),
        *_all(_names(("add.sat.s32", "sub.sat.s32")), 2),
        *_all(_names(("mul",), ("lo", "hi", "wide"), (*signed, "u16", "s16")), 2),
        *_all(_names(("mad.lo", "mad.hi"), signed), 3),
        scalar("mad.hi.sat.s32", 3),
        *_all(_names(("mul24.lo", "mul24.hi"), signed), 2),
        *_all(_names(("sad",), signed), 3),
        *_all(_names(("min", "max"), signed), 2),
        *_all(_names(("abs.s32", "neg.s32", "popc.b32", "clz.b32", "brev.b32", "not.b32")), 1),
        *_all(_names(("bfind", "bfind.shiftamt"), signed), 1),
        *_all(_names(("and", "or", "xor"), ("b32",)), 2),
        *map(_logic, (0x80, 0xFE, 0x96, 0xCA, 0xE8, 0xF0, 0x1B, 0x72)),
        *_all(_names(("shl.b32", "shr.u32", "shr.s32")), 2),
        *_all(_names(("shf",), ("l", "r"), ("wrap", "clamp"), ("b32",)), 3),
        *_all(_names(("bfe",), signed), 3),
        *_all(_names(("prmt.b32",), ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")), 3),
        *_all(_names(("dp4a",), signed, signed), 3),
        *_all(_names(("dp2a",), ("lo", "hi"), signed, signed), 3),
        *_all(_names(("setp",), ("eq", "ne", "lt", "le", "gt", "ge"), signed), 2),
        *_all(_names(("cvt",), INTEGERS, signed), 1),
        *_all(_names(("cvt.sat",), INTEGERS[:4], signed), 1),
        *_all(_names(("cvt",), ROUNDINGS, ("f32", "f64"), signed), 1),
        *_all(_names(("cvt.rn.f16",), signed), 1),
        *_all(_names(("cvt.pack.sat",), ("u16", "s16"), ("s32",)), 2),
        *_all(_names(("cvt.pack.sat",), ("u8", "s8"), ("s32.b32",)), 3),
    ]


PROBES = (
    Probe("single", partial(numbers.floats, "f32", 3), tuple(_single())),
    Probe("from single", partial(numbers.floats, "f32", 2), tuple(_from_single())),
    Probe("half", partial(numbers.floats, "f16", 3), tuple(_half())),
    Probe("bfloat", partial(numbers.floats, "bf16", 3), tuple(_bfloat())),
    Probe("narrow", numbers.every_byte_pair, tuple(_narrow())),
    Probe("double", partial(numbers.floats, "f64", 3), tuple(_double())),
    Probe("integer", numbers.integers, tuple(_whole())),
)
