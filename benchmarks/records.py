"""The records of a journal: one `Run`, then one `Cell` after the other. A cell's status decides which fields it has.

    ok            samples, numerics (or both), kernels or counters; no sentence
    anything else a sentence that says why; never a number

Records know how to become JSON and how to come back; a record that breaks a rule raises ValueError when it is made, so
neither the sweep can write one nor a reader be handed one. All durations are seconds. Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from impls.cuda.emulator.rules import STATUSES as RULE_STATUSES
from impls.cuda.emulator.rules import Status as RuleStatus

SCHEMA = 2
"""Version of the record layout. A reader refuses another one by name."""
PROTOCOL = "3"
"""Version of the way things are measured: asv's benchmark `version`. Another one starts a new history."""

Status = Literal["ok", "unsupported", "skipped", "oom", "timeout", "failed", "crashed"]
STATUSES = ("ok", "unsupported", "skipped", "oom", "timeout", "failed", "crashed")
FAILURES = ("failed", "crashed", "timeout", "oom")
"""Statuses of cells that should have been measured and were not; "unsupported" and "skipped" say that none was to be had."""
SUITES = ("latency", "projection", "layer", "numerics", "host", "static", "counters")
COMPILED = "static"
"""The suite of what is compiled and not executed, for any architecture on any machine."""
COUNTED = "counters"
"""The suite of what kernels do in the emulator of PTX, for architectures that it knows, on any machine."""
ON_REQUEST = (COMPILED, COUNTED)
"""The suites that are of virtual machines, which nobody is at unless they ask for them."""
TIMED = ("latency", "projection", "layer")
"""The suites that are a GPU's times."""
WITH_LSE = ("latency", "numerics")
"""The suites of attention alone, which writes an LSE: their errors include its error."""
WORK = {
    "flops": "floating-point operations of products with weights, and of Q @ K^T and P @ V over the visible keys only",
    "nvfp4_bytes": "bytes of the NVFP4 weights, and of the NVFP4 K and V that a call attends to",
    "cache_bytes": "bytes of the cache as the implementation packs it",
    "weight_bytes": "bytes of the weights as the implementation packs them",
    "workspace_bytes": "bytes it allocates besides cache and outputs",
}
"""{name: meaning} of the whole numbers in `Cell.work`."""
STARTED = "%Y-%m-%dT%H:%M:%SZ"
"""How a moment is written; journals are put in order by it, as text."""
HOW = re.compile(r"gpu|cpu|(emulated|static):sm_\d+[af]?")
SHA_256 = re.compile(r"[0-9a-f]{64}")
CELL_ID = re.compile(r"[A-Za-z0-9_.+:-]+(/[A-Za-z0-9_.+:-]+)+")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a run ran on. None: not there, or not known."""

    device: str
    """Product name of the GPU, or of the CPU where there is none."""
    arch: str
    """Name in impls.arch: "sm_90a", "cpu"."""
    platform: str
    """Operating system and machine, e.g. "linux-x86_64"."""
    python: str
    numpy: str
    torch: str
    triton: str | None = None
    driver: str | None = None
    cuda: str | None = None
    ptxas: str | None = None
    nvrtc: str | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """First line of a journal: what was run, of what, on what."""

    command: str
    commit: str
    """Full hash, or "unknown" outside git."""
    source: str
    """SHA-256 of impls/ and benchmarks/, see benchmarks.source."""
    machine: str
    """Folder name below results/: a GPU model ("nvidia-h200"), "cpu-x86_64", "static", "emulated"."""
    started: str
    """UTC, ISO 8601 to the second."""
    environment: Environment
    ceilings: Mapping[str, float] = field(default_factory=dict)
    """Measured limits of the device, e.g. copy_bytes_per_s; empty without a GPU."""
    outside: Mapping[str, str] = field(default_factory=dict)
    """{implementation in somebody's file: SHA-256 of that and the sources beside it}, see impls.outside."""
    schema: int = SCHEMA
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"journal schema {self.schema} is not {SCHEMA}, the one this version reads.")
        if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", self.machine):
            raise ValueError(f"machine {self.machine!r} is not a plain folder name.")
        if not re.fullmatch(r"[0-9a-f]{40}|unknown", self.commit):
            raise ValueError(f"commit {self.commit!r} is not a full hash.")
        if not _is_moment(self.started):
            raise ValueError(f"started {self.started!r:.60} is not a moment such as 2026-01-31T23:59:59Z.")
        if not all(re.fullmatch(r"[0-9a-f]{64}", str(digest)) for digest in self.outside.values()):
            raise ValueError("outside must hold the SHA-256 of each implementation's files.")
        _finite("ceilings", self.ceilings.values())


