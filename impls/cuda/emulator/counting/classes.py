"""What kind of work a PTX instruction is, which pipe of the SM does it, and how much of it the machine code surely keeps.

PTX is not machine code. The assembler drops moves, folds negations, address sums and comparisons into other instructions,
fuses two sums or products into one, hoists what does not change, and shares what it has computed before. What is counted is
what the emulator executes. What enters a bound of the time is less: `Kind.work` and `Kind.issues` say how many instructions
of the pipe, and of any kind, one execution of the PTX instruction must at least become.

    class                  in bounds      why
    tensor ...             1              an MMA becomes one or more of the tensor pipe; the bound is of its products
    special function       1 of xu        ex2, lg2, rcp, sqrt, sin, cos, tanh: each needs the unit's table. A division counts
                                          nothing: by a constant it becomes a product
    fp32 arithmetic        1 or 1/2       fma, and sums and products with an explicit rounding, which "is treated conservatively
                                          by the code optimizer" (PTX ISA 9.1, Notes of add and mul): one result, f32x2 two.
                                          Without rounding a product and a sum may become one fma: half. A maximum or minimum:
                                          half of alu, since one instruction may take three inputs. neg, abs, copysign: nothing
    16-bit packed          1 or 1/2       likewise; 16-bit arithmetic that is not packed may be packed: half of that
    conversion             1, 1/2 or 0    into a pair of narrow floats: one instruction, of a pipe that depends on the target.
                                          Into one 16-bit float: half, since two make a pair. All others: nothing, as widening
                                          may be folded into what uses it
    matrix load and store, 1 of lsu       ldmatrix, stmatrix, cp.async, atomics, shuffles: the assembler keeps each
      async copy, atomic,
      cross-lane
    load and store         bytes / 16     it may join neighbours into an access of up to 16 bytes a lane, and does so for shared
                                          memory; nothing of local memory, which may end in registers
    integer, logic,        nothing        three-input sums and logic, addresses in loads, unrolling, uniform registers
      comparison, move
    branch, barrier, wait  nothing        a branch may become a predicate; how often a wait is repeated depends on the time

Two things are assumed: that the kernel has no dead or repeated work for the assembler to remove, which holds for what NVRTC
and Triton emit since LLVM has removed it; and that operands differ between lanes (work that does not can leave the pipe for
the uniform one from sm_100 on).

Pipes are named as in Nsight Compute's Kernel Profiling Guide, "Pipelines". "issue" is a pipe that is not documented or varies
between targets: only the scheduler's slot is certain. "none" does no work of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

from impls.cuda.emulator.errors import Unknown

Pipe = Literal["none", "issue", "fma", "alu", "fp16", "fp64", "xu", "lsu", "tensor", "adu", "cbu"]


class Kind(NamedTuple):
    """Class and pipe of an instruction, and what one execution of it by a warp costs at least."""

    name: str
    pipe: Pipe
    work: float = 0.0
    """Instructions of `pipe`, or results a lane where one instruction has two."""
    issues: float = 0.0
    """Instructions of any pipe."""


class Mma(NamedTuple):
    """What one MMA multiplies."""

    name: str
    """Kind, shape and types, e.g. "mxf4nvf4 4X m16n8k64 f32.e2m1.e2m1.f32.ue4m3"."""
    products: int
    """Multiply-accumulates that one warp's instruction does: half of m*n*k where A is sparse."""


