"""Warpgroup MMA: every N, both places of A. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate"."""

from __future__ import annotations

from impls.isa.catalogue import Family

_N = tuple(str(n) for n in range(8, 257, 8))
_K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_SOURCES = ("registers", "shared")
"""Where A comes from; B always comes from shared memory, through a descriptor."""
_WARPGROUP = ".reqntid 128"


def _async(multiply: str) -> str:
    """The three steps around an asynchronous MMA, without which its accumulators must not be read."""
    return f"wgmma.fence.sync.aligned; {multiply} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


def _immediates(a: str, source: str, signs: bool) -> str:
    """scale-d and, for floats, the signs of A and B; for 16-bit operands in shared memory whether they are transposed."""
    parts = ["$true"] + (["1", "1"] if signs else [])
    if a in ("f16", "bf16"):
        parts += ["0", "0"] if source == "shared" else ["0"]
    return ", ".join(parts)


def _mma(n: str, d: str, a: str, b: str, source: str, sparse: bool = False) -> str:
    op = "wgmma.mma_async.sp" if sparse else "wgmma.mma_async"
    registers = int(n) // (4 if d == "f16" else 2)
    from_a = "$in(b32*4)" if source == "registers" else "$in(b64)"
    metadata = " $in(b32), 0," if sparse else ""
    floating = a not in ("s8", "u8", "b1")
    extra = ".and.popc" if a == "b1" else ""
    return _async(
        f"{op}.sync.aligned.m64n{n}k{_K[a] * (2 if sparse else 1)}.{d}.{a}.{b}{extra} "
        f"$io(b32*{registers}), {from_a}, $in(b64),{metadata} {_immediates(a, source, floating)};"
    )


def _dense(n: str, types: str, source: str) -> str:
    d, a, b = types.split(".")
    return _mma(n, d, a, b, source)


def _sparse(n: str, types: str, source: str) -> str:
    d, a, b = types.split(".")
    return _mma(n, d, a, b, source, sparse=True)


def _transposed(types: str, a: str, b: str) -> str:
    d, ta, tb = types.split(".")
    return _async(
        f"wgmma.mma_async.sync.aligned.m64n64k16.{d}.{ta}.{tb} $io(b32*{16 if d == 'f16' else 32}), $in(b64), $in(b64), "
        f"$true, 1, 1, {a}, {b};"
    )


_SWEPT = ("f32.f16.f16", "f16.f16.f16", "f32.bf16.bf16", "f32.tf32.tf32", "f32.e4m3.e4m3", "s32.s8.s8")
_OTHERS = (
    "f32.e4m3.e5m2",
    "f32.e5m2.e4m3",
    "f32.e5m2.e5m2",
    "f16.e4m3.e4m3",
    "f16.e5m2.e5m2",
    "s32.u8.u8",
    "s32.s8.u8",
    "s32.b1.b1",
)
_NATIVE = r"[HQIB]GMMA"

FAMILIES = (
    Family("wgmma", {"n": _N, "types": _SWEPT, "source": _SOURCES}, _dense, _NATIVE, _WARPGROUP),
    Family("wgmma/types", {"n": ("8", "64", "256"), "types": _OTHERS, "source": _SOURCES}, _dense, _NATIVE, _WARPGROUP),
    Family(
        "wgmma.sp",
        {"n": ("8", "64", "256"), "types": (*_SWEPT, "f32.e5m2.e5m2", "s32.u8.u8"), "source": _SOURCES},
        _sparse,
        _NATIVE,
        _WARPGROUP,
    ),
    Family(
        "wgmma/transpose",
        {"types": ("f32.f16.f16", "f32.bf16.bf16", "f16.f16.f16"), "a": ("0", "1"), "b": ("0", "1")},
        _transposed,
        _NATIVE,
        _WARPGROUP,
    ),
    Family("wgmma.fence", {}, lambda: "wgmma.fence.sync.aligned;", r"WARPSYNC|WARPGROUP", _WARPGROUP),
    Family("wgmma.commit_group", {}, lambda: "wgmma.commit_group.sync.aligned;", r"WARPGROUP", _WARPGROUP),
    Family(
        "wgmma.wait_group", {"n": ("0", "1", "7")}, lambda n: f"wgmma.wait_group.sync.aligned {n};", r"WARPGROUP", _WARPGROUP
    ),
)
