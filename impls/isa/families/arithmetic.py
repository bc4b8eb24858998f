"""Arithmetic that attention kernels lean on: packed, mixed and approximate floats, integers and bits.

PTX ISA, "Floating Point Instructions", "Half Precision", "Mixed Precision", "Integer Arithmetic", "Logic and Shift".
"""

from __future__ import annotations

from impls.isa.catalogue import Family

_FTZ, _SAT = ("", ".ftz"), ("", ".sat")
_ROUNDINGS = ("rn", "rz", "rm", "rp")


def _pair(op: str, rounding: str, ftz: str) -> str:
    third = ", $in(b64)" if op == "fma" else ""
    return f"{op}.{rounding}{ftz}.f32x2 $out(b64), $in(b64), $in(b64){third};"


def _minmax(op: str, ftz: str, nan: str, sign: str) -> str:
    return f"{op}{ftz}{nan}{sign}.f32 $out(b32), $in(b32), $in(b32);"


def _minmax_of_three(op: str, ftz: str, nan: str, sign: str) -> str:
    return f"{op}{ftz}{nan}{sign}.f32 $out(b32), $in(b32), $in(b32), $in(b32);"


def _half_minmax(op: str, dtype: str, ftz: str, nan: str, sign: str) -> str:
    bits = "b32" if dtype.endswith("x2") else "b16"
    return f"{op}{ftz}{nan}{sign}.{dtype} $out({bits}), $in({bits}), $in({bits});"


def _half_fma(dtype: str, ftz: str, clamp: str) -> str:
    bits = "b32" if dtype.endswith("x2") else "b16"
    return f"fma.rn{ftz}{clamp}.{dtype} $out({bits}), $in({bits}), $in({bits}), $in({bits});"


def _half_arithmetic(op: str, dtype: str, ftz: str, sat: str) -> str:
    bits = "b32" if dtype.endswith("x2") else "b16"
    return f"{op}.rn{ftz}{sat}.{dtype} $out({bits}), $in({bits}), $in({bits});"


def _mixed(op: str, source: str, rounding: str, sat: str) -> str:
    if op == "fma":
        return f"fma.{rounding}{sat}.f32.{source} $out(b32), $in(b16), $in(b16), $in(b32);"
    return f"{op}.{rounding}{sat}.f32.{source} $out(b32), $in(b16), $in(b32);"


def _approximate(op: str, dtype: str) -> str:
    bits = "b32" if dtype.endswith(("x2", "f32")) else "b16"
    return f"{op}.{dtype} $out({bits}), $in({bits});"


def _dot(op: str, a: str, b: str) -> str:
    return f"{op}.{a}.{b} $out(b32), $in(b32), $in(b32), $in(b32);"


def _packed_integer(op: str, dtype: str, relu: str) -> str:
    return f"{op}{relu}.{dtype} $out(b32), $in(b32), $in(b32);"


def _redux(op: str, dtype: str) -> str:
    return f"redux.sync.{op}.{dtype} $out(b32), $in(b32), -1;"


_HALF_TYPES = ("f16", "f16x2", "bf16", "bf16x2")

