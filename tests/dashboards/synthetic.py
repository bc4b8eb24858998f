"""Results of machines that are not here, written through the journal's own writer.

The numbers follow simple formulas, so that a test can say what a page must show; nobody measured them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.journal import JournalWriter
from benchmarks.records import Cell, Environment, Numerics, Run

CPU = Environment(
    device="Some CPU", arch="cpu", platform="linux-x86_64", python="3.11.7", numpy="2.4.6", torch="2.13.0+cpu", triton="3.9.0"
)
H200 = Environment(
    device="NVIDIA H200",
    arch="sm_90a",
    platform="linux-x86_64",
    python="3.12.1",
    numpy="2.4.6",
    torch="2.15.0",
    triton="3.9.0",
    driver="580.95.05",
    cuda="13.0",
)
CASES = (
    "causal",
    "window-after-4k",
    "sink-flat-tail-f16",
    "ragged-with-empty",
    "one-hot-v",
    "all-scales-all-codes",
    "exact-zeros",
)
CEILINGS = {
    "copy_bytes_per_s": 4.3e12,
    "read_bytes_per_s": 4.5e12,
    "bf16_matmul_flops_per_s": 6.9e14,
    "empty_graph_1_seconds": 4.6e-6,
    "empty_graph_2_seconds": 5.4e-6,
    "cold_over_warm": 1.9,
}
READ = max(CEILINGS["copy_bytes_per_s"], CEILINGS["read_bytes_per_s"])
"""Bytes a second at which the bound reads the cache."""
KV_LENS = (1024, 4096, 16384, 65536, 131072)
HEAD_DIMS = (64, 128, 256, 512)
GAP = "decode/triton/d128/kv16384"
"""The latency cell that crashed; its neighbours have numbers."""
SAGGING = "prefill/torch-reference-bf16/d512/kv131072"
"""The latency cell whose SM clock fell."""


def run(machine: str, environment: Environment, *, day: int = 1, commit: str = "a") -> Run:
    return Run(
        command="nvfp4bench run --full",
        commit=commit * 40,
        source="5" * 64,
        machine=machine,
        started=f"2026-11-{day:02d}T12:00:00Z",
        environment=environment,
        ceilings=CEILINGS if environment.driver else {},
    )


def write(results: Path, header: Run, cells: Iterable[Cell]) -> Path:
    with JournalWriter(results, header, resume=False) as journal:
        for cell in cells:
            journal.append(cell)
        return journal.path


def numerics(impl: str, how: str = "cpu", *, worse: float = 1.0) -> list[Cell]:
    """Errors that grow from case to case; "exact-zeros" has none at all, and one case of triton breaks its bound."""
    cells = []
    for order, case in enumerate(CASES):
        zero = case == "exact-zeros"
        share = 0.0 if zero else worse * 0.02 * 2**order
        wrong = impl == "triton" and case == "sink-flat-tail-f16"
        errors = Numerics(
            error_over_bound=3.5 if wrong else share,
            relative_l2=share * 3e-3,
            largest_row_error=share * 9e-3,
            magnitude_ratio=1.0 - share * 1e-4,
            lse_error=share * 1e-6,
            cosine=1.0,
            quantisation_relative_l2=None if zero else 0.08 + 0.01 * order,
            verdict="the largest error is 3.5 x its bound." if wrong else "pass",
        )
        cells.append(Cell(id=f"numerics/{impl}/{case}", suite="numerics", how=how, status="ok", numerics=errors))
    return cells


def host(impl: str) -> list[Cell]:
    cells = []
    for order, (head_dim, kv_len) in enumerate([(64, 1024), (128, 1024), (128, 4096)], 1):
        series = {
            name: tuple(base * order * (1 + 0.02 * sample) for sample in range(5))
            for name, base in {"plan": 4e-3, "pack": 2e-7, "bind": 3e-5, "call": 9e-4}.items()
        }
        cells.append(Cell(id=f"host/{impl}/d{head_dim}/kv{kv_len}", suite="host", how="cpu", status="ok", series=series))
    return cells


def latency(impl: str, *, slower: float = 1.0, error: float | None = 2e-3, packs: bool = False) -> list[Cell]:
    """Times are `slower` x (5 us + the bound's time); `error` is the exact relative L2; `packs` converts the cache first."""
    cells = []
    for workload in ("decode", "prefill"):
        for head_dim in HEAD_DIMS:
            for kv_len in KV_LENS:
                cell_id = f"{workload}/{impl}/d{head_dim}/kv{kv_len}"
                if cell_id == GAP:
                    cells.append(without_number(cell_id, "crashed", "the process died by SIGSEGV."))
                else:
                    cells.append(timed(cell_id, work(workload, head_dim, kv_len, packs=packs), slower, error, packs=packs))
    return cells


def work(workload: str, head_dim: int, kv_len: int, *, packs: bool = False) -> dict[str, int]:
    """32 query heads on 8 KV heads and one query token, or 16 heads and a causal square."""
    decode = workload == "decode"
    elements = 2 * (8 if decode else 16) * kv_len * head_dim
    return {
        "flops": 4 * 32 * kv_len * head_dim if decode else 2 * 16 * kv_len * (kv_len + 1) * head_dim,
        "nvfp4_bytes": elements * 9 // 16,
        "cache_bytes": elements * 2 if packs else elements * 9 // 16,
        "workspace_bytes": 1 << 20,
    }


def timed(cell_id: str, todo: dict[str, int], slower: float, error: float | None, *, packs: bool) -> Cell:
    bound = max(todo["flops"] / CEILINGS["bf16_matmul_flops_per_s"], todo["nvfp4_bytes"] / READ)
    samples = tuple(slower * (5e-6 + bound) * (1 + 0.01 * (sample - 10)) for sample in range(21))
    series = {"latency": samples, "eager": tuple(4e-6 + x for x in samples), "host": tuple(1.1e-5 + 0 * x for x in samples)}
    if packs:
        series["pack"] = tuple(3.0 * x for x in samples)
        series["total"] = tuple(4e-6 + 4.0 * x for x in samples)  # launched one by one, so slower than both parts
    clocks = (1980,) * 20 + (1965,) if cell_id != SAGGING else (1980,) * 5 + (1755,) * 16
    return Cell(
        id=cell_id,
        suite="latency",
        how="gpu",
        status="ok",
        series=series,
        clocks={"latency": clocks, "eager": (1980,) * 21},
        numerics=None if error is None else exactly(error),
        cache_layout="bfloat16 dense" if packs else "nvfp4",
        work=todo,
    )


def exactly(error: float) -> Numerics:
    return Numerics(
        error_over_bound=0.4,
        relative_l2=error / 2,
        largest_row_error=error,
        magnitude_ratio=1.0,
        lse_error=1e-6,
        cosine=1.0,
        exact_relative_l2=error,
    )


def without_number(cell_id: str, status: str, sentence: str, *, suite: str = "latency", how: str = "gpu") -> Cell:
    return Cell(id=cell_id, suite=suite, how=how, status=status, sentence=sentence)  # type: ignore[arg-type]


def refused(impl: str, sentence: str, *, status: str = "unsupported") -> list[Cell]:
    return [
        without_number(f"{workload}/{impl}/d{head_dim}/kv{kv_len}", status, sentence)
        for workload in ("decode", "extend-q512", "prefill")
        for head_dim in HEAD_DIMS
        for kv_len in KV_LENS
    ]


def everything(results: Path) -> Path:
    """A CPU, two GPU models of one architecture (one of them twice), and an emulated architecture."""
    no_gpu = "latency is measured on a GPU, and there is no NVIDIA driver here."
    cpu = [*numerics("torch-reference-bf16"), *numerics("triton", worse=1.7), *host("torch-reference-bf16")]
    cpu += [
        without_number(
            "host/triton/d128/kv1024", "unsupported", "interpreted host costs mean nothing.", suite="host", how="cpu"
        )
    ]
    cpu += [*refused("torch-reference-bf16", no_gpu), *refused("triton", no_gpu)]
    write(results, run("cpu-x86_64", CPU), cpu)

    gpu = [*latency("a4q", error=0.07), *latency("triton", slower=1.9)]
    gpu += latency("torch-reference-bf16", slower=1.2, error=4e-3, packs=True)
    gpu += refused("sdpa", "sdpa reads no NVFP4 cache on sm_90a.")
    gpu += [*numerics("triton", "gpu"), *numerics("a4q", "gpu", worse=0.6)]
    write(results, run("nvidia-h200", H200, day=3, commit="b"), gpu)
    write(results, run("nvidia-h200", H200, day=2, commit="a"), latency("triton", slower=2.4))
    write(results, run("nvidia-h100-80gb-hbm3", H200, day=4), [*latency("triton", slower=2.1)])
    write(results, run("emulated", CPU), numerics("a4q", "emulated:sm_120a"))
    return results
