"""Warp-level MMA with block scales: MXFP8/6/4 and NVFP4. PTX ISA, "mma" with `.block_scale`.

Scale data follows C: `scale-a, {byte-id-a, thread-id-a}, scale-b, {byte-id-b, thread-id-b}`.
"""

from __future__ import annotations

from impls.isa.catalogue import Family
from impls.isa.families.mma_sync import F8F6F4

_SCALE_VECTORS = ("", ".scale_vec::1X", ".scale_vec::2X", ".scale_vec::4X")
_SCALE_TYPES = ("ue8m0", "ue4m3")
_IDS = ("0", "1", "2", "3")
_SELECTORS = "{0, 0}"


def _operands(d: str, selector_a: str = _SELECTORS, selector_b: str = _SELECTORS) -> str:
    count = 2 if d == "f16" else 4
    return f"$out(b32*{count}), $in(b32*4), $in(b32*2), $in(b32*{count}), $in(b32), {selector_a}, $in(b32), {selector_b}"


def _mxf8f6f4(a: str, b: str, vector: str, scale: str) -> str:
    return f"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale{vector}.f32.{a}.{b}.f32.{scale} {_operands('f32')};"


def _fp4(kind: str, shape: str, vector: str, scale: str, d: str) -> str:
    return f"mma.sync.aligned.{shape}.row.col.kind::{kind}.block_scale{vector}.{d}.e2m1.e2m1.{d}.{scale} {_operands(d)};"


def _qualifier_order(order: str) -> str:
    kind = "kind::mxf4nvf4.block_scale.scale_vec::4X"
    qualifiers = f"m16n8k64.row.col.{kind}" if order == "shape-kind" else f"{kind}.m16n8k64.row.col"
    return f"mma.sync.aligned.{qualifiers}.f32.e2m1.e2m1.f32.ue4m3 {_operands('f32')};"


def _selected(vector: str, operand: str, byte: str, thread: str) -> str:
    scale = "ue4m3" if vector == "4X" else "ue8m0"
    chosen = f"{{{byte}, {thread}}}"
    selectors = (chosen, _SELECTORS) if operand == "a" else (_SELECTORS, chosen)
    return (
        f"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::{vector}.f32.e2m1.e2m1.f32.{scale} "
        f"{_operands('f32', *selectors)};"
    )


def _selected_by_register(vector: str) -> str:
    scale = "ue4m3" if vector == "4X" else "ue8m0"
    return (
        f"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::{vector}.f32.e2m1.e2m1.f32.{scale} "
        f"{_operands('f32', '$in(b16*2)', '$in(b16*2)')};"
    )


FAMILIES = (
    Family(
        "mma.sync/mxf8f6f4",
        {"a": F8F6F4, "b": F8F6F4, "vector": _SCALE_VECTORS, "scale": _SCALE_TYPES},
        _mxf8f6f4,
        r"[QO]MMA\.SF",
    ),
    *(
        Family(
            f"mma.sync/{kind}",
            {"shape": ("m16n8k32", "m16n8k64"), "vector": _SCALE_VECTORS, "scale": _SCALE_TYPES, "d": ("f32", "f16")},
            lambda kind=kind, **axes: _fp4(kind, **axes),
            r"OMMA\.SF",
        )
        for kind in ("mxf4", "mxf4nvf4")
    ),
    Family("mma.sync/mxf4nvf4/qualifiers", {"order": ("shape-kind", "kind-shape")}, _qualifier_order, r"OMMA\.SF"),
    Family(
        "mma.sync/mxf4nvf4/selector",
        {"vector": ("2X", "4X"), "operand": ("a", "b"), "byte": _IDS, "thread": _IDS},
        _selected,
        r"OMMA\.SF",
    ),
    Family("mma.sync/mxf4nvf4/selector-register", {"vector": ("2X", "4X")}, _selected_by_register, r"OMMA\.SF"),
)
