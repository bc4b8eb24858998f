"""Tensor memory: allocation, loads, stores, copies from shared memory, completion. PTX ISA, "TensorCore 5th generation"."""

from __future__ import annotations

from impls.isa.catalogue import Family

_CTA_GROUPS = ("cta_group::1", "cta_group::2")
_COLUMNS = ("16", "32", "48", "64", "128", "256", "512", "1024")
_REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""32-bit registers at .x1."""
_REPEATS = ("x1", "x2", "x4", "x8", "x16", "x32", "x64", "x128")


def _registers(shape: str, repeat: str, role: str) -> str:
    return f"${role}(b32*{_REGISTERS[shape] * int(repeat[1:])})"


def _second_half(shape: str) -> str:
    """16x32bx2 reads two pieces; the immediate is the distance of the second."""
    return ", 16" if shape == "16x32bx2" else ""


def _alloc(cta: str, columns: str) -> str:
    return f"tcgen05.alloc.{cta}.sync.aligned.shared::cta.b32 [$in(b32)], {columns};"


def _dealloc(cta: str, columns: str) -> str:
    return f"tcgen05.dealloc.{cta}.sync.aligned.b32 $in(b32), {columns};"


def _load(shape: str, repeat: str, pack: str) -> str:
    out = _registers(shape, repeat, "out")
    load = f"tcgen05.ld.sync.aligned.{shape}.{repeat}{pack}.b32 {out}, [$in(b32)]{_second_half(shape)};"
    return f"{load} tcgen05.wait::ld.sync.aligned;"


def _store(shape: str, repeat: str, unpack: str) -> str:
    source = _registers(shape, repeat, "in")
    return f"tcgen05.st.sync.aligned.{shape}.{repeat}{unpack}.b32 [$in(b32)]{_second_half(shape)}, {source};"


def _reduce(shape: str, repeat: str, op: str, dtype: str) -> str:
    out = _registers(shape, repeat, "out")
    return (
        f"tcgen05.ld.red.sync.aligned.{shape}.{repeat}.{op}.{dtype} {out}, $out(b32), [$in(b32)]{_second_half(shape)}; "
        "tcgen05.wait::ld.sync.aligned;"
    )


def _copy(cta: str, shape: str, decompress: str) -> str:
    return f"tcgen05.cp.{cta}.{shape}{decompress} [$in(b32)], $in(b64);"


def _commit(cta: str, space: str, multicast: str) -> str:
    mask = ", $in(b16)" if multicast else ""
    address = "$in(b32)" if space else "$in(b64)"
    return f"tcgen05.commit.{cta}.mbarrier::arrive::one{space}{multicast}.b64 [{address}]{mask};"


FAMILIES = (
    Family("tcgen05.alloc", {"cta": _CTA_GROUPS, "columns": _COLUMNS}, _alloc, r"UTCATOMSWS"),
    Family("tcgen05.alloc/register", {"cta": _CTA_GROUPS}, lambda cta: _alloc(cta, "$in(b32)"), r"UTCATOMSWS"),
    Family("tcgen05.dealloc", {"cta": _CTA_GROUPS, "columns": _COLUMNS}, _dealloc, r"UTCATOMSWS"),
    Family("tcgen05.dealloc/register", {"cta": _CTA_GROUPS}, lambda cta: _dealloc(cta, "$in(b32)"), r"UTCATOMSWS"),
    Family(
        "tcgen05.relinquish_alloc_permit",
        {"cta": _CTA_GROUPS},
        lambda cta: f"tcgen05.relinquish_alloc_permit.{cta}.sync.aligned;",
        r"UVIRTCOUNT",
    ),
    Family("tcgen05.ld", {"shape": tuple(_REGISTERS), "repeat": _REPEATS, "pack": ("", ".pack::16b")}, _load, r"LDTM"),
    Family("tcgen05.st", {"shape": tuple(_REGISTERS), "repeat": _REPEATS, "unpack": ("", ".unpack::16b")}, _store, r"STTM"),
    Family(
        "tcgen05.ld.red",
        {
            "shape": ("32x32b", "16x32bx2"),
            "repeat": ("x1", "x2", "x8", "x32", "x128"),
            "op": ("min", "max", "min.abs", "max.abs.NaN"),
            "dtype": ("f32", "u32", "s32"),
        },
        _reduce,
        r"LDTM.*(MIN|MAX)",
    ),
    Family(
        "tcgen05.wait",
        {"what": ("ld", "st")},
        lambda what: f"tcgen05.wait::{what}.sync.aligned;",
        r"FENCE\.VIEW\.ASYNC\.T",
    ),
    Family(
        "tcgen05.cp",
        {
            "cta": _CTA_GROUPS,
            "shape": (
                "128x256b",
                "4x256b",
                "128x128b",
                "64x128b",
                "64x128b.warpx2::02_13",
                "64x128b.warpx2::01_23",
                "32x128b",
                "32x128b.warpx4",
            ),
            "decompress": ("", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64"),
        },
        _copy,
        r"UTCCP",
    ),
    Family("tcgen05.shift", {"cta": _CTA_GROUPS}, lambda cta: f"tcgen05.shift.{cta}.down [$in(b32)];", r"UTCSHIFT"),
    Family(
        "tcgen05.commit",
        {"cta": _CTA_GROUPS, "space": ("", ".shared::cluster"), "multicast": ("", ".multicast::cluster")},
        _commit,
        r"UTCBAR",
    ),
    Family(
        "tcgen05.fence",
        {"side": ("before_thread_sync", "after_thread_sync")},
        lambda side: f"tcgen05.fence::{side};",
        r"FENCE|MEMBAR",
    ),
)
