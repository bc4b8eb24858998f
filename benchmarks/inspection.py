"""The static report: what each kernel became on an architecture, found on any machine, with a GPU or without.

A kernel is the one that a call of a workload launches: it is planned and bound like any other, to tensors that have shapes and
no memory. Its facts are read from the cubin that a GPU would load and from that cubin's machine code.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cells import CellSpec, workloads
from benchmarks.pool import Pool
from benchmarks.records import Status
from impls.arch import Arch, find
from impls.contract import Inputs, Launch, Problem, Unsupported
from impls.cuda.cubin import facts_of
from impls.errors import CommandError
from impls.isa import sass
from impls.isa.processes import Processes
from impls.isa.toolchain import HOW_TO_GET_DISASSEMBLER, Disassembler, disassembler
from impls.occupancy import resident_warps
from impls.registry import implementation

if TYPE_CHECKING:
    from impls.nvfp4 import NVFP4Tensor

KINDS = {"decode": ("decode", 131072), "extend": ("extend-q64", 131072), "prefill": ("prefill", 8192)}
"""{kind of work: (workload, kv_len)} whose kernels are inspected: kernels of a kind differ by head dim, not by length."""
COMPILE_SECONDS = 600.0
COMPILE_ENVIRONMENT = {"TRITON_INTERPRET": "0"}
"""Environment of a process that compiles, whatever this one does."""


@dataclass(frozen=True)
class Wanted:
    """One call whose kernels are to be inspected."""

    impl: str
    source: str
    """What `impls.registry.implementation` finds it by."""
    arch: str
    head_dim: int
    workload: str


@dataclass(frozen=True)
class Row:
    """One kernel."""

    impl: str
    arch: str
    head_dim: int
    workload: str
    name: str
    registers: int
    """Of a thread."""
    spill_bytes: int
    """Bytes of a thread that LDL and STL instructions move, each counted once."""
    local_bytes: int
    """Local memory of a thread."""
    shared_bytes: int
    """Of a block: what the kernel declares and what the launch asks for."""
    threads: int
    """Of a block."""
    warps_per_sm: int
    """That reside at a time, at most."""
    opcodes: Mapping[str, int]
    ptx_sha256: str
    cubin_sha256: str


def wanted_of(spec: CellSpec) -> Wanted:
    """The call of a static cell."""
    arch, head_dim = spec.values
    kind = spec.workload.name.partition("-")[2]
    return Wanted(spec.impl, spec.source, str(arch), int(head_dim), kind)


def record_of(row: Row) -> dict[str, Any]:
    """The fields of `benchmarks.records.KernelRecord`, as JSON data."""
    same = ("registers", "spill_bytes", "local_bytes", "shared_bytes", "threads", "warps_per_sm")
    kept = {name: getattr(row, name) for name in same}
    return {"entry": row.name, "cubin": row.cubin_sha256, **kept, "instructions": sum(row.opcodes.values())}


@dataclass(frozen=True)
class LeftOut:
    """A call whose kernels are not in the report."""

    impl: str
    arch: str
    head_dim: int
    workload: str
    status: Status
    """"unsupported", or how compiling it ended: "failed", "crashed", "timeout", "oom"."""
    sentence: str


Found = list[Row] | LeftOut


class Inspector:
    """Compiles and inspects calls in processes of its own.

    with Inspector(jobs) as inspector:
        for found in inspector.found(wanted): ...
    """

    def __init__(self, jobs: int, **env: str) -> None:
        """`env`: environment of the processes, besides what makes them compile."""
        self._pool = Pool("benchmarks.inspection:answer", jobs, COMPILE_SECONDS, {**COMPILE_ENVIRONMENT, **env})

    def __enter__(self) -> Inspector:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.__exit__(*exc)

    def found(self, wanted: Sequence[Wanted]) -> Iterator[Found]:
        """What became of `wanted`, in their order, each as soon as it and those before it are known."""
        for one, reply in zip(wanted, self._pool.replies([asdict(one) for one in wanted]), strict=True):
            if reply.status == "ok":
                yield [Row(**fields) for fields in reply.value]
            else:
                sentence = reply.sentence or "no reason given."
                yield LeftOut(one.impl, one.arch, one.head_dim, one.workload, reply.status, sentence)


def inspect(wanted: Sequence[Wanted], jobs: int, progress: Callable[[int, int], None]) -> tuple[list[Row], list[LeftOut]]:
    """The kernels of `wanted`, in their order, compiled by `jobs` processes at a time."""
    rows: list[Row] = []
    left_out: list[LeftOut] = []
    with Inspector(jobs) as inspector:
        for done, found in enumerate(inspector.found(wanted), 1):
            if isinstance(found, LeftOut):
                left_out.append(found)
            else:
                rows += found
            progress(done, len(wanted))
    return rows, left_out


def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one call, as JSON. Runs in a child of `inspect`, since a compiler may end the process it is in."""
    one = Wanted(**request)
    return [asdict(row) for row in rows_of(one)]


