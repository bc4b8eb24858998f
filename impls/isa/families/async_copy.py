"""Asynchronous copies without a tensor map. PTX ISA, "cp.async", "cp.async.bulk", "cp.reduce.async.bulk"."""

from __future__ import annotations

from impls.isa.catalogue import Family

_HINT = ("", ".L2::cache_hint")


def _policy(hint: str) -> str:
    return ", $in(b64)" if hint else ""


def _cp_async(cache: str, size: str, prefetch: str, hint: str) -> str:
    return f"cp.async.{cache}.shared.global{hint}{prefetch} [$in(b32)], [$in(b64)], {size}{_policy(hint)};"


def _cp_async_zero_fill(form: str) -> str:
    operand = {"src-size": "$in(b32)", "ignore-src": "$in(pred)"}[form]
    return f"cp.async.cg.shared.global [$in(b32)], [$in(b64)], 16, {operand};"


def _bulk_load(dst: str, hint: str, multicast: str = "") -> str:
    mask = ", $in(b16)" if multicast else ""
    return (
        f"cp.async.bulk.{dst}.global.mbarrier::complete_tx::bytes{multicast}{hint} "
        f"[$in(b32)], [$in(b64)], $in(b32), [$in(b32)]{mask}{_policy(hint)};"
    )


def _bulk_multicast(dst: str, hint: str) -> str:
    return _bulk_load(dst, hint, ".multicast::cluster")


def _bulk_store(hint: str, mask: str) -> str:
    byte_mask = ", $in(b16)" if mask else ""
    return (
        f"cp.async.bulk.global.shared::cta.bulk_group{hint}{mask} [$in(b64)], [$in(b32)], $in(b32){_policy(hint)}{byte_mask};"
    )


def _bulk_reduce(dst: str, op: str, dtype: str) -> str:
    exact = ".noftz" if dtype in ("f16", "bf16") and op == "add" else ""
    if dst == "shared::cluster":
        return (
            f"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{op}{exact}.{dtype} "
            "[$in(b32)], [$in(b32)], $in(b32), [$in(b32)];"
        )
    return f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}{exact}.{dtype} [$in(b64)], [$in(b32)], $in(b32);"


FAMILIES = (
    Family(
        "cp.async",
        {
            "cache": ("ca", "cg"),
            "size": ("4", "8", "16"),
            "prefetch": ("", ".L2::64B", ".L2::128B", ".L2::256B"),
            "hint": _HINT,
        },
        _cp_async,
        r"LDGSTS",
    ),
    Family("cp.async/zero-fill", {"form": ("src-size", "ignore-src")}, _cp_async_zero_fill, r"LDGSTS"),
    Family("cp.async.commit_group", {}, lambda: "cp.async.commit_group;", r"LDGDEPBAR"),
    Family("cp.async.wait_group", {"n": ("0", "3")}, lambda n: f"cp.async.wait_group {n};", r"DEPBAR"),
    Family("cp.async.wait_all", {}, lambda: "cp.async.wait_all;", r"DEPBAR|LDGDEPBAR"),
    Family(
        "cp.async.mbarrier.arrive",
        {"noinc": ("", ".noinc")},
        lambda noinc: f"cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [$in(b32)];",
        r"ARRIVES",
    ),
    Family(
        "cp.async.bulk/global-to-shared",
        {"dst": ("shared::cluster", "shared::cta"), "hint": _HINT},
        _bulk_load,
        r"UBLKCP\.S\.G",
    ),
    Family(
        "cp.async.bulk/multicast",
        {"dst": ("shared::cluster", "shared::cta"), "hint": _HINT},
        _bulk_multicast,
        r"UBLKCP.*MULTICAST",
    ),
    Family(
        "cp.async.bulk/shared-to-cluster",
        {},
        lambda: (
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
            "[$in(b32)], [$in(b32)], $in(b32), [$in(b32)];"
        ),
        r"UBLKCP",
    ),
    Family("cp.async.bulk/shared-to-global", {"hint": _HINT, "mask": ("", ".cp_mask")}, _bulk_store, r"UBLKCP"),
    Family(
        "cp.reduce.async.bulk",
        {
            "dst": ("shared::cluster", "global"),
            "op": ("and", "or", "xor", "add", "inc", "dec", "min", "max"),
            "dtype": ("b32", "b64", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"),
        },
        _bulk_reduce,
        r"UBLKRED",
    ),
    Family(
        "cp.async.bulk.prefetch",
        {"hint": _HINT},
        lambda hint: f"cp.async.bulk.prefetch.L2.global{hint} [$in(b64)], $in(b32){_policy(hint)};",
        r"UBLKPF",
    ),
    Family("cp.async.bulk.commit_group", {}, lambda: "cp.async.bulk.commit_group;", r"UTMACMDFLUSH"),
    Family(
        "cp.async.bulk.wait_group",
        {"n": ("0", "3"), "read": ("", ".read")},
        lambda n, read: f"cp.async.bulk.wait_group{read} {n};",
        r"DEPBAR",
    ),
)
