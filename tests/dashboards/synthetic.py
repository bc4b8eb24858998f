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
KV_LENS = (1024, 4096, 16384, 65536, 131072)
HEAD_DIMS = (64, 128, 256, 512)
GAP = "decode/triton/d128/kv16384"
"""The latency cell that crashed; its neighbours have numbers."""


def run(machine: str, environment: Environment, *, day: int = 1, commit: str = "a") -> Run:
    return Run(
        command="nvfp4bench run --full",
        commit=commit * 40,
        source="5" * 64,
        machine=machine,
        started=f"2026-11-{day:02d}T12:00:00Z",
        environment=environment,
        ceilings={"copy_bytes_per_s": 4.3e12} if environment.driver else {},
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


def latency(impl: str, *, slower: float = 1.0) -> list[Cell]:
    cells = []
    for workload, cost in {"decode": 1.0, "prefill": 400.0}.items():
        for head_dim in HEAD_DIMS:
            for kv_len in KV_LENS:
                cell_id = f"{workload}/{impl}/d{head_dim}/kv{kv_len}"
                if cell_id == GAP:
                    cells.append(without_number(cell_id, "crashed", "the process died by SIGSEGV."))
                    continue
                middle = slower * cost * (5e-6 + head_dim * kv_len * 1.2e-12)
                samples = tuple(middle * (1 + 0.01 * (sample - 10)) for sample in range(21))
                series = {"latency": samples, "call": tuple(8e-6 + x for x in samples)}
                cells.append(
                    Cell(id=cell_id, suite="latency", how="gpu", status="ok", series=series, clocks=(1980,) * 20 + (1965,))
                )
    return cells


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

    gpu = [*latency("a4q"), *latency("triton", slower=1.9), *latency("torch-reference-bf16", slower=40)]
    gpu += refused("sdpa", "sdpa reads no NVFP4 cache on sm_90a.")
    gpu += [*numerics("triton", "gpu"), *numerics("a4q", "gpu", worse=0.6)]
    write(results, run("nvidia-h200", H200, day=3, commit="b"), gpu)
    write(results, run("nvidia-h200", H200, day=2, commit="a"), latency("triton", slower=2.4))
    write(results, run("nvidia-h100-80gb-hbm3", H200, day=4), [*latency("triton", slower=2.1)])
    write(results, run("emulated", CPU), numerics("a4q", "emulated:sm_120a"))
    return results
