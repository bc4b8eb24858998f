"""The architectural divide: what each target computes attention with, each entry with the programs that show it.

An aspect lists statements in order. A target's entry is the first statement all of whose evidence the probe confirms; when
none is confirmed the entry says so. Nothing here is true of a target because of its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from impls.isa.program import Program
from impls.isa.result import Cell, Probe
from impls.isa.sass import lowering

Verdict = Literal["native", "emulated", "nothing", "refused", "accepted"]

NOT_SHOWN = "not shown by these programs"
CAVEATS = (
    "Acceptance is not execution: nothing here ran on a GPU, and an accepted program may still trap on one.",
    "A product name is not a target. B200 and GB200 are sm_100, B300 and GB300 sm_103, Jetson T5000 and T4000 (Thor) sm_110, "
    "every GeForce RTX 50 and RTX PRO Blackwell sm_120, GB10 (DGX Spark) sm_121 (source: developer.nvidia.com/cuda-gpus).",
    "Native means that an opcode of the operation's own unit is there; it says nothing of its speed. "
    "Emulated means that the assembler built it from other opcodes.",
    "A release speaks for itself alone: another one may accept more, refuse more, or choose other opcodes.",
)
"""What the tables cannot show."""


@dataclass(frozen=True)
class Evidence:
    """A program and the verdict that a statement needs."""

    program: str
    verdict: Verdict


@dataclass(frozen=True)
class Statement:
    text: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Aspect:
    """One row of the table."""

    name: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Entry:
    """One target's entry in one row."""

    text: str
    evidence: tuple[Evidence, ...]


_TCGEN05 = "tcgen05.mma/cta_group::1/f16/shared/-/-"
_WGMMA = "wgmma/64/f32.bf16.bf16/shared"
_MMA = "mma.sync/f16/m16n8k8/f32/f32"
_TCGEN05_NVFP4 = "tcgen05.mma/block-scaled/cta_group::1/mxf4nvf4/shared/-/block16"
_MMA_NVFP4 = "mma.sync/mxf4nvf4/m16n8k64/scale_vec::4X/ue4m3/f32"
_MMA_FP8 = "mma.sync/fp8/m16n8k32/e4m3/e4m3/f32"
_MULTICAST = "cp.async.bulk.tensor/multicast/2d/tile/shared::cluster/-"
_TMA = "cp.async.bulk.tensor/load/2d/tile/shared::cluster/-"
_MAX3 = "minmax/f32x3/max/-/-/-"
_TO_E2M1 = "cvt/f32-to-pair/e2m1x2/rn/satfinite/-"


def _shown(text: str, **verdicts: Sequence[str]) -> Statement:
    """A statement whose evidence is given as verdict=[programs]."""
    evidence = tuple(Evidence(program, verdict) for verdict, programs in verdicts.items() for program in programs)  # type: ignore[arg-type]
    return Statement(text, evidence)


