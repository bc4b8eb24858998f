"""Warp-level dense MMA on unscaled operands. PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions"."""

from __future__ import annotations

from impls.isa.catalogue import Family

F8F6F4 = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
"""Operand types of kind::f8f6f4, and of its block-scaled twin."""
_FLOATS = ("f16", "f32")

_REGISTERS = {  # shape: 32-bit registers of A and of B
    "m8n8k4": (2, 2),
    "m16n8k8": (2, 1),
    "m16n8k16": (4, 2),
}
_INT_REGISTERS = {  # shape: registers of A, B and C, for 8-bit integers; K doubles for 4-bit, grows 8 times for 1-bit
    "m8n8k16": (1, 1, 2),
    "m16n8k16": (2, 1, 4),
    "m16n8k32": (4, 2, 4),
    "m8n8k32": (1, 1, 2),
    "m16n8k64": (4, 2, 4),
    "m8n8k128": (1, 1, 2),
    "m16n8k128": (2, 1, 4),
    "m16n8k256": (4, 2, 4),
}
_F64_REGISTERS = {"m8n8k4": (1, 1, 2), "m16n8k4": (2, 1, 4), "m16n8k8": (4, 2, 4), "m16n8k16": (8, 4, 4)}


def accumulator(dtype: str, role: str, rows: int = 16) -> str:
    """C or D of an m16n8 tile (or m8n8k4's m8n8 of four quads): f16 in pairs, everything else one value a register."""
    count = (2 if dtype == "f16" else 4) * (2 if rows == 8 else 1)
    return f"${role}(b32*{count})"


def _f16(shape: str, d: str, c: str) -> str:
    a, b = _REGISTERS[shape]
    return (
        f"mma.sync.aligned.{shape}.row.col.{d}.f16.f16.{c} "
        f"{accumulator(d, 'out')}, $in(b32*{a}), $in(b32*{b}), {accumulator(c, 'in')};"
    )


def _f16_quads(a: str, b: str, d: str, c: str) -> str:
    return (
        f"mma.sync.aligned.m8n8k4.{a}.{b}.{d}.f16.f16.{c} "
        f"{accumulator(d, 'out', 8)}, $in(b32*2), $in(b32*2), {accumulator(c, 'in', 8)};"
    )


def _bf16(shape: str) -> str:
    a, b = _REGISTERS[shape]
    return f"mma.sync.aligned.{shape}.row.col.f32.bf16.bf16.f32 $out(b32*4), $in(b32*{a}), $in(b32*{b}), $in(b32*4);"


def _tf32(shape: str) -> str:
    a, b = {"m16n8k4": (2, 1), "m16n8k8": (4, 2)}[shape]
    return f"mma.sync.aligned.{shape}.row.col.f32.tf32.tf32.f32 $out(b32*4), $in(b32*{a}), $in(b32*{b}), $in(b32*4);"


def _f64(shape: str) -> str:
    a, b, c = _F64_REGISTERS[shape]
    return f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 $out(b64*{c}), $in(b64*{a}), $in(b64*{b}), $in(b64*{c});"


def _integer(shape: str, a: str, b: str, saturate: str) -> str:
    ra, rb, rc = (2, 1, 4) if shape == "m16n8k32" and a.endswith("4") else _INT_REGISTERS[shape]
    operands = f"$out(b32*{rc}), $in(b32*{ra}), $in(b32*{rb}), $in(b32*{rc})"
    return f"mma.sync.aligned.{shape}.row.col{saturate}.s32.{a}.{b}.s32 {operands};"


def _b1(shape: str, op: str) -> str:
    a, b, c = _INT_REGISTERS[shape]
    return f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{op}.popc $out(b32*{c}), $in(b32*{a}), $in(b32*{b}), $in(b32*{c});"


def _fp8(shape: str, a: str, b: str, d: str) -> str:
    ra, rb = {"m16n8k16": (2, 1), "m16n8k32": (4, 2)}[shape]
    return (
        f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{d} "
        f"{accumulator(d, 'out')}, $in(b32*{ra}), $in(b32*{rb}), {accumulator(d, 'in')};"
    )


def _f8f6f4(shape: str, a: str, b: str, d: str) -> str:
    ra, rb = {"m16n8k16": (2, 1), "m16n8k32": (4, 2)}[shape]
    return (
        f"mma.sync.aligned.kind::f8f6f4.{shape}.row.col.{d}.{a}.{b}.{d} "
        f"{accumulator(d, 'out')}, $in(b32*{ra}), $in(b32*{rb}), {accumulator(d, 'in')};"
    )


_INT8, _INT4, _SATURATE = ("s8", "u8"), ("s4", "u4"), ("", ".satfinite")
_LAYOUTS = ("row", "col")

FAMILIES = (
    Family("mma.sync/f16", {"shape": ("m16n8k8", "m16n8k16"), "d": _FLOATS, "c": _FLOATS}, _f16, r"HMMA\."),
    Family("mma.sync/f16/m8n8k4", {"a": _LAYOUTS, "b": _LAYOUTS, "d": _FLOATS, "c": _FLOATS}, _f16_quads, r"HMMA\.884"),
    Family("mma.sync/bf16", {"shape": ("m16n8k8", "m16n8k16")}, _bf16, r"HMMA\..*BF16"),
    Family("mma.sync/tf32", {"shape": ("m16n8k4", "m16n8k8")}, _tf32, r"HMMA\..*TF32"),
    Family("mma.sync/f64", {"shape": tuple(_F64_REGISTERS)}, _f64, r"DMMA"),
    Family(
        "mma.sync/int8",
        {"shape": ("m8n8k16", "m16n8k16", "m16n8k32"), "a": _INT8, "b": _INT8, "saturate": _SATURATE},
        _integer,
        r"IMMA\..*[SU]8",
    ),
    Family(
        "mma.sync/int4",
        {"shape": ("m8n8k32", "m16n8k32", "m16n8k64"), "a": _INT4, "b": _INT4, "saturate": _SATURATE},
        _integer,
        r"IMMA\..*[SU]4",
    ),
    Family("mma.sync/b1", {"shape": ("m8n8k128", "m16n8k128", "m16n8k256"), "op": ("xor", "and")}, _b1, r"BMMA"),
    Family(
        "mma.sync/fp8",
        {"shape": ("m16n8k16", "m16n8k32"), "a": ("e4m3", "e5m2"), "b": ("e4m3", "e5m2"), "d": _FLOATS},
        _fp8,
        r"QMMA",
    ),
    Family(
        "mma.sync/f8f6f4",
        {"shape": ("m16n8k16", "m16n8k32"), "a": F8F6F4, "b": F8F6F4, "d": _FLOATS},
        _f8f6f4,
        r"QMMA",
    ),
)