def rows_of(one: Wanted) -> Iterator[Row]:
    """The kernels of one call, each once however often it is launched. Raises Unsupported with the sentence of `why_not`."""
    arch, problem = find(one.arch), problem_of(one)
    kernels = {(each.cubin, each.entry, each.block, each.shared_bytes): each for each in launches(one.source, problem, arch)}
    for launch in kernels.values():
        found = facts_of(launch.cubin, launch.entry)
        counts = _opcodes(launch.cubin, launch.entry)
        shared_bytes = launch.shared_bytes + found.shared_bytes
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        yield Row(
            impl=one.impl,
            arch=one.arch,
            head_dim=one.head_dim,
            workload=one.workload,
            name=launch.entry,
            registers=found.registers,
            spill_bytes=sass.local_traffic(counts),
            local_bytes=found.local_bytes,
            shared_bytes=shared_bytes,
            threads=threads,
            warps_per_sm=resident_warps(arch, threads=threads, registers=found.registers, shared_bytes=shared_bytes),
            opcodes=counts,
            ptx_sha256=hashlib.sha256(launch.ptx.encode()).hexdigest(),
            cubin_sha256=hashlib.sha256(launch.cubin).hexdigest(),
        )


def problem_of(one: Wanted) -> Problem:
    """The problem of a call. Raises ValueError where the head dim makes none."""
    workload, kv_len = KINDS[one.workload]
    return workloads()[workload].attention(one.head_dim, kv_len)


def launches(
    source: str, problem: Problem, arch: Arch, operands: Callable[[Problem], Inputs] | None = None
) -> tuple[Launch, ...]:
    """What a call launches on `arch`, bound to `operands`, by default without memory. Raises Unsupported with the sentence of
    `why_not`."""
    chosen = implementation(source)
    if not chosen.lists_launches:
        raise Unsupported(f"{chosen.name} does not list its kernels: its runners state none, or `lists_launches` is not set.")
    reason = chosen.why_not(problem, arch)
    if reason is not None:
        raise Unsupported(reason)
    plan = chosen.plan(problem, arch)
    inputs = (operands or without_memory)(problem)
    return plan.bind(inputs.q, plan.pack(inputs.k4, inputs.v4)).launches


def needed_disassembler() -> Disassembler:
    """The newest nvdisasm. Raises CommandError if there is none."""
    found = disassembler(Processes())
    if found is None:
        raise CommandError(f"there is no nvdisasm here, which machine code is read with: {HOW_TO_GET_DISASSEMBLER}")
    return found


_disassembler = cache(needed_disassembler)


@cache
def _opcodes(cubin: bytes, entry: str) -> dict[str, int]:
    """{opcode: how often} of one kernel. Workloads share cubins, and starting nvdisasm takes half a second."""
    processes = Processes(COMPILE_SECONDS)
    with tempfile.TemporaryDirectory(prefix="nvfp4bench-kernels-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        ended = processes.run([_disassembler().path, "--print-code", "--no-dataflow", path])
    if ended.status != 0:
        said = next((line for line in ended.errors.splitlines() if line.strip()), f"status {ended.status}")
        raise RuntimeError(f"nvdisasm {_disassembler().release} cannot read this cubin: {said}")
    return sass.all_opcodes(ended.output, entry)


def without_memory(problem: Problem) -> Inputs:
    """Tensors of a dense problem that have shapes and strides and no memory."""
    import torch

    p = problem
    q = torch.empty(p.batch, p.q_heads, p.q_len, p.head_dim, dtype=getattr(torch, p.dtype), device="meta")
    return Inputs(q, _empty_cache(p, p.head_dim), _empty_cache(p, p.v_head_dim))


def _empty_cache(problem: Problem, dim: int) -> NVFP4Tensor:
    """[B, Hkv, Sk, dim], blocks along the last axis."""
    import torch

    from impls.nvfp4 import NVFP4Tensor

    lines = (problem.batch, problem.kv_heads, problem.kv_len)
    codes = torch.empty(*lines, dim // 2, dtype=torch.uint8, device="meta")
    scales = torch.empty(*lines, dim // 16, dtype=torch.float8_e4m3fn, device="meta")
    return NVFP4Tensor(codes, scales, torch.empty((), device="meta"))
