"""The clock and the sweep on GPU 0, for machines without pytest: python -m tests.benchmarks.on_gpu [WORD_IN_NAME].

Implementations of known length and hostile ones are timed together on one small shape, so each fault has neighbours.
One line a check; exit status 0 if all hold, 1 if one does not, 2 without a GPU.
"""

from __future__ import annotations

import functools
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import together
from benchmarks.ceilings import measured_ceilings
from benchmarks.cells import specs
from benchmarks.clock import COLD_OVER_WARM
from benchmarks.journal import JournalWriter, read_journal
from benchmarks.records import Cell
from benchmarks.sweep import Place, import_path, sweep
from impls.host import gpu_here
from impls.registry import implementation
from tests.benchmarks.hostile_kernels import READ_BYTES, SLEEP_CYCLES, THINKING_SECONDS
from tests.benchmarks.records_made_up import run

KERNELS = Path(__file__).with_name("hostile_kernels.py")
HONEST = ("Light", "Sleeps", "Thinks", "Reads", "ReadsTwice")
FAULTS = ("OnAnotherStream", "Caches", "Waits", "Hangs", "EndsLate", "Faults", "Fills")
WATCHDOG = 10.0
"""Seconds that the candidates that hang are waited for."""
LENGTH_TOLERANCE = 0.03


@dataclass(frozen=True)
class Measured:
    """All that the checks look at."""

    ceilings: dict[str, float]
    hostile: dict[str, Cell]
    real: dict[str, Cell]
    lines: list[str]

    def median(self, impl: str) -> float:
        """Median latency, seconds."""
        return statistics.median(self.hostile[impl].series["latency"])


