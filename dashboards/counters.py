"""Counters of emulated calls made into rows: what each launch did, and what bounds its time from below.

Bounds are in clocks of an SM of the first product of the architecture whose SMs are known, at the clock of its stated peaks;
where that clock is not known, DRAM has no clocks and is named among the pipes of unknown rate.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.records import Cell, CounterRecord
from dashboards.rows import Row, head
from impls.arch import Arch, Product, find, products
from impls.cuda.emulator.counting.bounds import Bound, bound_of

SECTOR = 32


def counter_rows(cells: Sequence[Cell]) -> list[Row]:
    """A row for each launch of a call, one for a call without. The names of classes and pipes are values: a journal's."""
    rows: list[Row] = []
    for cell in cells:
        call = head(cell) | {"work": cell.workload.partition("-")[2], "head_dim": cell.parameters[-1].removeprefix("d")}
        nvfp4 = {"nvfp4_bytes": cell.work.get("nvfp4_bytes")}
        arch = find(cell.how.partition(":")[2])
        rows += [call | nvfp4 | _counted(counted, arch) for counted in cell.counters] or [call]
    return rows


def rests_on(cells: Sequence[Cell]) -> list[str]:
    """The rules that are only documented, of all that `cells` rest on, in the order of the alphabet."""
    return sorted({rule for cell in cells for rule, status in cell.rules.items() if status == "documented only"})


def _counted(counted: CounterRecord, arch: Arch) -> Row:
    bound, product = in_clocks(counted, arch)
    limit = bound.limit
    return {
        "kernel": counted.entry,
        "blocks": counted.blocks,
        "executed": counted.executed,
        "classes": tuple(counted.classes.items()),
        "mma": ", ".join(f"{count} {kind}" for kind, count in counted.mma.items()),
        "global_bytes": counted.global_bytes,
        "sector_bytes": SECTOR * counted.sectors,
        "sectors_per_request": round(counted.sectors / counted.global_requests, 2) if counted.global_requests else None,
        "dram_bytes": counted.dram_bytes,
        "wavefronts": counted.wavefronts,
        "ideal_wavefronts": counted.ideal_wavefronts,
        "barriers": counted.barriers,
        "divergent_branches": counted.divergent_branches,
        "bounds": tuple((pipe, round(clocks, 1)) for pipe, clocks in bound.seconds.items()),
        "limit": limit,
        "limit_clocks": None if limit is None else round(bound.seconds[limit], 1),
        "unknown": ", ".join(bound.unknown),
        "product": product.name if product else None,
    }


def in_clocks(counted: CounterRecord, arch: Arch) -> tuple[Bound, Product | None]:
    """(the bound in clocks, the product whose SMs and DRAM it is of: None where no product's are known)."""
    product = next((one for one in products(arch) if one.sms), None)
    sms = min(counted.blocks, product.sms or counted.blocks) if product else counted.blocks
    clock = product.clock_hz if product else None
    dram = product.dram_bytes_per_second / clock if product and clock else None
    bound = bound_of(counted.work, arch.per_clock, sms=max(sms, 1), clock_hz=1.0, dram_bytes_per_second=dram)
    return bound, product
