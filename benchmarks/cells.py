"""The catalogue: which cells there are. A cell id is workload/implementation/parameters, e.g. decode/triton/d128/kv131072.

A workload has fixed axes, and its cells are their product. A new dimension is a new workload, never a new axis: asv keeps
the history of a benchmark only while its parameters stay the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from benchmarks.layers import LayerProblem
from benchmarks.operations import lists_no_kernels, names, not_counted, operation_of
from benchmarks.presets import PRESETS
from benchmarks.records import COMPILED, COUNTED, SUITES, TIMED
from impls.arch import ARCHES
from impls.contract import Problem
from impls.weights.contract import Projection

HEAD_DIMS = (64, 128, 192, 256, 512)
KV_LENS = (1024, 8192, 32768, 131072)
WEIGHTS = ("4096x14336", "14336x4096", "8192x28672")
"""Elements that are summed x outputs, of the MLPs of Llama 3 8B and 70B."""
COUNTED_ON = ("sm_80", "sm_90a", "sm_120a", "sm_121a")
"""The architectures whose kernels are emulated to be counted."""
SHAPES = {"decode": (4, 1, 2048), "extend": (4, 16, 1024), "prefill": (1, 256, 256)}
"""{kind of work that is counted: (query heads of one key-value head, q_len, kv_len)}: a few seconds each."""
ROWS = (1, 8, 16, 32, 64, 512, 4096)


@dataclass(frozen=True)
class Axis:
    """One parameter of a workload. In a cell id a value stands behind its prefix: d128, kv1024."""

    name: str
    prefix: str
    values: tuple[int | str, ...]
    quick: tuple[int | str, ...]
    """The values that --quick takes."""


@dataclass(frozen=True)
class Workload:
    """Cells that differ in their parameters and implementation only."""

    name: str
    """First part of the cell ids. Behind a hyphen stands what sets it apart from others of its family: decode-b8."""
    suite: str
    claim: str
    """One sentence: what a cell of it measures."""
    axes: tuple[Axis, ...]
    quick: bool = False
    batch: int = 1
    q_len: int | None = 1
    """Query tokens; None: as many as the cache has tokens (prefill)."""
    q_heads: int = 32
    kv_heads: int = 8
    """The heads of an 8-billion Llama 3, unless the workload says otherwise."""

    def cell_id(self, impl: str, values: Sequence[int | str]) -> str:
        return "/".join([self.name, impl, *(f"{axis.prefix}{value}" for axis, value in zip(self.axes, values, strict=True))])

    def points(self, *, quick: bool = False) -> Iterator[tuple[int | str, ...]]:
        """Every combination of axis values, the last axis fastest."""
        return itertools.product(*(axis.quick if quick else axis.values for axis in self.axes))

    @property
    def operation(self) -> str:
        """What its implementations do, see `benchmarks.operations`."""
        return self.suite if self.suite in ("projection", "layer") else "attention"

    def done_by(self, impls: Iterable[str]) -> list[str]:
        """Those of `impls` that have cells of it."""
        able = [impl for impl in impls if operation_of(impl) == self.operation]
        without = {COMPILED: lists_no_kernels, COUNTED: not_counted}.get(self.suite)
        return [impl for impl in able if impl not in without()] if without else able

    def shortness(self, values: Sequence[int | str]) -> int:
        """Minus the context of a point that is timed on a GPU; else 0."""
        contexts = [int(value) for axis, value in zip(self.axes, values, strict=True) if axis.name == "kv_len"]
        return -sum(contexts) if self.suite in TIMED else 0

    def problem(self, *values: int | str) -> Problem | Projection | LayerProblem:
        """The problem of a point of a workload that is timed, or of a host workload."""
        if self.operation == "projection":
            weights, rows = values
            inputs, outputs = map(int, str(weights).split("x"))
            return Projection(int(rows), outputs, inputs)
        kv_len = int(values[1])
        q_len = kv_len if self.q_len is None else self.q_len
        if self.operation == "layer":
            return LayerProblem(str(values[0]), q_len, kv_len)
        return self.attention(int(values[0]), kv_len)

    def attention(self, head_dim: int, kv_len: int) -> Problem:
        """The attention problem of a point of a latency or host workload."""
        return Problem(
            batch=self.batch,
            q_heads=self.q_heads,
            kv_heads=self.kv_heads,
            q_len=kv_len if self.q_len is None else self.q_len,
            kv_len=kv_len,
            head_dim=head_dim,
            v_head_dim=head_dim,
        )


@dataclass(frozen=True)
class CellSpec:
    """A cell that can be measured, before it is."""

    workload: Workload
    impl: str
    """Name of the implementation, as in the id."""
    source: str
    """What `impls.registry.implementation` finds it by: the name, or path/to/file.py:Class."""
    values: tuple[int | str, ...]
    quick: bool

    @property
    def id(self) -> str:
        return self.workload.cell_id(self.impl, self.values)

    @property
    def suite(self) -> str:
        return self.workload.suite

    @property
    def parameters(self) -> dict[str, Any]:
        """{axis name: value}"""
        return {axis.name: value for axis, value in zip(self.workload.axes, self.values, strict=True)}


@cache
def workloads() -> dict[str, Workload]:
    """{name: workload}, those first that tell most."""
    from impls.numerics.cases import CASES

    quick_cases = tuple(name for name, case in CASES.items() if case.quick)
    numerics = Workload(
        "numerics",
        "numerics",
        "Errors against float64 attention, on structured and random cases.",
        (Axis("case", "", tuple(CASES), quick_cases),),
        quick=True,
    )
    host = Workload(
        "host",
        "host",
        "Time of plan, pack, bind and one call on a small problem, as the calling thread sees it.",
        _head_dim_and_kv_len(HEAD_DIMS, (1024, 4096), quick=((128,), (1024,))),
        quick=True,
        q_heads=8,
        kv_heads=2,
    )
    decode = [
        Workload(
            "decode",
            "latency",
            "One new token of one sequence.",
            _head_dim_and_kv_len(HEAD_DIMS, KV_LENS, quick=((128, 512), (8192, 131072))),
            quick=True,
        ),
        Workload(
            "decode-b8",
            "latency",
            "One new token for each of 8 sequences.",
            _head_dim_and_kv_len(HEAD_DIMS, KV_LENS[1:-1]),
            batch=8,
        ),
        Workload(
            "decode-b32",
            "latency",
            "One new token for each of 32 sequences.",
            _head_dim_and_kv_len(HEAD_DIMS, KV_LENS[1:-1], quick=((128,), (8192,))),
            quick=True,
            batch=32,
        ),
        *(
            Workload(
                f"decode-g{group}",
                "latency",
                f"One new token of one sequence, {8 * group} query heads to 8 key-value heads.",
                _head_dim_and_kv_len((128,), KV_LENS[-1:]),
                q_heads=8 * group,
            )
            for group in (1, 8, 16)  # decode itself has 4
        ),
    ]
    extend = [
        Workload(
            f"extend-q{q_len}",
            "latency",
            f"{q_len} new tokens against a long cache.",
            _head_dim_and_kv_len((128, 256), KV_LENS[-2:]),
            q_len=q_len,
        )
        for q_len in (4, 16, 64, 512, 2048)
    ]
    prefill = [
        Workload(
            "prefill",
            "latency",
            "As many new tokens as the cache holds, causal.",
            _head_dim_and_kv_len(HEAD_DIMS, KV_LENS[:-1], quick=((128, 512), (8192,))),
            quick=True,
            q_len=None,
            q_heads=16,
            kv_heads=16,
        ),
        Workload(
            "prefill-long",  # of other head dims it takes a GPU as long as all other cells together
            "latency",
            "As many new tokens as the longest cache holds, causal.",
            _head_dim_and_kv_len((128,), KV_LENS[-1:]),
            q_len=None,
            q_heads=16,
            kv_heads=16,
        ),
    ]
    projection = Workload(
        "projection",
        "projection",
        "Rows times NVFP4 weights, a linear layer.",
        (
            Axis("weights", "", WEIGHTS, WEIGHTS[:2]),
            Axis("rows", "m", ROWS, (1, 64, 4096)),
        ),
        quick=True,
    )
    layer = Workload(
        "layer",
        "layer",
        "One new token through a model's attention layer: q, k and v, attention, output.",
        _preset_and_kv_len(KV_LENS, quick=(8192,)),
        quick=True,
    )
    layer_prefill = Workload(
        "layer-prefill",
        "layer",
        "A prompt through a model's attention layer: q, k and v, attention, output.",
        _preset_and_kv_len((1024, 8192)),
        q_len=None,
    )
    compiled = [
        Workload(
            f"{COMPILED}-{kind}",
            COMPILED,
            f"What the kernels of a call of {kind} become on an architecture, compiled and not executed.",
            (
                Axis("arch", "", tuple(ARCHES), ("sm_90a", "sm_120a") if quick else ()),
                Axis("head_dim", "d", HEAD_DIMS, (128,) if quick else ()),
            ),
            quick=quick,
        )
        for kind, quick in (("decode", True), ("extend", False), ("prefill", True))
    ]
    counted = [
        Workload(
            f"{COUNTED}-{kind}",
            COUNTED,
            f"What the kernels of a call of {kind} do in the emulator: {_in_words(*SHAPES[kind])}.",
            (
                Axis("arch", "", COUNTED_ON, ("sm_90a", "sm_120a") if quick else ()),
                Axis("head_dim", "d", HEAD_DIMS, (128,) if quick else ()),
            ),
            quick=quick,
        )
        for kind, quick in (("decode", True), ("extend", False), ("prefill", True))
    ]
    attention = (numerics, host, *decode, *extend, *prefill)
    return {workload.name: workload for workload in (*attention, projection, layer, layer_prefill, *compiled, *counted)}


def _in_words(heads: int, q_len: int, kv_len: int) -> str:
    queries = "1 query" if q_len == 1 else f"{q_len} queries"
    if q_len == kv_len:
        return f"{queries} of {'one head' if heads == 1 else f'{heads} heads'}, causal"
    return f"{queries} against {kv_len} tokens, {heads} heads to 1"


def _preset_and_kv_len(kv_lens: tuple[int, ...], *, quick: tuple[int, ...] = ()) -> tuple[Axis, Axis]:
    return Axis("preset", "", tuple(PRESETS), tuple(PRESETS)[:1] if quick else ()), Axis("kv_len", "kv", kv_lens, quick)


def _head_dim_and_kv_len(
    head_dims: tuple[int, ...], kv_lens: tuple[int, ...], *, quick: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
) -> tuple[Axis, Axis]:
    return Axis("head_dim", "d", head_dims, quick[0]), Axis("kv_len", "kv", kv_lens, quick[1])


def specs(impls: dict[str, str], suites: Sequence[str] = SUITES, pattern: str = "*", *, quick: bool = False) -> list[CellSpec]:
    """The cells of `impls` {name: source} to measure, the most telling first. `pattern`: globs with commas between them.

    Quick cells come before the others; among them every workload and implementation gets its first cell before any gets
    its second, so that a budget that ends early has left none out. Of the others the longest contexts come first.
    Raises ValueError where nothing is called as one of the globs says.
    """
    globs = [one.strip() for one in pattern.split(",")]
    if not all(globs):
        raise ValueError(f"cells are chosen by globs with commas between them, and one of {pattern!r} is empty.")
    unmet = dict.fromkeys(globs)
    ranked = []
    for workload in workloads().values():
        if workload.suite not in suites or (quick and not workload.quick):
            continue
        for impl in workload.done_by(impls):
            source = impls[impl]
            ranks = {True: 0, False: 0}
            for point in sorted(workload.points(quick=quick), key=workload.shortness):
                first = workload.quick and all(value in axis.quick for axis, value in zip(workload.axes, point, strict=True))
                spec = CellSpec(workload, impl, source, point, first)
                matching = [one for one in globs if fnmatchcase(spec.id, one)]
                if matching:
                    ranked.append((not first, ranks[first], spec))
                for one in matching:
                    unmet.pop(one, None)
                ranks[first] += 1
    if unmet:
        kind = "quick cell" if quick else "cell"
        if pattern == "*":
            raise ValueError(
                f"{', '.join(impls)} has no {kind} of {', '.join(suites)}; ids read like {_examples(impls, suites)}."
            )
        raise ValueError(f"no {kind} is called {next(iter(unmet))!r}; ids read like {_examples(impls, suites)}.")
    return [spec for _, _, spec in sorted(ranked, key=lambda entry: entry[:2])]


def find(cell_id: str, impls: dict[str, str]) -> CellSpec:
    """The cell with this id. Raises ValueError that says which there are."""
    found = [spec for spec in specs(impls) if spec.id == cell_id]
    if not found:
        raise ValueError(f"there is no cell {cell_id!r}; `run --full --plan` lists all, e.g. {_examples(impls, SUITES)}.")
    return found[0]


def _examples(impls: dict[str, str], suites: Sequence[str]) -> str:
    """Ids of the workloads of `suites`, by the first of `impls` that does each."""
    ids = []
    for workload in workloads().values():
        able = workload.done_by(impls) or workload.done_by(names(workload.operation))
        if workload.suite in suites:
            ids.append(workload.cell_id(able[0], next(workload.points())))
    return ", ".join(ids)
