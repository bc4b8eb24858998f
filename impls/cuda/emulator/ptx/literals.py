"""Numbers as PTX writes them."""

from __future__ import annotations

import re
import struct

from impls.cuda.emulator.ptx.syntax import TYPE_BYTES, Immediate

NUMBER = re.compile(
    r"(?P<f32>0[fF][0-9a-fA-F]{8})"
    r"|(?P<f64>0[dD][0-9a-fA-F]{16})"
    r"|(?P<decimal>-?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|-?\d+[eE][+-]?\d+)"
    r"|(?P<sign>-?)(?:0[xX](?P<hex>[0-9a-fA-F]{1,16})|0[bB](?P<binary>[01]{1,64})|0(?P<octal>[0-7]{1,22})"
    r"|(?P<int>0|[1-9]\d{0,19}))U?",
    re.ASCII,
)
_FORMATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


def number(text: str) -> Immediate | None:
    """The literal, or None if `text` is none."""
    match = NUMBER.fullmatch(text)
    if match is None:
        return None
    if match["f32"]:
        return Immediate(int(text[2:], 16), "f32")
    if match["f64"]:
        return Immediate(int(text[2:], 16), "f64")
    if match["decimal"]:
        return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), "f64")
    digits = {"hex": 16, "binary": 2, "octal": 8, "int": 10}
    size = next(int(match[group], base) for group, base in digits.items() if match[group])
    return Immediate(-size if match["sign"] else size)


def stored(value: Immediate, kind: str) -> bytes | None:
    """The bytes that initialise an element of type `kind`, or None where a literal of that sort cannot."""
    width = TYPE_BYTES[kind]
    if kind not in _FORMATS:
        return (value.value % (1 << 8 * width)).to_bytes(width, "little") if value.kind == "int" else None
    if value.kind == kind:
        return value.value.to_bytes(width, "little")
    try:
        return struct.pack(_FORMATS[kind], _real(value))
    except OverflowError:
        return None


def _real(value: Immediate) -> float:
    if value.kind == "int":
        return float(value.value)
    real: float
    (real,) = struct.unpack(_FORMATS[value.kind], value.value.to_bytes(TYPE_BYTES[value.kind], "little"))
    return real
