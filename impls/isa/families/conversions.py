"""Conversions to and from narrow floating point. PTX ISA, "cvt", "cvt.pack"."""

from __future__ import annotations

from impls.isa.catalogue import Family

_PAIRS = ("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2", "ue8m0x2", "ue4m3x2", "s2f6x2")
_QUADS = ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4")
_RELU, _SATFINITE = ("", ".relu"), ("", ".satfinite")
_HALVES = ("f16x2", "bf16x2")
_INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")


def _packed(pair: str) -> str:
    """Register type of two narrow values."""
    return "b8" if pair == "e2m1x2" else "b16"


def _from_f32(pair: str, rounding: str, saturate: str, relu: str) -> str:
    return f"cvt.{rounding}{saturate}{relu}.{pair}.f32 $out({_packed(pair)}), $in(b32), $in(b32);"


def _from_halves(pair: str, source: str, rounding: str, saturate: str, relu: str) -> str:
    return f"cvt.{rounding}{saturate}{relu}.{pair}.{source} $out({_packed(pair)}), $in(b32);"


def _to_halves(pair: str, to: str, relu: str) -> str:
    if pair != "e2m1x2":
        return f"cvt.rn{relu}.{to}.{pair} $out(b32), $in(b16);"
    return f".reg .b8 %low, %high; mov.b16 {{%low, %high}}, $in(b16); cvt.rn{relu}.{to}.{pair} $out(b32), %low;"


def _stochastic_quad(quad: str, relu: str, saturate: str) -> str:
    out = "b16" if quad == "e2m1x4" else "b32"
    return f"cvt.rs{relu}{saturate}.{quad}.f32 $out({out}), $in(b32*4), $in(b32);"


def _stochastic_pair(to: str, relu: str, saturate: str) -> str:
    return f"cvt.rs{relu}{saturate}.{to}.f32 $out(b32), $in(b32), $in(b32), $in(b32);"


def _halves(to: str, rounding: str, relu: str, saturate: str) -> str:
    return f"cvt.{rounding}{relu}{saturate}.{to}.f32 $out(b32), $in(b32), $in(b32);"


def _half(to: str, rounding: str, relu: str, saturate: str) -> str:
    return f"cvt.{rounding}{relu}{saturate}.{to}.f32 $out(b16), $in(b32);"


def _tf32(rounding: str, saturate: str, relu: str) -> str:
    return f"cvt.{rounding}{saturate}{relu}.tf32.f32 $out(b32), $in(b32);"


def _register(dtype: str) -> str:
    """Integers of 8 bits live in 16-bit registers here."""
    return f"b{max(16, int(dtype[1:]))}"


def _from_integer(to: str, source: str) -> str:
    return f"cvt.rn.{to}.{source} $out(b16), $in({_register(source)});"


def _to_integer(to: str, source: str) -> str:
    return f"cvt.rni.{to}.{source} $out({_register(to)}), $in(b16);"


def _pack(to: str, chained: str) -> str:
    third = ", $in(b32)" if chained else ""
    return f"cvt.pack.sat.{to}.s32{chained} $out(b32), $in(b32), $in(b32){third};"


_PACKING = r"F2FP|F2F"

FAMILIES = (
    Family(
        "cvt/f32-to-pair",
        {"pair": _PAIRS, "rounding": ("rn", "rz", "rp"), "saturate": _SATFINITE, "relu": _RELU},
        _from_f32,
        r"F2FP",
    ),
    Family(
        "cvt/halves-to-pair",
        {"pair": _PAIRS, "source": _HALVES, "rounding": ("rn", "rz"), "saturate": _SATFINITE, "relu": _RELU},
        _from_halves,
        r"F2FP",
    ),
    Family("cvt/pair-to-halves", {"pair": _PAIRS, "to": _HALVES, "relu": _RELU}, _to_halves, r"F2FP"),
    Family("cvt/stochastic-quad", {"quad": _QUADS, "relu": _RELU, "saturate": _SATFINITE}, _stochastic_quad, r"F2FP.*RS"),
    Family("cvt/stochastic-pair", {"to": _HALVES, "relu": _RELU, "saturate": _SATFINITE}, _stochastic_pair, r"F2FP.*RS"),
    Family(
        "cvt/f32-to-halves",
        {"to": _HALVES, "rounding": ("rn", "rz"), "relu": _RELU, "saturate": _SATFINITE},
        _halves,
        r"F2FP",
    ),
    Family(
        "cvt/f32-to-half",
        {"to": ("f16", "bf16"), "rounding": ("rn", "rz"), "relu": _RELU, "saturate": _SATFINITE},
        _half,
        _PACKING,
    ),
    Family("cvt/f32-to-tf32", {"rounding": ("rn", "rna", "rz"), "saturate": _SATFINITE, "relu": _RELU}, _tf32, r"F2F"),
    Family("cvt/integer-to-half", {"to": ("f16", "bf16"), "source": _INTEGERS}, _from_integer, r"I2F"),
    Family("cvt/half-to-integer", {"to": _INTEGERS, "source": ("f16", "bf16")}, _to_integer, r"F2I"),
    Family("cvt.pack", {"to": ("s16", "u16", "s8", "u8", "s4", "u4", "s2", "u2"), "chained": ("", ".b32")}, _pack, r"I2I|I2IP"),
)
