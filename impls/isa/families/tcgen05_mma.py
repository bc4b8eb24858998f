"""Fifth-generation tensor core MMA. PTX ISA, "tcgen05.mma", "tcgen05.mma.sp", "tcgen05.mma.ws".

Operands: `[d], a-desc | [a], b-desc, {[sparsity metadata],} idesc, {lane mask | scale addresses,} enable-input-d`.
"""

from __future__ import annotations

from impls.isa.catalogue import Family

_CTA_GROUPS = ("cta_group::1", "cta_group::2")
_KINDS = ("f16", "tf32", "f8f6f4", "i8")
_BLOCK_KINDS = ("mxf8f6f4", "mxf4", "mxf4nvf4")
_SOURCES = ("shared", "tmem")
"""Where A comes from; B always comes from shared memory."""
_SPARSE = ("", ".sp")
_COLLECTOR_A = ("", *(f".collector::a::{use}" for use in ("fill", "use", "lastuse", "discard")))
_COLLECTOR_B = ("", ".collector::b0::fill", ".collector::b1::use", ".collector::b2::lastuse", ".collector::b3::discard")
_SCALE_SIZES = ("", ".scale_vec::1X", ".scale_vec::2X", ".scale_vec::4X", ".block16", ".block32")
_NATIVE = r"UTC[A-Z]*MMA"


def _a(source: str) -> str:
    return "[$in(b32)]" if source == "tmem" else "$in(b64)"


def _metadata(sparse: str) -> str:
    return " [$in(b32)]," if sparse else ""


def _dense(cta: str, kind: str, source: str, sparse: str, collector: str) -> str:
    return (
        f"tcgen05.mma{sparse}.{cta}.kind::{kind}{collector} "
        f"[$in(b32)], {_a(source)}, $in(b64),{_metadata(sparse)} $in(b32), $true;"
    )


def _ashift(cta: str, kind: str, collector: str) -> str:
    return f"tcgen05.mma.{cta}.kind::{kind}.ashift{collector} [$in(b32)], [$in(b32)], $in(b64), $in(b32), $true;"


def _lane_mask(cta: str, kind: str, source: str) -> str:
    words = 8 if cta.endswith("2") else 4
    return f"tcgen05.mma.{cta}.kind::{kind} [$in(b32)], {_a(source)}, $in(b64), $in(b32), $in(b32*{words}), $true;"


def _scale_input(cta: str, kind: str, source: str) -> str:
    return f"tcgen05.mma.{cta}.kind::{kind} [$in(b32)], {_a(source)}, $in(b64), $in(b32), $true, 4;"


def _block_scaled(cta: str, kind: str, source: str, sparse: str, size: str, collector: str = "") -> str:
    return (
        f"tcgen05.mma{sparse}.{cta}.kind::{kind}.block_scale{size}{collector} "
        f"[$in(b32)], {_a(source)}, $in(b64),{_metadata(sparse)} $in(b32), [$in(b32)], [$in(b32)], $true;"
    )


def _block_collector(cta: str, kind: str, collector: str) -> str:
    size = ".block16" if kind == "mxf4nvf4" else ".block32"
    return _block_scaled(cta, kind, "shared", "", size, collector)


def _ws(kind: str, source: str, sparse: str, collector: str) -> str:
    return (
        f"tcgen05.mma.ws{sparse}.cta_group::1.kind::{kind}{collector} "
        f"[$in(b32)], {_a(source)}, $in(b64),{_metadata(sparse)} $in(b32), $true;"
    )


def _ws_zero_columns(kind: str, source: str) -> str:
    return f"tcgen05.mma.ws.cta_group::1.kind::{kind} [$in(b32)], {_a(source)}, $in(b64), $in(b32), $true, $in(b64);"


def _ws_elsewhere(form: str) -> str:
    if form == "cta_group::2":
        return "tcgen05.mma.ws.cta_group::2.kind::f16 [$in(b32)], $in(b64), $in(b64), $in(b32), $true;"
    return (
        "tcgen05.mma.ws.cta_group::1.kind::mxf4nvf4.block_scale.block16 "
        "[$in(b32)], $in(b64), $in(b64), $in(b32), [$in(b32)], [$in(b32)], $true;"
    )


FAMILIES = (
    Family(
        "tcgen05.mma",
        {"cta": _CTA_GROUPS, "kind": _KINDS, "source": _SOURCES, "sparse": _SPARSE, "collector": _COLLECTOR_A},
        _dense,
        _NATIVE,
    ),
    Family(
        "tcgen05.mma/ashift",
        {"cta": _CTA_GROUPS, "kind": _KINDS, "collector": ("", ".collector::a::use", ".collector::a::lastuse")},
        _ashift,
        _NATIVE,
    ),
    Family("tcgen05.mma/lane-mask", {"cta": _CTA_GROUPS, "kind": _KINDS, "source": _SOURCES}, _lane_mask, _NATIVE),
    Family("tcgen05.mma/scale-input", {"cta": _CTA_GROUPS, "kind": _KINDS, "source": _SOURCES}, _scale_input, _NATIVE),
    Family(
        "tcgen05.mma/block-scaled",
        {"cta": _CTA_GROUPS, "kind": _BLOCK_KINDS, "source": _SOURCES, "sparse": _SPARSE, "size": _SCALE_SIZES},
        _block_scaled,
        _NATIVE,
    ),
    Family(
        "tcgen05.mma/block-scaled/collector",
        {"cta": _CTA_GROUPS, "kind": _BLOCK_KINDS, "collector": _COLLECTOR_A[1:]},
        _block_collector,
        _NATIVE,
    ),
    Family(
        "tcgen05.mma.ws",
        {"kind": _KINDS, "source": _SOURCES, "sparse": _SPARSE, "collector": _COLLECTOR_B},
        _ws,
        _NATIVE,
    ),
    Family("tcgen05.mma.ws/zero-columns", {"kind": _KINDS, "source": _SOURCES}, _ws_zero_columns, _NATIVE),
    Family("tcgen05.mma.ws/other", {"form": ("cta_group::2", "block-scaled")}, _ws_elsewhere, _NATIVE),
)
