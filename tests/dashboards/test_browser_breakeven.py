"""The break-even figure in a browser: which calls it counts, where it says nothing, and its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.records import Cell
from nvfp4bench import main
from tests.dashboards.browser import Look, needs_chromium
from tests.dashboards.synthetic import H200, exactly, run, work, write

pytestmark = [needs_chromium, pytest.mark.slow]


def cell(workload: str, impl: str, latency: float, pack: float | None = None) -> Cell:
    spread = (0.98, 0.99, 1.0, 1.01, 1.02)
    series = {"latency": tuple(latency * one for one in spread)}
    if pack is not None:
        series["pack"] = tuple(pack * one for one in spread)
    return Cell(
        id=f"{workload}/{impl}/d128/kv131072",
        suite="latency",
        how="gpu",
        status="ok",
        series=series,
        numerics=exactly(2e-3),
        cache_layout="nvfp4" if pack is None else "bfloat16 dense",
        work=work("decode", 128, 131072, packs=pack is not None),
    )


def test_calls_are_counted_where_the_latencies_differ(look: Look, tmp_path: Path) -> None:
    cells = [
        *(cell("extend-q4", "triton", 1e-4), cell("extend-q4", "slower", 9e-4), cell("extend-q4", "hybrid", 2e-4, 1e-3)),
        *(cell("extend-q16", "triton", 2e-4), cell("extend-q16", "hybrid", 2.001e-4, 1e-3)),
        *(cell("extend-q64", "triton", 4e-4), cell("extend-q64", "hybrid", 2e-4, 1e-3)),
        *(cell("extend-q512", "triton", 4e-3), cell("extend-q512", "hybrid", 2e-3, 1e-3)),
        *(cell("decode", "triton", 1e-4), cell("decode", "hybrid", 0.5e-4, 1e-3)),
    ]
    write(tmp_path / "results", run("nvidia-h200", H200), cells)
    assert main(["dashboard", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "site")]) == 0
    seen = look(
        "sm_90a.html",
        """const { data, layout } = document.getElementById("latency-breakeven");
           const place = document.getElementById("latency-breakeven-table");
           place.querySelector("details").open = true;
           place.querySelector("details").dispatchEvent(new Event("toggle"));
           const heads = [...place.querySelectorAll("th")].map(({ textContent }) => textContent);
           const rows = [...place.querySelectorAll("tbody tr")].map((row) => [...row.cells].map((one) => one.textContent));
           const [fused, verdict] = ["fastest on NVFP4", "cheaper"].map((name) => heads.indexOf(name));
           return { lines: data.map(({ name, x, y, marker }) => [name, x, y, marker.symbol]),
                    levels: layout.shapes.map(({ y0 }) => y0),
                    verdicts: rows.map((row) => [row[0], row[fused], row[verdict]]) };""",
        of=tmp_path / "site",
    )
    (line, never) = seen["lines"]
    assert (line[0], line[1]) == ("hybrid", [4, 16, 64, 512])
    assert line[2][:2] == [None, None] and line[2][2:] == pytest.approx([5.0, 0.5])
    assert (never[0], never[1], never[3]) == ("hybrid, never", [4], "triangle-up-open")
    assert seen["levels"] == [1]
    assert seen["verdicts"] == [
        ["4", "triton", "never: its calls are slower"],
        ["16", "triton", "unsure: the latencies overlap"],
        ["64", "triton", "from call 6 on"],
        ["512", "triton", "in the first call"],
    ]


def test_without_both_ways_there_is_a_sentence(look: Look, tmp_path: Path) -> None:
    write(tmp_path / "results", run("nvidia-h200", H200), [cell("extend-q4", "triton", 1e-4)])
    assert main(["dashboard", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "site")]) == 0
    words = look("sm_90a.html", """return document.getElementById("latency-breakeven").textContent;""", of=tmp_path / "site")
    assert words.startswith("No extend workload was measured here both ways")
