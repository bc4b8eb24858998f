"""Matrix fragments between shared memory and registers. PTX ISA, "ldmatrix", "stmatrix", "movmatrix"."""

from __future__ import annotations

from impls.isa.catalogue import Family

_REPEATS = ("x1", "x2", "x4")
_TRANSPOSE = ("", ".trans")
_NARROW = (".b8x16.b6x16_p32", ".b8x16.b4x16_p64")
"""4- and 6-bit elements widened to bytes while they are loaded."""


def _ldmatrix(repeat: str, transpose: str, space: str) -> str:
    address = "$in(b32)" if space else "$in(b64)"
    return f"ldmatrix.sync.aligned.m8n8.{repeat}{transpose}{space}.b16 $out(b32*{repeat[1:]}), [{address}];"


def _ldmatrix_m16n16(repeat: str, transpose: str, form: str) -> str:
    dtype = form or ".b8"
    return f"ldmatrix.sync.aligned.m16n16.{repeat}{transpose}.shared{dtype} $out(b32*{2 * int(repeat[1:])}), [$in(b32)];"


def _ldmatrix_m8n16(repeat: str, transpose: str, form: str) -> str:
    return f"ldmatrix.sync.aligned.m8n16.{repeat}{transpose}.shared{form} $out(b32*{repeat[1:]}), [$in(b32)];"


def _stmatrix(shape: str, repeat: str, transpose: str) -> str:
    dtype = "b16" if shape == "m8n8" else "b8"
    return f"stmatrix.sync.aligned.{shape}.{repeat}{transpose}.shared.{dtype} [$in(b32)], $in(b32*{repeat[1:]});"


FAMILIES = (
    Family(
        "ldmatrix/m8n8",
        {"repeat": _REPEATS, "transpose": _TRANSPOSE, "space": ("", ".shared", ".shared::cta")},
        _ldmatrix,
        r"LDSM",
    ),
    Family("ldmatrix/m16n16", {"repeat": _REPEATS, "transpose": _TRANSPOSE, "form": ("", *_NARROW)}, _ldmatrix_m16n16, r"LDSM"),
    Family("ldmatrix/m8n16", {"repeat": _REPEATS, "transpose": _TRANSPOSE, "form": _NARROW}, _ldmatrix_m8n16, r"LDSM"),
    Family("stmatrix", {"shape": ("m8n8", "m16n8"), "repeat": _REPEATS, "transpose": _TRANSPOSE}, _stmatrix, r"STSM"),
    Family("movmatrix", {}, lambda: "movmatrix.sync.aligned.m8n8.trans.b16 $out(b32), $in(b32);", r"MOVM"),
)
