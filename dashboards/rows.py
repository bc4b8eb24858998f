"""Cells made into rows: flat, plain data that the pages' figures and tables are drawn from.

A cell that gave no number is a row as well, with its status and sentence in place of values. A name that comes from a
journal is always a value and never a key, so that none can mean something to JavaScript.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.records import FAILURES, Cell

Row = dict[str, Any]
BAD = ("wrong", *FAILURES)
"""Verdicts on cells that should be right and are not."""
VERDICTS = (*BAD, "ok", "unsupported", "skipped")
"""What may have become of a cell, the most telling first."""


def sentence(cell: Cell) -> str | None:
    """Why there is no number, or which bound it breaks; None where all is well."""
    return cell.broken_bound or cell.sentence


def numerics_rows(cells: Sequence[Cell]) -> list[Row]:
    """One row per cell: the errors of one implementation on one case."""
    rows = []
    for cell in cells:
        row = head(cell) | {"case": "/".join(cell.parameters)}
        if cell.numerics is not None:
            errors = cell.numerics
            row |= {
                "error_over_bound": _number(errors.error_over_bound),
                "relative_l2": _number(errors.relative_l2),
                "exact_relative_l2": _number(errors.exact_relative_l2),
                "quantisation_relative_l2": _number(errors.quantisation_relative_l2),
                "largest_row_error": _number(errors.largest_row_error),
                "lse_error": _number(errors.lse_error),
                "magnitude_ratio": _number(errors.magnitude_ratio),
                "cosine": _number(errors.cosine),
                "nan_count": errors.nan_count,
                "inf_count": errors.inf_count,
            }
        rows.append(row)
    return rows


def timing_rows(cells: Sequence[Cell]) -> list[Row]:
    """One row per cell and series: order statistics of its samples, in seconds, and of their clocks, in MHz.

    Samples themselves are not shipped. `point` is what the cell's parameters say besides kv_len ("d128", or a preset),
    `kv_len` the tokens, `rows` those of a projection. A cell's work, cache and error stand in each of its rows.
    """
    rows = []
    for cell in cells:
        start = head(cell) | {"workload": cell.workload, **_point(cell.parameters)}
        for name, samples in cell.series.items():
            low, middle, high = _quartiles(samples)
            rows.append(
                start
                | {"series": name, "median": middle, "q25": low, "q75": high, "minimum": _number(min(samples))}
                | {"samples": cell.taken.get(name, len(samples))}
                | _clocks(cell, name)
                | {"late": cell.late.get(name, 0), "apart": "apart" if cell.apart else "in turns"}
                | _cost(cell)
            )
        if not cell.series:
            rows.append(start)
    return rows


ROWS: dict[str, Callable[[Sequence[Cell]], list[Row]]] = {
    "latency": timing_rows,
    "projection": timing_rows,
    "layer": timing_rows,
    "numerics": numerics_rows,
    "host": timing_rows,
}
"""What makes the rows of each suite."""


def head(cell: Cell) -> Row:
    row: Row = {"id": cell.id, "impl": cell.impl, "how": cell.how, "status": cell.verdict}
    told = sentence(cell)
    return row if told is None else row | {"sentence": told}


def _point(parameters: Sequence[str]) -> Row:
    """("d128", "kv1024") -> point "d128", kv_len 1024; ("4096x14336", "m8") -> point "4096x14336", rows 8."""
    found: dict[str, int | None] = {"kv_len": None, "rows": None}
    rest = []
    for one in parameters:
        counted = re.fullmatch(r"(kv|m)(\d{1,15})", one)
        if counted:
            found["kv_len" if counted[1] == "kv" else "rows"] = int(counted[2])
        else:
            rest.append(one)
    return {"point": " ".join(rest), **found}


def _clocks(cell: Cell, series: str) -> Row:
    clocks = cell.clocks.get(series)
    if not clocks:
        return {}
    return {
        "clock_mhz": statistics.median(clocks),
        "clock_q25_mhz": cell.slow_clocks[series],
        "clock_low_mhz": min(clocks),
        "clock_high_mhz": max(clocks),
    }


def _cost(cell: Cell) -> Row:
    """What a call has to do, what its cache takes, and what is lost by it: `exact_relative_l2` counts every rounding."""
    row: Row = {name: cell.work.get(name) for name in ("flops", "nvfp4_bytes", "cache_bytes", "weight_bytes")}
    row["cache_layout"] = cell.cache_layout
    row["exact_relative_l2"] = None if cell.numerics is None else _number(cell.numerics.exact_relative_l2)
    return row


def _quartiles(samples: Sequence[float]) -> tuple[Any, Any, Any]:
    if len(samples) == 1:
        return (_number(samples[0]),) * 3
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return _number(low), _number(middle), _number(high)


def _number(value: float | None) -> float | str | None:
    """Six significant digits; Inf as the word, which JSON has no number for."""
    if value is None:
        return None
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)