@dataclass(frozen=True, kw_only=True)
class Numerics:
    """Errors of one implementation on one case. Lower is better, except magnitude_ratio and cosine, which should be 1."""

    error_over_bound: float
    """Largest componentwise kernel error over its derived bound; above 1 is a failure."""
    relative_l2: float
    """Kernel error: ||out - ref|| / ||ref||, float64 reference on the dequantised operands with the declared roundings."""
    largest_row_error: float
    """Largest over rows and heads of ||out - ref|| / ||ref|| of that row."""
    magnitude_ratio: float
    """||out|| / ||ref||."""
    cosine: float
    lse_error: float | None = None
    """Largest |lse - ref| over rows that see a key; None where what was compared has no LSE."""
    exact_relative_l2: float | None = None
    """As `relative_l2`, without the declared roundings: all that the implementation loses on these operands."""
    quantisation_relative_l2: float | None = None
    """Against float64 attention on the original tensors; None where the case has none."""
    nan_count: int = 0
    inf_count: int = 0
    verdict: str = "pass"
    """The word pass, or the sentence that says which check failed."""

    def __post_init__(self) -> None:
        # A broken implementation may return NaN; the counts and the verdict say so. The errors are then Inf, and the cosine
        # has no value.
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, float) and math.isnan(value) and spec.name != "cosine":
                raise ValueError(f"{spec.name} is not a number; an error that cannot be computed is Inf.")
        for name in ("nan_count", "inf_count"):
            if not isinstance(getattr(self, name), int):
                raise ValueError(f"{name} must be a whole number, not {getattr(self, name)!r:.60}.")


@dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """One kernel launch of a cell: equal records mean that the same code ran, in the same way."""

    entry: str
    cubin: str
    """SHA-256 of the cubin that the driver loaded."""
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...] = (1, 1, 1)
    shared_bytes: int = 0
    """Dynamic shared memory of a block."""
    scalars: tuple[float, ...] = ()
    """The arguments that are passed by value, in their order."""
    overlaps: bool = False
    """Whether it may start before the launch before it has ended."""

    def __post_init__(self) -> None:
        if not SHA_256.fullmatch(self.cubin):
            raise ValueError(f"launch {self.entry}: cubin {self.cubin!r:.80} is not a SHA-256.")
        for name in ("grid", "block", "cluster"):
            sizes = getattr(self, name)
            if len(sizes) != 3 or not all(isinstance(size, int) and size >= 1 for size in sizes):
                raise ValueError(f"launch {self.entry}: {name} must be three whole numbers of at least 1.")


@dataclass(frozen=True, kw_only=True)
class KernelRecord:
    """What one kernel became on the architecture of its cell."""

    entry: str
    cubin: str
    """SHA-256."""
    registers: int
    """Of a thread."""
    spill_bytes: int
    """Bytes of a thread that LDL and STL instructions move, each counted once."""
    local_bytes: int
    """Local memory of a thread."""
    shared_bytes: int
    """Of a block."""
    threads: int
    """Of a block."""
    warps_per_sm: int
    """That reside at a time, at most."""
    instructions: int
    """In its machine code."""

    def __post_init__(self) -> None:
        if not SHA_256.fullmatch(self.cubin):
            raise ValueError(f"kernel {self.entry}: cubin {self.cubin!r:.80} is not a SHA-256.")
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if not isinstance(value, str) and not (isinstance(value, int) and 0 <= value < 2**31):
                raise ValueError(f"kernel {self.entry}: {spec.name} must be a whole number that is not negative.")


