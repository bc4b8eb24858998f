"""Atomics and reductions, also across an NVLink multicast object. PTX ISA, "atom", "red", "red.async", "multimem"."""

from __future__ import annotations

from impls.isa.catalogue import Family

_INTEGER_OPS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch")
_SPACES = ("global", "shared::cta", "shared::cluster")


def _address(space: str) -> str:
    return "[$in(b32)]" if space.startswith("shared") else "[$in(b64)]"


def _atom(space: str, op: str, dtype: str) -> str:
    bits = f"b{dtype[1:]}"
    return f"atom.{space}.{op}.{dtype} $out({bits}), {_address(space)}, $in({bits});"


def _atom_float(op: str, space: str, dtype: str) -> str:
    bits = {"f64": "b64", "f32": "b32", "f16": "b16", "bf16": "b16"}.get(dtype, "b32")
    exact = ".noftz" if "16" in dtype else ""
    if op == "red":
        return f"red.{space}.add{exact}.{dtype} {_address(space)}, $in({bits});"
    return f"atom.{space}.add{exact}.{dtype} $out({bits}), {_address(space)}, $in({bits});"


def _atom_vector(op: str, width: str, reduction: str, dtype: str) -> str:
    bits = "b16" if dtype in ("f16", "bf16") else "b32"
    exact = "" if dtype == "f32" else ".noftz"
    count = width[1:]
    source = f"$in({bits}*{count})"
    if op == "red":
        return f"red.relaxed.gpu.global.{reduction}{exact}.{width}.{dtype} [$in(b64)], {source};"
    return f"atom.relaxed.gpu.global.{reduction}{exact}.{width}.{dtype} $out({bits}*{count}), [$in(b64)], {source};"


def _compare_and_swap(space: str, dtype: str) -> str:
    return f"atom.{space}.cas.{dtype} $out({dtype}), {_address(space)}, $in({dtype}), $in({dtype});"


def _exchange(space: str, dtype: str) -> str:
    return f"atom.{space}.exch.{dtype} $out({dtype}), {_address(space)}, $in({dtype});"


def _ordered(semantics: str, scope: str) -> str:
    return f"atom.{semantics}.{scope}.global.add.u32 $out(b32), [$in(b64)], $in(b32);"


def _red_async(op: str, dtype: str) -> str:
    bits = f"b{dtype[1:]}"
    return (
        f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op}.{dtype} "
        f"[$in(b32)], $in({bits}), [$in(b32)];"
    )


def _multimem_reduce(op: str, accumulate: str, dtype: str) -> str:
    width, element = ("", dtype) if "." not in dtype else (f".{dtype.split('.')[0]}", dtype.split(".")[1])
    count = int(width[2:]) if width else 0
    bits = "b64" if element.endswith("64") else "b32"
    out = f"$out({bits}*{count})" if count else f"$out({bits})"
    return f"multimem.ld_reduce.relaxed.sys.global.{op}{accumulate}{width}.{element} {out}, [$in(b64)];"


def _multimem_red(op: str, dtype: str) -> str:
    width, element = ("", dtype) if "." not in dtype else (f".{dtype.split('.')[0]}", dtype.split(".")[1])
    count = int(width[2:]) if width else 0
    bits = "b64" if element.endswith("64") else "b32"
    source = f"$in({bits}*{count})" if count else f"$in({bits})"
    return f"multimem.red.relaxed.sys.global.{op}{width}.{element} [$in(b64)], {source};"


_DIRECT = r"(ATOMG?|REDG?)\.E\.(?!CAS)|ATOMS\.(?!CAS)"
"""An atomic of this operation; a loop around a compare-and-swap is not one."""

_MULTIMEM_TYPES = ("u32", "s32", "u64", "f32", "v4.f32", "f16x2", "v4.f16x2", "bf16x2", "v4.bf16x2", "v4.e4m3x4", "v4.e5m2x4")

FAMILIES = (
    Family("atom", {"space": _SPACES, "op": _INTEGER_OPS, "dtype": ("u32", "s32", "b32", "u64", "b64")}, _atom, _DIRECT),
    Family(
        "atom/float",
        {"op": ("atom", "red"), "space": _SPACES, "dtype": ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")},
        _atom_float,
        _DIRECT,
    ),
    Family(
        "atom/vector",
        {
            "op": ("atom", "red"),
            "width": ("v2", "v4", "v8"),
            "reduction": ("add", "min", "max"),
            "dtype": ("f32", "f16", "bf16", "f16x2", "bf16x2"),
        },
        _atom_vector,
        _DIRECT,
    ),
    Family("atom.cas", {"space": _SPACES, "dtype": ("b16", "b32", "b64", "b128")}, _compare_and_swap, r"ATOM.*CAS(?!T)"),
    Family("atom.exch", {"space": _SPACES, "dtype": ("b32", "b64", "b128")}, _exchange, r"ATOM.*EXCH"),
    Family(
        "atom/ordered",
        {"semantics": ("relaxed", "acquire", "release", "acq_rel"), "scope": ("cta", "cluster", "gpu", "sys")},
        _ordered,
        _DIRECT,
    ),
    Family(
        "red.async",
        {"op": ("add", "min", "max", "inc", "dec", "and", "or", "xor"), "dtype": ("u32", "s32", "b32", "u64")},
        _red_async,
        r"REDAS",
    ),
    Family(
        "multimem.ld_reduce",
        {"op": ("add", "min", "max"), "accumulate": ("", ".acc::f32", ".acc::f16"), "dtype": _MULTIMEM_TYPES},
        _multimem_reduce,
        r"LDGMC",
    ),
    Family("multimem.red", {"op": ("add", "min", "max"), "dtype": _MULTIMEM_TYPES}, _multimem_red, r"REDG"),
    Family(
        "multimem.st",
        {"dtype": ("u32", "f32", "v4.f32", "v4.bf16x2")},
        lambda dtype: (
            f"multimem.st.relaxed.sys.global.{dtype} [$in(b64)], {'$in(b32*4)' if dtype.startswith('v4') else '$in(b32)'};"
        ),
        r"STG",
    ),
)