FAMILIES = (
    Family("f32x2", {"op": ("add", "sub", "mul", "fma"), "rounding": _ROUNDINGS, "ftz": _FTZ}, _pair, r"F(ADD|MUL|FMA)2"),
    *(
        Family(
            f"minmax/{name}",
            {"op": ("min", "max"), "ftz": _FTZ, "nan": ("", ".NaN"), "sign": ("", ".xorsign.abs", ".abs")},
            ptx,
            native,
        )
        for name, ptx, native in (("f32", _minmax, r"FMNMX\b"), ("f32x3", _minmax_of_three, r"FMNMX3"))
    ),
    Family(
        "minmax/half",
        {"op": ("min", "max"), "dtype": _HALF_TYPES, "ftz": _FTZ, "nan": ("", ".NaN"), "sign": ("", ".xorsign.abs")},
        _half_minmax,
        r"HMNMX2|VHMNMX",
    ),
    Family("fma/half", {"dtype": _HALF_TYPES, "ftz": _FTZ, "clamp": ("", ".sat", ".relu", ".oob")}, _half_fma, r"HFMA2"),
    Family(
        "arithmetic/half",
        {"op": ("add", "sub", "mul"), "dtype": _HALF_TYPES, "ftz": _FTZ, "sat": _SAT},
        _half_arithmetic,
        r"H(ADD|MUL|FMA)2",
    ),
    Family(
        "arithmetic/mixed",
        {"op": ("add", "sub", "fma"), "source": ("f16", "bf16"), "rounding": _ROUNDINGS, "sat": _SAT},
        _mixed,
        r"FH(ADD|FMA)",
    ),
    Family(
        "approximate",
        {
            "op": (
                "ex2.approx",
                "ex2.approx.ftz",
                "tanh.approx",
                "rcp.approx",
                "rcp.approx.ftz",
                "sqrt.approx",
                "rsqrt.approx",
            ),
            "dtype": ("f32", *_HALF_TYPES),
        },
        _approximate,
        r"MUFU",
    ),
    Family(
        "approximate/log",
        {"op": ("lg2.approx", "lg2.approx.ftz", "sin.approx", "cos.approx"), "dtype": ("f32", "f16")},
        _approximate,
        r"MUFU",
    ),
    Family("dp4a", {"op": ("dp4a",), "a": ("s32", "u32"), "b": ("s32", "u32")}, _dot, r"IDP\.4A"),
    Family("dp2a", {"op": ("dp2a.lo", "dp2a.hi"), "a": ("s32", "u32"), "b": ("s32", "u32")}, _dot, r"IDP\.2A"),
    Family(
        "packed-integer",
        {"op": ("add", "min", "max"), "dtype": ("s16x2", "u16x2"), "relu": ("", ".relu")},
        _packed_integer,
        r"VIADD|VIMNMX|VIADDMNMX|VIMNMX3",
    ),
    Family("redux.sync/integer", {"op": ("add", "min", "max"), "dtype": ("s32", "u32")}, _redux, r"C?REDUX"),
    Family("redux.sync/bits", {"op": ("and", "or", "xor"), "dtype": ("b32",)}, _redux, r"C?REDUX"),
    Family(
        "redux.sync/f32",
        {"op": ("min", "max", "min.abs", "max.abs", "min.NaN", "max.NaN", "min.abs.NaN", "max.abs.NaN"), "dtype": ("f32",)},
        _redux,
        r"C?REDUX",
    ),
    Family(
        "lop3",
        {"form": ("0xE8", "or.predicate")},
        lambda form: (
            "lop3.b32 $out(b32), $in(b32), $in(b32), $in(b32), 0xE8;"
            if form == "0xE8"
            else "lop3.or.b32 $out(b32)|$out(pred), $in(b32), $in(b32), $in(b32), 0xE8, $in(pred);"
        ),
        r"LOP3",
    ),
    Family(
        "prmt",
        {"mode": ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16")},
        lambda mode: f"prmt.b32{mode} $out(b32), $in(b32), $in(b32), $in(b32);",
        r"PRMT",
    ),
    Family(
        "shf",
        {"side": ("l", "r"), "mode": ("clamp", "wrap")},
        lambda side, mode: f"shf.{side}.{mode}.b32 $out(b32), $in(b32), $in(b32), $in(b32);",
        r"SHF",
    ),
    Family(
        "bits",
        {"op": ("popc.b32", "clz.b32", "brev.b32", "bfind.u32", "bfind.shiftamt.s32")},
        lambda op: f"{op} $out(b32), $in(b32);",
        r"POPC|FLO|BREV",
    ),
    Family("bmsk", {"mode": ("clamp", "wrap")}, lambda mode: f"bmsk.{mode}.b32 $out(b32), $in(b32), $in(b32);", r"BMSK"),
    Family(
        "szext",
        {"mode": ("clamp", "wrap"), "dtype": ("u32", "s32")},
        lambda mode, dtype: f"szext.{mode}.{dtype} $out(b32), $in(b32), $in(b32);",
        r"SGXT",
    ),
    Family(
        "shfl.sync",
        {"mode": ("up", "down", "bfly", "idx")},
        lambda mode: f"shfl.sync.{mode}.b32 $out(b32)|$out(pred), $in(b32), $in(b32), 31, -1;",
        r"SHFL",
    ),
    Family(
        "vote.sync",
        {"mode": ("all", "any", "uni")},
        lambda mode: f"vote.sync.{mode}.pred $out(pred), $in(pred), -1;",
        r"U?VOTE",
    ),
    Family(
        "match.sync",
        {"mode": ("any", "all"), "dtype": ("b32", "b64")},
        lambda mode, dtype: f"match.{mode}.sync.{dtype} $out(b32), $in({dtype}), -1;",
        r"MATCH",
    ),
    Family(
        "mad.wide",
        {"dtype": ("s32", "u32")},
        lambda dtype: f"mad.wide.{dtype} $out(b64), $in(b32), $in(b32), $in(b64);",
        r"IMAD\.WIDE",
    ),
)
