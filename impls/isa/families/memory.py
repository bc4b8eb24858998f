"""Loads and stores: width, cache policy, bulk and asynchronous forms. PTX ISA, "Data Movement and Conversion Instructions"."""

from __future__ import annotations

from impls.isa.catalogue import SOFTWARE, Family

_VECTORS = ("v2.b32", "v4.b32", "v8.b32", "v2.b64", "v4.b64", "b128")


def _register(vector: str, role: str) -> str:
    if "." not in vector:
        return f"${role}({vector})"
    width, dtype = vector.split(".")
    return f"${role}({dtype}*{width[1:]})"


def _load(space: str, cache: str, vector: str) -> str:
    address = "$in(b32)" if space.startswith("shared") else "$in(b64)"
    return f"ld.{space}{cache}.{vector} {_register(vector, 'out')}, [{address}];"


def _store(space: str, cache: str, vector: str) -> str:
    address = "$in(b32)" if space.startswith("shared") else "$in(b64)"
    return f"st.{space}{cache}.{vector} [{address}], {_register(vector, 'in')};"


def _ordered_load(semantics: str, scope: str) -> str:
    return f"ld.{semantics}.{scope}.global.b32 $out(b32), [$in(b64)];"


def _eviction(level: str, vector: str) -> str:
    return f"ld.global.{level}.{vector} {_register(vector, 'out')}, [$in(b64)];"


def _cache_hint(op: str, vector: str) -> str:
    if op == "ld":
        return f"ld.global.L2::cache_hint.{vector} {_register(vector, 'out')}, [$in(b64)], $in(b64);"
    return f"st.global.L2::cache_hint.{vector} [$in(b64)], {_register(vector, 'in')}, $in(b64);"


def _st_async(form: str, vector: str) -> str:
    if form == "mbarrier":
        return (
            f"st.async.shared::cluster.mbarrier::complete_tx::bytes.{vector} [$in(b32)], {_register(vector, 'in')}, [$in(b32)];"
        )
    return f"st.async.mmio.release.sys.global.{vector} [$in(b64)], {_register(vector, 'in')};"


def _policy(primary: str, form: str) -> str:
    if form == "fractional":
        return f"createpolicy.fractional.{primary}.b64 $out(b64), 0.5;"
    return f"createpolicy.range.global.{primary}.b64 $out(b64), [$in(b64)], $in(b32), $in(b32);"


FAMILIES = (
    Family(
        "ld.global", {"space": ("global",), "cache": ("", ".nc", ".ca", ".cg", ".cs", ".lu"), "vector": _VECTORS}, _load, r"LDG"
    ),
    Family("ld.shared", {"space": ("shared::cta", "shared::cluster"), "cache": ("",), "vector": _VECTORS}, _load, r"LD"),
    Family("st.global", {"space": ("global",), "cache": ("", ".wb", ".cg", ".cs", ".wt"), "vector": _VECTORS}, _store, r"STG"),
    Family("st.shared", {"space": ("shared::cta", "shared::cluster"), "cache": ("",), "vector": _VECTORS}, _store, r"ST"),
    Family(
        "ld/ordered",
        {"semantics": ("relaxed", "acquire"), "scope": ("cta", "cluster", "gpu", "sys")},
        _ordered_load,
        r"LDG",
    ),
    Family(
        "ld/eviction",
        {
            "level": (
                "L1::evict_first",
                "L1::evict_last",
                "L1::no_allocate",
                "L1::evict_unchanged",
                "L2::evict_first",
                "L2::evict_last",
                "L2::evict_normal",
                "L2::64B",
                "L2::128B",
                "L2::256B",
            ),
            "vector": ("v4.b32", "v8.b32", "v4.b64"),
        },
        _eviction,
        r"LDG",
    ),
    Family("cache-hint", {"op": ("ld", "st"), "vector": ("v4.b32", "v8.b32")}, _cache_hint, r"LDG|STG"),
    Family(
        "createpolicy",
        {"primary": ("L2::evict_last", "L2::evict_first", "L2::evict_unchanged"), "form": ("fractional", "range")},
        _policy,
        SOFTWARE,
    ),
    Family(
        "prefetch",
        {"level": ("global.L1", "global.L2", "global.L2::evict_last", "global.L2::evict_normal")},
        lambda level: f"prefetch.{level} [$in(b64)];",
        r"CCTL",
    ),
    Family("discard", {}, lambda: "discard.global.L2 [$in(b64)], 128;", r"CCTL"),
    Family("applypriority", {}, lambda: "applypriority.global.L2::evict_normal [$in(b64)], 128;", r"CCTL"),
    Family(
        "st.async", {"form": ("mbarrier", "mmio"), "vector": ("b32", "b64", "v2.b32", "v4.b32")}, _st_async, r"STAS|U?ST.*MMIO"
    ),
    Family(
        "st.bulk",
        {"weak": ("", ".weak"), "space": (".shared::cta",)},
        lambda weak, space: f"st.bulk{weak}{space} [$in(b32)], $in(b64), 0;",
        r"UMEMSETS",
    ),
)