ASPECTS = (
    Aspect(
        "execution model",
        (
            _shown(
                "one thread issues an asynchronous MMA, an mbarrier tells its end",
                native=[_TCGEN05, "tcgen05.commit/cta_group::1/-/-"],
            ),
            _shown("four warps issue an asynchronous MMA together", native=[_WGMMA, "wgmma.wait_group/0"], refused=[_TCGEN05]),
            _shown("one warp issues a synchronous MMA", native=[_MMA], refused=[_TCGEN05, _WGMMA]),
        ),
    ),
    Aspect(
        "accumulator storage",
        (
            _shown(
                "tensor memory",
                native=[_TCGEN05, "tcgen05.alloc/cta_group::1/512", "tcgen05.ld/32x32b/x32/-", "tcgen05.st/32x32b/x32/-"],
            ),
            _shown("registers of four warps", native=[_WGMMA], refused=["tcgen05.alloc/cta_group::1/32"]),
            _shown("registers of one warp", native=[_MMA], refused=["tcgen05.alloc/cta_group::1/32", _WGMMA]),
        ),
    ),
    Aspect(
        "primary tensor ISA",
        (
            _shown("tcgen05.mma", native=[_TCGEN05]),
            _shown("wgmma.mma_async", native=[_WGMMA], refused=[_TCGEN05]),
            _shown("mma.sync", native=[_MMA], refused=[_TCGEN05, _WGMMA]),
        ),
    ),
    Aspect(
        "NVFP4 MMA",
        (
            _shown("tcgen05.mma kind::mxf4nvf4", native=[_TCGEN05_NVFP4], refused=[_MMA_NVFP4]),
            _shown("mma.sync kind::mxf4nvf4", native=[_MMA_NVFP4], refused=[_TCGEN05_NVFP4]),
            _shown("none", refused=[_TCGEN05_NVFP4, _MMA_NVFP4]),
        ),
    ),
    Aspect(
        "warpgroup MMA",
        (
            _shown("wgmma, native", native=[_WGMMA]),
            _shown("refused, not emulated", refused=[_WGMMA]),
        ),
    ),
    Aspect(
        "fp8 mma.sync",
        (
            _shown("native", native=[_MMA_FP8]),
            _shown("emulated by conversion to f16", emulated=[_MMA_FP8]),
            _shown("none", refused=[_MMA_FP8]),
        ),
    ),
    Aspect(
        "conversion to E2M1",
        (_shown("native", native=[_TO_E2M1]), _shown("none", refused=[_TO_E2M1])),
    ),
    Aspect(
        "maximum of three",
        (_shown("native", native=[_MAX3]), _shown("two instructions", emulated=[_MAX3]), _shown("none", refused=[_MAX3])),
    ),
    Aspect(
        "TMA multicast",
        (
            _shown("native", native=[_TMA, _MULTICAST]),
            _shown(
                "TMA alone: for a single block a plain copy, else a call into the driver's code",
                native=[_TMA],
                emulated=[_MULTICAST],
            ),
            _shown("no TMA", refused=[_TMA, _MULTICAST]),
        ),
    ),
)

SHARED_MEMORY = "shared memory"
"""The row whose evidence is a limit: what a block may declare. Only `a` targets may declare all there is."""


def verdict(program: Program, cell: Cell) -> Verdict:
    """What became of `program`; "accepted" where nothing could disassemble it."""
    if not cell.accepted:
        return "refused"
    return lowering(program.native, cell.opcodes) if cell.opcodes is not None else "accepted"


def divide(probe: Probe, programs: Mapping[str, Program]) -> dict[str, dict[str, Entry]]:
    """{aspect: {target: entry}}. Rows whose evidence was not probed are left out."""
    table = {}
    for aspect in ASPECTS:
        needed = {evidence.program for statement in aspect.statements for evidence in statement.evidence}
        if needed <= probe.cells.keys():
            table[aspect.name] = {target: _entry(aspect, target, probe, programs) for target in probe.targets}
    shared = {target: probe.limits.get(target, {}).get("static_shared_bytes") for target in probe.targets}
    table[SHARED_MEMORY] = {
        target: Entry(f"{size} bytes a block" if size else NOT_SHOWN, ()) for target, size in shared.items()
    }
    return table


def _entry(aspect: Aspect, target: str, probe: Probe, programs: Mapping[str, Program]) -> Entry:
    for statement in aspect.statements:
        if all(
            verdict(programs[item.program], probe.cells[item.program][target]) == item.verdict for item in statement.evidence
        ):
            return Entry(statement.text, statement.evidence)
    return Entry(NOT_SHOWN, ())


def as_json(table: Mapping[str, Mapping[str, Entry]]) -> dict[str, Any]:
    """{aspect: {target: {text, evidence: [{program, verdict}]}}}; the evidence of shared memory is the limit of its name."""
    return {
        aspect: {
            target: {
                "text": entry.text,
                "evidence": [{"program": item.program, "verdict": item.verdict} for item in entry.evidence]
                if aspect != SHARED_MEMORY
                else [{"limit": "static_shared_bytes"}],
            }
            for target, entry in row.items()
        }
        for aspect, row in table.items()
    }