_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_VECTOR = re.compile(r"v[248]$")
_TYPE = re.compile(r"[busf](8|16|32|64|128)$")
_ROUNDINGS = {"rn", "rz", "rm", "rp"}
_INTEGERS = {"u16", "s16", "u32", "s32", "u64", "s64", "u16x2", "s16x2", "u8x4", "s8x4"}
_HALVES = {"f16", "bf16"}
_PAIRS = {"f16x2", "bf16x2"}
_NARROW_PAIRS = {"f16x2", "bf16x2", "e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2", "e4m3x4", "e5m2x4", "e2m1x4"}
_TENSOR_CLASSES = {
    **dict.fromkeys(("f16", "bf16"), "tensor 16-bit"),
    "tf32": "tensor tf32",
    "f64": "tensor fp64",
    **dict.fromkeys(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"), "tensor fp8"),
    **dict.fromkeys(("s8", "u8"), "tensor int8"),
    **dict.fromkeys(("s4", "u4"), "tensor int4"),
    "b1": "tensor binary",
}
"""By the type of A. Types of 6 and 4 bits that are fed a byte an element run as 8-bit ones."""
_PACKED_FP4 = {"kind::mxf4": "tensor mxfp4", "kind::mxf4nvf4": "tensor nvfp4"}
_MMA_TYPES = {*_TENSOR_CLASSES, "f32", "s32", "ue8m0", "ue4m3"}

_FIXED: dict[str, Kind] = {
    **dict.fromkeys(("bra", "brx", "call", "ret", "exit"), Kind("branch", "cbu")),
    **dict.fromkeys(("bar", "barrier"), Kind("barrier", "adu")),
    **dict.fromkeys(("mbarrier", "clusterlaunchcontrol"), Kind("barrier", "lsu")),
    **dict.fromkeys(("fence", "membar"), Kind("fence", "lsu")),
    "griddepcontrol": Kind("barrier", "issue"),
    **dict.fromkeys(("nanosleep", "trap", "brkpt", "pmevent", "setmaxnreg"), Kind("control", "issue")),
    "shfl": Kind("cross-lane", "lsu", 1, 1),
    "movmatrix": Kind("cross-lane", "issue", 1, 1),
    "redux": Kind("cross-lane", "issue", 1, 1),
    **dict.fromkeys(("vote", "match", "activemask", "elect"), Kind("cross-lane", "issue")),
    **dict.fromkeys(("mov", "cvta", "selp", "slct", "mapa", "getctarank"), Kind("move", "none")),
    **dict.fromkeys(("setp", "set", "testp", "isspacep", "istypep"), Kind("comparison", "alu")),
    **dict.fromkeys(("and", "or", "xor", "not", "cnot", "lop3", "shl", "shr", "shf", "prmt"), Kind("logic", "alu")),
    **dict.fromkeys(("bfe", "bfi", "bmsk", "szext"), Kind("logic", "alu")),
    **dict.fromkeys(("brev", "popc", "clz", "bfind", "fns"), Kind("logic", "xu")),
    **dict.fromkeys(("addc", "subc", "sad", "createpolicy"), Kind("integer", "alu")),
    **dict.fromkeys(("madc", "mad24", "mul24", "dp2a", "dp4a"), Kind("integer", "fma")),
    **dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh", "rcp", "rsqrt", "sqrt"), Kind("special function", "xu", 1, 1)),
    "ldmatrix": Kind("shared load", "lsu", 1, 1),
    "stmatrix": Kind("shared store", "lsu", 1, 1),
    **dict.fromkeys(("atom", "red", "multimem"), Kind("atomic", "lsu", 1, 1)),
    **dict.fromkeys(("prefetch", "prefetchu", "discard", "applypriority"), Kind("prefetch", "lsu")),
}


def classify(opcode: str, modifiers: Sequence[str] = ()) -> Kind:
    """The kind of `opcode`, e.g. "mma", with its `modifiers`, e.g. "sync", "aligned", "m16n8k16"; or of both in one string.

    Raises Unknown.
    """
    name = ".".join((opcode, *modifiers))
    first, *parts = name.split(".")
    fixed = _FIXED.get(first)
    if fixed is not None:
        return fixed
    classifier = _CLASSIFIERS.get(first)
    kind = classifier(first, parts) if classifier else None
    if kind is None:
        raise Unknown(f"{name} has no class: it is not known which pipe executes it.")
    return kind


def mma(opcode: str, modifiers: Sequence[str] = ()) -> Mma | None:
    """What an mma or wgmma.mma_async multiplies; None for every other instruction."""
    first, *parts = ".".join((opcode, *modifiers)).split(".")
    if first != "mma" and (first != "wgmma" or "mma_async" not in parts):
        return None
    shape = next(filter(None, map(_SHAPE.match, parts)), None)
    if shape is None:
        raise Unknown(f"{'.'.join((first, *parts))} names no shape.")
    m, n, k = map(int, shape.groups())
    sparse = any(part == "sp" or part.startswith("sp::") for part in parts)
    warps = 4 if first == "wgmma" else 1
    scaled = [part.partition("::")[2] for part in parts if part.startswith(("kind::", "scale_vec::"))]
    types = ".".join(_mma_types(parts))
    words = [*(["wgmma"] if warps > 1 else []), *(["sparse"] if sparse else []), *scaled, shape[0], types]
    return Mma(" ".join(words), m * n * k // (2 if sparse else 1) // warps)


def _arithmetic(opcode: str, parts: Sequence[str]) -> Kind | None:
    """add, sub, mul, mad and fma of any type."""
    kept = opcode in ("fma", "mad") or _has(parts, _ROUNDINGS)
    certain = 1.0 if kept else 0.5
    if "f32x2" in parts:
        return Kind("fp32 arithmetic", "fma", 2 * certain, certain)
    if "f32" in parts:
        return Kind("fp32 arithmetic", "fma", certain, certain)
    if _has(parts, _PAIRS):
        return Kind("16-bit packed", "fp16", certain, certain)
    if _has(parts, _HALVES):
        return Kind("16-bit arithmetic", "fp16", certain / 2, certain / 2)
    if "f64" in parts:
        return Kind("fp64 arithmetic", "fp64", certain, certain)
    if _has(parts, _INTEGERS):
        return Kind("integer", "alu" if opcode in ("add", "sub") else "fma")
    return None


def _select(opcode: str, parts: Sequence[str]) -> Kind | None:
    """min and max."""
    if "f32" in parts:
        return Kind("fp32 arithmetic", "alu", 0.5, 0.5)
    if _has(parts, _PAIRS | _HALVES):
        return Kind("16-bit packed" if _has(parts, _PAIRS) else "16-bit arithmetic", "alu")
    if "f64" in parts:
        return Kind("fp64 arithmetic", "fp64")
    return Kind("integer", "alu") if _has(parts, _INTEGERS) else None


def _sign(opcode: str, parts: Sequence[str]) -> Kind | None:
    """neg, abs and copysign: of floats a modifier of the operand."""
    if _has(parts, _INTEGERS):
        return Kind("integer", "alu")
    return Kind("move", "none") if _has(parts, {"f32", "f64", *_HALVES, *_PAIRS}) else None


def _division(opcode: str, parts: Sequence[str]) -> Kind | None:
    if _has(parts, {"f32", "f64"}):
        return Kind("special function", "xu")
    return Kind("integer", "alu") if _has(parts, _INTEGERS) else None


def _conversion(opcode: str, parts: Sequence[str]) -> Kind:
    if _has(parts, _NARROW_PAIRS):
        return Kind("conversion", "issue", 1, 1)
    narrows = _has(parts, _HALVES) and "f32" in parts and _has(parts, _ROUNDINGS)
    return Kind("conversion", "issue", 0.5, 0.5) if narrows else Kind("conversion", "issue")


def _memory(opcode: str, parts: Sequence[str]) -> Kind | None:
    """ld, ldu and st."""
    verb = "store" if opcode == "st" else "load"
    elements = next((int(part[1:]) for part in parts if _VECTOR.match(part)), 1)
    bits = next((int(part[1:]) for part in parts if _TYPE.match(part)), None)
    if bits is None:
        return None
    least = min(1.0, elements * bits / 128)
    if _has(parts, {"param", "param::entry", "param::func", "const"}):
        return Kind(f"parameter {verb}", "none")
    if "local" in parts:
        return Kind(f"local {verb}", "lsu")
    if any(part.split("::")[0] == "shared" for part in parts):
        return Kind(f"shared {verb}", "lsu", least, least)
    space = "global" if "global" in parts or opcode == "ldu" else "generic"
    return Kind(f"{space} {verb}", "lsu", least, least)


def _copy(opcode: str, parts: Sequence[str]) -> Kind | None:
    if _has(parts, {"commit_group", "wait_group", "wait_all"}):
        return Kind("wait", "issue")
    if "mbarrier" in parts:
        return Kind("barrier", "lsu")
    if "bulk" in parts:
        return Kind("async copy", "issue", 1, 1)
    return Kind("async copy", "lsu", 1, 1) if "async" in parts else None


def _tensor(opcode: str, parts: Sequence[str]) -> Kind | None:
    if opcode == "wgmma" and "mma_async" not in parts:
        return Kind("wait", "issue")
    packed = next((name for kind, name in _PACKED_FP4.items() if kind in parts), None)
    types = _mma_types(parts)
    name = packed or (_TENSOR_CLASSES.get(types[1]) if len(types) > 1 else None)
    return Kind(name, "tensor", 1, 1) if name else None


def _mma_types(parts: Sequence[str]) -> list[str]:
    """Types of D, A, B and what else the instruction names, in its order."""
    return [part for part in parts if part in _MMA_TYPES]


def _has(parts: Sequence[str], wanted: AbstractSet[str]) -> bool:
    return not wanted.isdisjoint(parts)


_CLASSIFIERS: dict[str, Callable[[str, Sequence[str]], Kind | None]] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "fma"), _arithmetic),
    **dict.fromkeys(("min", "max"), _select),
    **dict.fromkeys(("neg", "abs", "copysign"), _sign),
    **dict.fromkeys(("div", "rem"), _division),
    "cvt": _conversion,
    **dict.fromkeys(("ld", "ldu", "st"), _memory),
    "cp": _copy,
    **dict.fromkeys(("mma", "wgmma"), _tensor),
}