@functools.cache
def measured() -> Measured:
    """Measure everything, once."""
    arch, _ = gpu_here()
    assert arch is not None
    place = Place("gpu", arch=arch.name)
    lines: list[str] = []
    with import_path() as path:
        ceilings = measured_ceilings(path)
    sources = {implementation(source).name: source for source in (f"{KERNELS}:{name}" for name in (*HONEST, *FAULTS))}
    real = {name: name for name in ("triton", "torch-reference-bf16")}
    together.PROGRESS_SECONDS = WATCHDOG
    found = []

    def report(line: str) -> None:
        lines.append(line)
        print(f"      {line}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for number, (impls, shape) in enumerate(((sources, "d64/kv1024"), (real, "d128/kv8192"))):
            with JournalWriter(Path(folder) / str(number), run(), resume=False) as journal:
                sweep(specs(impls, pattern=f"decode/*/{shape}"), place, journal, report=report)
            found.append({cell.impl: cell for cell in read_journal(journal.path).cells})
    return Measured(ceilings, *found, lines)


def ceilings_are_those_of_a_gpu(m: Measured) -> str:
    assert m.ceilings["copy_bytes_per_s"] > 1e11
    assert 0.5 < m.ceilings["read_bytes_per_s"] / m.ceilings["copy_bytes_per_s"] < 1.5
    assert m.ceilings["bf16_matmul_flops_per_s"] > 1e13
    assert 0 < m.ceilings["empty_graph_1_seconds"] < m.ceilings["empty_graph_2_seconds"] < 1e-4
    return "  ".join(f"{name} {value:.4g}" for name, value in m.ceilings.items())


def the_flush_leaves_the_l2_cold(m: Measured) -> str:
    assert m.ceilings["cold_over_warm"] >= COLD_OVER_WARM
    return f"cold over warm {m.ceilings['cold_over_warm']:.3f}"


def every_sample_is_cold_also_of_what_leaves_its_data_in_the_l2(m: Measured) -> str:
    """The first read of a call is as slow as DRAM, though the call before it read the same; the second is quicker."""
    cold = m.median("reads") - m.median("light")
    warm = m.median("reads-twice") - m.median("reads")
    told = f"first read {1e6 * cold:.2f} us, second {1e6 * warm:.2f} us"
    assert cold >= READ_BYTES / (1.3 * m.ceilings["read_bytes_per_s"]), told
    assert cold > warm, told
    return told


def a_kernel_of_known_length_takes_that_long(m: Measured) -> str:
    sleeps = m.hostile["sleeps"]
    assert "latency" in sleeps.clocks, "there is no SM clock to check it by"
    cycles = [
        (seconds - m.median("light")) * 1e6 * mhz
        for seconds, mhz in zip(sleeps.series["latency"], sleeps.clocks["latency"], strict=True)
    ]
    ratio = statistics.median(cycles) / SLEEP_CYCLES
    told = f"{ratio:.4f} of {SLEEP_CYCLES} cycles at {statistics.median(sleeps.clocks['latency']):.0f} MHz"
    assert abs(ratio - 1) <= LENGTH_TOLERANCE, told
    return told


def a_direct_call_takes_as_long_as_its_replay(m: Measured) -> str:
    ratio = statistics.median(m.hostile["sleeps"].series["eager"]) / m.median("sleeps")
    assert abs(ratio - 1) <= LENGTH_TOLERANCE, f"{ratio:.3f}"
    return f"{ratio:.4f}"


def host_time_does_not_wait_for_the_kernel(m: Measured) -> str:
    host = statistics.median(m.hostile["sleeps"].series["host"])
    assert host < 0.5 * m.median("sleeps"), f"{1e6 * host:.0f} us"
    return f"{1e6 * host:.0f} us"


def time_of_the_host_is_not_time_of_the_gpu(m: Measured) -> str:
    """The host is busy in every call, after its launches. All of that time would count, or none of it."""
    series = m.hostile["thinks"].series
    eager, host = (statistics.median(series[name]) for name in ("eager", "host"))
    told = f"{1e6 * eager:.1f} us on the GPU, {1e6 * host:.0f} us on the host"
    assert host >= THINKING_SECONDS, told
    assert eager < m.median("thinks") + 0.5 * THINKING_SECONDS, told
    return told


def work_on_another_stream_is_caught(m: Measured) -> str:
    return _caught(m, "on-another-stream", "failed", "leaves the output unwritten")


def a_cached_output_is_caught(m: Measured) -> str:
    return _caught(m, "caches", "failed", "gives the old output for new queries")


def a_call_that_waits_is_caught(m: Measured) -> str:
    return _caught(m, "waits-for-the-gpu", "failed", "captur")


def a_hang_costs_its_cell(m: Measured) -> str:
    return _caught(m, "hangs", "timeout", "no answer within")


def a_kernel_that_does_not_end_costs_its_cell(m: Measured) -> str:
    return _caught(m, "ends-late", "timeout", "no answer within")


def a_fault_of_the_kernel_costs_its_cell(m: Measured) -> str:
    return _caught(m, "faults", "failed", "CUDA error")


def running_out_of_memory_costs_its_cell(m: Measured) -> str:
    return _caught(m, "fills", "oom", "out of memory")


def neighbours_of_all_these_have_their_numbers(m: Measured) -> str:
    for impl in ("light", "sleeps", "thinks", "reads", "reads-twice"):
        cell = m.hostile[impl]
        assert cell.status == "ok", f"{impl}: {cell.sentence}"
        assert {name: len(taken) for name, taken in cell.series.items()} == {"latency": 20, "eager": 5, "host": 5}, impl
    return f"light {1e6 * m.median('light'):.2f} us"


def real_implementations_have_every_field(m: Measured) -> str:
    for impl, cell in m.real.items():
        assert cell.status == "ok", f"{impl}: {cell.sentence}"
        assert cell.broken_bound is None, f"{impl}: {cell.broken_bound}"
        assert cell.numerics is not None and cell.numerics.exact_relative_l2 is not None, impl
        assert set(cell.work) == {"flops", "nvfp4_bytes", "cache_bytes", "workspace_bytes"}, impl
        assert cell.compile_seconds is not None and cell.prepare_seconds is not None, impl
    triton = m.real["triton"]
    assert len(triton.launches) == 2
    attend, latency = (statistics.median(triton.series[name]) for name in ("attend", "latency"))
    assert latency / 2 < attend < latency, f"without its last launch a call takes {attend:.3g} of {latency:.3g} s"
    medians = {impl: 1e6 * statistics.median(cell.series["latency"]) for impl, cell in m.real.items()}
    compiled = m.real["triton"].compile_seconds
    return "  ".join(f"{impl} {median:.1f} us" for impl, median in medians.items()) + f"  planned in {compiled:.2f} s"


def _caught(m: Measured, impl: str, status: str, words: str) -> str:
    cell = m.hostile[impl]
    told = f"{cell.status}: {cell.sentence}"
    assert cell.status == status, told
    assert words in (cell.sentence or ""), told
    return told


CHECKS: dict[str, Callable[[Measured], str]] = {
    function.__name__: function
    for function in (
        ceilings_are_those_of_a_gpu,
        the_flush_leaves_the_l2_cold,
        every_sample_is_cold_also_of_what_leaves_its_data_in_the_l2,
        a_kernel_of_known_length_takes_that_long,
        a_direct_call_takes_as_long_as_its_replay,
        host_time_does_not_wait_for_the_kernel,
        time_of_the_host_is_not_time_of_the_gpu,
        work_on_another_stream_is_caught,
        a_cached_output_is_caught,
        a_call_that_waits_is_caught,
        a_hang_costs_its_cell,
        a_kernel_that_does_not_end_costs_its_cell,
        a_fault_of_the_kernel_costs_its_cell,
        running_out_of_memory_costs_its_cell,
        neighbours_of_all_these_have_their_numbers,
        real_implementations_have_every_field,
    )
}


def main(words: list[str]) -> int:
    arch, why_not = gpu_here()
    if arch is None:
        print(f"on_gpu: {why_not}", file=sys.stderr)
        return 2
    names = [name for name in CHECKS if not words or any(word in name for word in words)]
    start = time.perf_counter()
    found = measured()
    print(*found.lines, f"measured in {time.perf_counter() - start:.0f} s", sep="\n", flush=True)
    failed = []
    for name in names:
        try:
            line = f"ok    {name}  {CHECKS[name](found)}"
        except Exception as error:  # every other name is still to be checked
            failed.append(name)
            line = f"FAIL  {name}  {traceback.format_exception_only(error)[-1].strip()}"
        print(line, flush=True)
    print(f"{arch.name}: {len(names) - len(failed)} of {len(names)} hold" + (f"; not {', '.join(failed)}" if failed else ""))
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
