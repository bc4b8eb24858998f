"""Warp-level MMA with a 2:4 (or 4:8) sparse A. PTX ISA, "mma.sp".

Operands are those of the dense form at twice its K, with the metadata register and its selector after C.
"""

from __future__ import annotations

from impls.isa.catalogue import Family
from impls.isa.families.mma_sync import F8F6F4, accumulator

_METADATA = ("mma.sp", "mma.sp::ordered_metadata")
_SATURATE = ("", ".satfinite")


def _operands(d: str, count: int, scales: str = "") -> str:
    """A and B of `count` registers each: half of K is stored for A, all of it for B."""
    return f"{accumulator(d, 'out')}, $in(b32*{count}), $in(b32*{count}), {accumulator(d, 'in')}, $in(b32), 0x0{scales}"


def _f16(op: str, shape: str, d: str) -> str:
    count = {"m16n8k16": 2, "m16n8k32": 4}[shape]
    return f"{op}.sync.aligned.{shape}.row.col.{d}.f16.f16.{d} {_operands(d, count)};"


def _bf16(op: str, shape: str) -> str:
    count = {"m16n8k16": 2, "m16n8k32": 4}[shape]
    return f"{op}.sync.aligned.{shape}.row.col.f32.bf16.bf16.f32 {_operands('f32', count)};"


def _tf32(op: str, shape: str) -> str:
    count = {"m16n8k8": 2, "m16n8k16": 4}[shape]
    return f"{op}.sync.aligned.{shape}.row.col.f32.tf32.tf32.f32 {_operands('f32', count)};"


def _integer(op: str, shape: str, a: str, b: str, saturate: str) -> str:
    count = {"m16n8k32": 2, "m16n8k64": 2 if a.endswith("4") else 4, "m16n8k128": 4}[shape]
    return f"{op}.sync.aligned.{shape}.row.col{saturate}.s32.{a}.{b}.s32 {_operands('s32', count)};"


def _fp8(op: str, a: str, b: str, d: str) -> str:
    return f"{op}.sync.aligned.m16n8k64.row.col.{d}.{a}.{b}.{d} {_operands(d, 4)};"


def _f8f6f4(op: str, a: str, b: str, d: str) -> str:
    return f"{op}.sync.aligned.kind::f8f6f4.m16n8k64.row.col.{d}.{a}.{b}.{d} {_operands(d, 4)};"


_SCALES = ", $in(b32), {0, 0}, $in(b32), {0, 0}"


def _mxf8f6f4(op: str, a: str, b: str) -> str:
    return (
        f"{op}.sync.aligned.m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.{a}.{b}.f32.ue8m0 "
        f"{_operands('f32', 4, _SCALES)};"
    )


def _fp4(op: str, kind: str, vector: str, scale: str) -> str:
    return (
        f"{op}.sync.aligned.m16n8k128.row.col.kind::{kind}.block_scale.scale_vec::{vector}.f32.e2m1.e2m1.f32.{scale} "
        f"{_operands('f32', 4, _SCALES)};"
    )


FAMILIES = (
    Family("mma.sp/f16", {"op": _METADATA, "shape": ("m16n8k16", "m16n8k32"), "d": ("f16", "f32")}, _f16, r"HMMA\.SP"),
    Family("mma.sp/bf16", {"op": _METADATA, "shape": ("m16n8k16", "m16n8k32")}, _bf16, r"HMMA\.SP.*BF16"),
    Family("mma.sp/tf32", {"op": _METADATA, "shape": ("m16n8k8", "m16n8k16")}, _tf32, r"HMMA\.SP.*TF32"),
    Family(
        "mma.sp/int8",
        {"op": _METADATA, "shape": ("m16n8k32", "m16n8k64"), "a": ("s8", "u8"), "b": ("s8", "u8"), "saturate": _SATURATE},
        _integer,
        r"IMMA\.SP.*[SU]8",
    ),
    Family(
        "mma.sp/int4",
        {"op": _METADATA, "shape": ("m16n8k64", "m16n8k128"), "a": ("s4", "u4"), "b": ("s4", "u4"), "saturate": _SATURATE},
        _integer,
        r"IMMA\.SP.*[SU]4",
    ),
    Family(
        "mma.sp/fp8", {"op": _METADATA, "a": ("e4m3", "e5m2"), "b": ("e4m3", "e5m2"), "d": ("f16", "f32")}, _fp8, r"QMMA\.SP"
    ),
    Family("mma.sp/f8f6f4", {"op": _METADATA, "a": F8F6F4, "b": F8F6F4, "d": ("f16", "f32")}, _f8f6f4, r"QMMA\.SP"),
    Family("mma.sp/mxf8f6f4", {"op": _METADATA, "a": F8F6F4, "b": F8F6F4}, _mxf8f6f4, r"QMMA\.SF\.SP"),
    Family(
        "mma.sp/fp4",
        {"op": _METADATA, "kind": ("mxf4", "mxf4nvf4"), "vector": ("2X", "4X"), "scale": ("ue8m0", "ue4m3")},
        _fp4,
        r"OMMA\.SF\.SP",
    ),
)
