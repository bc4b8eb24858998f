"""The forms of mma.sync: which qualifiers go together on which target, and which arithmetic the target gives them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from impls.cuda.emulator.errors import Unknown
from impls.cuda.emulator.rules import family
from impls.cuda.emulator.tensor_cores.formats import FORMATS, Format, through_half
from impls.cuda.emulator.tensor_cores.multiply import BlockScaledMma, ConvertedMma, IntegerMma, Mma, WindowedMma
from impls.cuda.emulator.tensor_cores.rounding import Output

_FP8 = ("e4m3", "e5m2")
_NARROW = (*_FP8, "e3m2", "e2m3", "e2m1")
_BITS = {"f16": 16, "bf16": 16, "tf32": 32}
_TYPE = re.compile(r"f16|bf16|f32|tf32|f64|[su](4|8|32)|b1|e\dm\d|ue\dm\d")


@dataclass(frozen=True)
class _Qualifiers:
    """What the modifiers say, whatever their order."""

    text: str
    shape: str
    kind: str
    """After kind::, or "" where there is none."""
    scale_vector: str
    d_type: str
    a_type: str
    b_type: str
    c_type: str
    scale_type: str
    satfinite: bool

    def unknown(self, why: str) -> Unknown:
        return Unknown(f"mma.{self.text} is not known: {why}.")


@cache
def mma(modifiers: tuple[str, ...], target: str) -> Mma:
    """The instruction `mma` with `modifiers` on `target`; Unknown if it is not to be had there, or not here."""
    said = _read(modifiers)
    generation = _family(target)
    if said.scale_type:
        return _block_scaled(said, target)
    if said.a_type in ("s8", "u8"):
        return _integers(said)
    return _floats(said, generation, target)


def _read(modifiers: tuple[str, ...]) -> _Qualifiers:
    text = ".".join(modifiers)
    rest = list(modifiers)
    for needed in ("sync", "aligned", "row", "col"):
        if needed not in rest:
            raise Unknown(f"mma.{text} is not known: it has no .{needed}.")
        rest.remove(needed)
    if modifiers.index("row") > modifiers.index("col"):
        raise Unknown(f"mma.{text} is not known: A must be .row and B .col.")
    shapes = [word for word in rest if re.fullmatch(r"m\d+n\d+k\d+", word)]
    kinds = [word for word in rest if word.startswith("kind::")]
    vectors = [word for word in rest if word.startswith("scale_vec::")]
    flags = [word for word in rest if word in ("block_scale", "satfinite")]
    types = [word for word in rest if _TYPE.fullmatch(word)]
    others = set(rest) - {*shapes, *kinds, *vectors, *flags, *types}
    if others:
        raise Unknown(f"mma.{text} is not known: it has .{min(others)}.")
    scaled = "block_scale" in flags
    if len(shapes) != 1 or len(kinds) > 1 or len(vectors) > scaled or len(types) != 4 + scaled or len(set(flags)) != len(flags):
        raise Unknown(f"mma.{text} is not known: it needs one shape, four types, and a scale type with .block_scale only.")
    return _Qualifiers(
        text=text,
        shape=shapes[0],
        kind=kinds[0].removeprefix("kind::") if kinds else "",
        scale_vector=vectors[0].removeprefix("scale_vec::") if vectors else "",
        d_type=types[0],
        a_type=types[1],
        b_type=types[2],
        c_type=types[3],
        scale_type=types[4] if scaled else "",
        satfinite="satfinite" in flags,
    )


def _family(target: str) -> str:
    found = family(target)
    if found is None:
        raise Unknown(f"the tensor cores of {target} are not known.")
    return found


def _registers(shape: tuple[int, int, int], bits: int) -> tuple[int, int]:
    """32-bit registers of A and of B in each lane."""
    m, n, k = shape
    return m * k * bits // 1024, n * k * bits // 1024


def _floats(said: _Qualifiers, generation: str, target: str) -> Mma:
    kind = said.kind or ("fp8" if said.a_type in _FP8 else said.a_type)
    fp8 = said.a_type in _FP8 and said.b_type in _FP8
    architecture_specific = target.endswith(("a", "f"))
    k, accumulators = {
        "f16": ((8, 16), ("f16", "f32")),
        "bf16": ((8, 16), ("f32",)),
        "tf32": ((4, 8), ("f32",)),
        "fp8": ((16, 32), ("f16", "f32")),
        "f8f6f4": ((16, 32) if fp8 else (32,), ("f16", "f32")),
    }.get(kind, ((), ()))
    if not k or said.kind not in ("", "f8f6f4") or said.satfinite:
        raise said.unknown("the PTX ISA has no such types, or not with these qualifiers")
    if kind in ("fp8", "f8f6f4"):
        _require_types(said, _FP8 if kind == "fp8" else _NARROW)
        if generation == "ampere" or (kind == "f8f6f4" and generation in ("ada", "hopper")):
            raise said.unknown(f"{target} does not have it")
        if kind == "f8f6f4" and not (architecture_specific and (generation == "rtx blackwell" or fp8)):
            raise said.unknown(f"{target} does not have it")
    else:
        _require_types(said, (said.a_type,))
        if said.a_type != said.b_type:
            raise said.unknown("A and B must have the same type")
    shape = _shape(said, k)
    if said.c_type not in accumulators or said.d_type != said.c_type:
        raise said.unknown(f"C and D must be of one type, {' or '.join(accumulators)}")
    bits = _BITS.get(said.a_type, 8)
    return _windowed(said, generation, kind, shape, _registers(shape, bits))


def _windowed(said: _Qualifiers, generation: str, kind: str, shape: tuple[int, int, int], registers: tuple[int, int]) -> Mma:
    narrow = kind in ("fp8", "f8f6f4")
    form, window, parts, rule = WindowedMma, 25, 1, "mma 25-bit window"
    a_format, b_format = FORMATS[said.a_type], FORMATS[said.b_type]
    output: Output = "f16" if said.d_type == "f16" else "f32"
    if narrow and generation in ("hopper", "blackwell"):
        assert isinstance(a_format, Format) and isinstance(b_format, Format)
        form, rule = ConvertedMma, "mma fp8 as two f16 MMAs"
        a_format, b_format = through_half(a_format), through_half(b_format)
    elif generation in ("ampere", "ada"):
        parts = 2 if registers[0] == 4 else 1
        window, rule = (13, "mma 13-bit window") if narrow else (24, "mma 24-bit window")
        if narrow and output == "f32":
            output = "f32 of 13 bits"
    return form(
        shape=shape,
        kind=kind,
        a_type=said.a_type,
        b_type=said.b_type,
        accumulator=said.c_type,
        a_registers=registers[0],
        b_registers=registers[1],
        rules=("mma fragments", rule, *(["mma f16 result"] if output == "f16" else [])),
        scale_count=0,
        window=window,
        parts=parts,
        output=output,
        a_format=a_format,
        b_format=b_format,
    )


_SCALED = {  # kind: K, and the scale vectors with their scale types; the first is the one that need not be said
    "mxf8f6f4": (32, (("1X", "ue8m0"), ("", "ue8m0"))),
    "mxf4": (64, (("2X", "ue8m0"), ("", "ue8m0"))),
    "mxf4nvf4": (64, (("2X", "ue8m0"), ("4X", "ue4m3"), ("4X", "ue8m0"))),
}
_SCALED_RULES = ("mma fragments", "mma scale thread-ids")


def _block_scaled(said: _Qualifiers, target: str) -> Mma:
    if _family(target) != "rtx blackwell" or not target.endswith(("a", "f")):
        raise said.unknown(f"{target} has no mma with .block_scale")
    if said.kind not in _SCALED or said.satfinite:
        raise said.unknown(f".block_scale goes with .kind::{', .kind::'.join(_SCALED)}")
    k, vectors = _SCALED[said.kind]
    if (said.scale_vector, said.scale_type) not in vectors:
        valid = ", ".join(f".scale_vec::{vector} with .{scale}" for vector, scale in vectors if vector)
        raise said.unknown(f".kind::{said.kind} has {valid}")
    _require_types(said, _NARROW if said.kind == "mxf8f6f4" else ("e2m1",))
    shape = _shape(said, (k,))
    if (said.c_type, said.d_type) != ("f32", "f32"):
        raise said.unknown("C and D must be f32")
    if said.kind == "mxf8f6f4":
        return WindowedMma(
            shape=shape,
            kind=said.kind,
            a_type=said.a_type,
            b_type=said.b_type,
            accumulator=said.c_type,
            a_registers=4,
            b_registers=2,
            rules=(*_SCALED_RULES, "mma scale lanes and bytes, 1X and 2X", "mma 25-bit window with scales"),
            scale_count=1,
            window=25,
            parts=1,
            output="f32",
            a_format=FORMATS[said.a_type],
            b_format=FORMATS[said.b_type],
        )
    count = 4 if said.scale_vector == "4X" else 2
    lanes = "mma scale lanes and bytes, 4X" if count == 4 else "mma scale lanes and bytes, 1X and 2X"
    blocks = "mma 35-bit window, blocks of 16" + (", ue8m0" if said.scale_type == "ue8m0" else "")
    return BlockScaledMma(
        shape=shape,
        kind=said.kind,
        a_type=said.a_type,
        b_type=said.b_type,
        accumulator=said.c_type,
        a_registers=4,
        b_registers=2,
        rules=(*_SCALED_RULES, lanes, blocks),
        scale_count=count,
        scale_type=said.scale_type,
    )


def _integers(said: _Qualifiers) -> Mma:
    if said.kind or said.scale_vector:
        raise said.unknown("integers have no kind")
    _require_types(said, ("s8", "u8"))
    shape = _shape(said, (16, 32))
    if (said.c_type, said.d_type) != ("s32", "s32"):
        raise said.unknown("C and D must be s32")
    a_registers, b_registers = _registers(shape, 8)
    return IntegerMma(
        shape=shape,
        kind="int8",
        a_type=said.a_type,
        b_type=said.b_type,
        accumulator="s32",
        a_registers=a_registers,
        b_registers=b_registers,
        rules=("mma fragments", "mma integers"),
        scale_count=0,
        saturates=said.satfinite,
    )


def _require_types(said: _Qualifiers, allowed: tuple[str, ...]) -> None:
    for operand in (said.a_type, said.b_type):
        if operand not in allowed:
            raise said.unknown(f"A and B must be of {', '.join(allowed)}")


def _shape(said: _Qualifiers, allowed: tuple[int, ...]) -> tuple[int, int, int]:
    for k in allowed:
        if said.shape == f"m16n8k{k}":
            return 16, 8, k
    raise said.unknown(f"its shape must be {' or '.join(f'm16n8k{k}' for k in allowed)}")