@dataclass(frozen=True, kw_only=True)
class CounterRecord:
    """What one launch of a call did in the emulator: its PTX was executed, its machine code was not."""

    entry: str
    ptx: str
    """SHA-256."""
    blocks: int
    executed: int
    """PTX instructions of warps."""
    global_bytes: int
    """That active lanes asked for, as `shared_bytes`."""
    global_requests: int
    sectors: int
    """Of 32 bytes, of global memory."""
    dram_bytes: int
    """That had to come from DRAM if no cache held any of it when the call began."""
    shared_bytes: int
    wavefronts: int
    """Of shared memory."""
    ideal_wavefronts: int
    """Without bank conflicts."""
    barriers: int
    """Barriers of a block that warps came to, and phases of mbarriers that they found over."""
    divergent_branches: int
    """Warps whose lanes went two ways."""
    classes: Mapping[str, int]
    """{class: PTX instructions of warps}"""
    mma: Mapping[str, int]
    """{kind: PTX instructions of warps of which a lane executed them}"""
    work: Mapping[str, float]
    """{pipe: the least that the machine code leaves it to do}, see `impls.cuda.emulator.counting.bounds`."""

    def __post_init__(self) -> None:
        if not SHA_256.fullmatch(self.ptx):
            raise ValueError(f"counters of {self.entry}: ptx {self.ptx!r:.80} is not a SHA-256.")
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if spec.name in ("entry", "ptx", "work"):
                continue
            counts = value.values() if isinstance(value, Mapping) else [value]
            if not all(isinstance(count, int) and count >= 0 for count in counts):
                raise ValueError(f"counters of {self.entry}: {spec.name} must be whole numbers that are not negative.")
        _finite(f"counters of {self.entry}: work", self.work.values())


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One measured, failed or refused cell.

    `id` is workload/implementation/parameters, e.g. decode/a4q/d128/kv131072 or numerics/triton/causal.
    """

    id: str
    suite: str
    """One of SUITES."""
    how: str
    """"gpu", "cpu", "emulated:<arch>" or "static:<arch>"."""
    status: Status
    sentence: str | None = None
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Samples in seconds by series name ("latency", "call", "pack"), in the order they were taken."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """Samples that there were, of each series that keeps only five numbers (`results thin`)."""
    clocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """SM clock in MHz beside each sample, of each series that has it."""
    late: Mapping[str, int] = field(default_factory=dict)
    """Samples, by series, that the GPU came to before the host had put the whole call on the stream."""
    apart: bool = False
    """Timed after the others of its shape, beside which it found no memory, and so at another time than these."""
    numerics: Numerics | None = None
    launches: tuple[LaunchRecord, ...] = ()
    """What a call launches, in order; empty for implementations made of torch calls."""
    kernels: tuple[KernelRecord, ...] = ()
    """What a call launches, each kernel once, in order, where it is compiled and not executed."""
    counters: tuple[CounterRecord, ...] = ()
    """What each launch of a call did, in order, where it is emulated to be counted."""
    rules: Mapping[str, RuleStatus] = field(default_factory=dict)
    """{rule of the emulator that `counters` rest on: how far it is trusted}"""
    cache_layout: str | None = None
    """How K and V lie in memory, in words: "nvfp4", "bfloat16 dense", "nvfp4 in pages of 64, HND"."""
    work: Mapping[str, int] = field(default_factory=dict)
    """What a call has to do and takes, by name: see WORK."""
    plan: Mapping[str, int | str] = field(default_factory=dict)
    """What the planner decided."""
    prepare_seconds: float | None = None
    """Of packing and binding."""
    compile_seconds: float | None = None
    """Of the plan: where cells of a GPU are timed, other processes have compiled its kernels, and it finds them on the disk."""

    def __post_init__(self) -> None:
        if not CELL_ID.fullmatch(self.id):
            raise ValueError(f"cell id {self.id!r} is not workload/implementation/parameters.")
        if self.status not in STATUSES:
            raise ValueError(f"cell {self.id}: unknown status {self.status!r}.")
        if self.suite not in SUITES or not HOW.fullmatch(self.how):
            raise ValueError(f"cell {self.id}: suite {self.suite!r} or how {self.how!r} is not known.")
        measured = bool(self.series) or self.numerics is not None or bool(self.kernels) or bool(self.counters)
        if self.status == "ok" and (not measured or self.sentence is not None):
            raise ValueError(f"cell {self.id} is ok, so it needs a measurement and no sentence.")
        if self.status != "ok" and (measured or not self.sentence):
            raise ValueError(f"cell {self.id} is {self.status}, so it needs a sentence and no measurement.")
        if self.how.startswith("static:") != (self.suite == COMPILED):
            raise ValueError(f"cell {self.id}: {self.suite} cells are not {self.how}.")
        if self.suite == COUNTED and not self.how.startswith("emulated:"):
            raise ValueError(f"cell {self.id}: {self.suite} cells are not {self.how}.")
        if bool(self.counters) != (self.suite == COUNTED and self.status == "ok"):
            raise ValueError(f"cell {self.id}: counters are what an ok cell of {COUNTED} has, and no other.")
        if bool(self.kernels) != (self.suite == COMPILED and self.status == "ok"):
            raise ValueError(f"cell {self.id}: kernels are what an ok cell of {COMPILED} has, and no other.")
        if self.suite in WITH_LSE and self.numerics is not None and self.numerics.lse_error is None:
            raise ValueError(f"cell {self.id}: {self.suite} compares an LSE, so its numerics need an lse_error.")
        for name, samples in self.series.items():
            if not samples:
                raise ValueError(f"cell {self.id}: series {name} has no samples.")
            _finite(f"cell {self.id}: series {name}", samples)
        for name, clocks in self.clocks.items():
            _finite(f"cell {self.id}: clocks of {name}", clocks)
            if len(clocks) != len(self.series.get(name, ())):
                raise ValueError(f"cell {self.id}: {name} needs a clock for each of its samples, or none.")
        for name, count in self.taken.items():
            if not isinstance(count, int) or name not in self.series or count < len(self.series[name]):
                raise ValueError(f"cell {self.id}: {name} cannot have been thinned from {count!r:.60} samples.")
        for name, count in self.late.items():
            if not isinstance(count, int) or not 0 < count <= self.taken.get(name, len(self.series.get(name, ()))):
                raise ValueError(f"cell {self.id}: {name} cannot have had {count!r:.60} late samples.")
        for name, amount in self.work.items():
            if name not in WORK or not isinstance(amount, int) or amount < 0:
                raise ValueError(f"cell {self.id}: work has {', '.join(WORK)} as whole numbers, not {name}={amount!r:.60}.")
        if not set(self.rules.values()) <= set(RULE_STATUSES) or (self.rules and not self.counters):
            raise ValueError(f"cell {self.id}: rules are what counters rest on, by name, each {', '.join(RULE_STATUSES)}.")
        _finite(f"cell {self.id}: seconds", (x for x in (self.prepare_seconds, self.compile_seconds) if x is not None))
        if not all(isinstance(value, (int, str)) for value in self.plan.values()):
            raise ValueError(f"cell {self.id}: plan holds whole numbers and words only.")

    @property
    def verdict(self) -> str:
        """The status, or "wrong" where it was measured and its numbers break a bound."""
        return self.status if self.broken_bound is None else "wrong"

    @property
    def broken_bound(self) -> str | None:
        """The sentence that says which check its numbers fail; None where they hold, and where there are none."""
        return None if self.numerics is None or self.numerics.verdict == "pass" else self.numerics.verdict

    @property
    def slow_clocks(self) -> dict[str, float]:
        """{series: the SM clock in MHz that a quarter of its samples does not exceed}"""
        return {name: _lower_quartile(clocks) for name, clocks in self.clocks.items()}

    @property
    def workload(self) -> str:
        return self.id.split("/")[0]

    @property
    def impl(self) -> str:
        return self.id.split("/")[1]

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.id.split("/")[2:])


def _lower_quartile(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else statistics.quantiles(values, n=4, method="inclusive")[0]


NESTED = {"numerics": Numerics, "launches": LaunchRecord, "kernels": KernelRecord, "counters": CounterRecord}
"""{field of a cell: the record in it}"""


def to_json(record: Run | Cell) -> dict[str, Any]:
    """The record as JSON data: `kind` first, fields at their default left out, Inf and NaN as strings."""
    kind = "run" if isinstance(record, Run) else "cell"
    return {"kind": kind, **_dump(record)}


def from_json(data: Mapping[str, Any]) -> Run | Cell:
    """The record that `data` states. Raises ValueError, in one sentence, if it states none."""
    if not isinstance(data, Mapping):
        raise ValueError(f"a record is a JSON object, not {type(data).__name__}.")
    rest = dict(data)
    kind = rest.pop("kind", None)
    try:
        if kind == "run":
            return _load(Run, rest, {"environment": Environment})
        if kind == "cell":
            return _load(Cell, rest, NESTED)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"a {kind} record has wrong fields: {error}.") from error
    raise ValueError(f"a record's kind is run or cell, not {kind!r}.")


def _dump(record: Any) -> dict[str, Any]:
    data = {}
    for spec in dataclasses.fields(record):
        value = getattr(record, spec.name)
        default = spec.default_factory() if spec.default_factory is not dataclasses.MISSING else spec.default
        if value == default and spec.name not in ("schema", "protocol"):
            continue
        if dataclasses.is_dataclass(value):
            value = _dump(value)
        elif isinstance(value, float) and not math.isfinite(value):
            value = repr(value)  # "inf", "nan": JSON has no such numbers
        elif isinstance(value, Mapping):
            value = {k: list(v) if isinstance(v, tuple) else v for k, v in value.items()}
        elif isinstance(value, tuple):
            value = [_dump(one) if dataclasses.is_dataclass(one) else one for one in value]
        data[spec.name] = value
    return data


def _load(record_type: type, data: dict[str, Any], nested: Mapping[str, type]) -> Any:
    values = dict(data)
    for spec in dataclasses.fields(record_type):
        if spec.name not in values:
            continue
        value = values[spec.name]
        if spec.name in nested and str(spec.type).startswith("tuple"):
            value = tuple(_load(nested[spec.name], one, {}) for one in value)
        elif spec.name in nested and value is not None:
            value = _load(nested[spec.name], value, {})
        elif str(spec.type).startswith("float") and isinstance(value, str):
            value = float(value)
        elif spec.name == "series":
            value = {k: tuple(float(x) for x in v) for k, v in value.items()}
        elif spec.name == "clocks":
            value = {k: tuple(v) for k, v in value.items()}
        elif str(spec.type).startswith("tuple"):
            value = tuple(value)
        _check_type(spec.name, str(spec.type), value)
        values[spec.name] = value
    return record_type(**values)


def _check_type(name: str, annotation: str, value: Any) -> None:
    """Plain types only; what is nested is checked by its own record."""
    if value is None and "None" in annotation:
        return
    wanted: dict[str, type | tuple[type, ...]] = {
        "str": str,
        "bool": bool,
        "int": int,
        "float": (int, float),
        "Mapping": Mapping,
        "tuple": tuple,
    }
    kind = wanted.get(annotation.split("[")[0].split(" ")[0])
    if kind is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise ValueError(f"field {name} should be {annotation}, not {value!r:.60}.")


def _is_moment(text: str) -> bool:
    try:
        return datetime.strptime(text, STARTED).strftime(STARTED) == text
    except ValueError:
        return False


def _finite(what: str, numbers: Any) -> None:
    if not all(isinstance(x, (int, float)) and math.isfinite(x) and x >= 0 for x in numbers):
        raise ValueError(f"{what}: samples must be finite, non-negative numbers.")
