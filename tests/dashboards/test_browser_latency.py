"""The latency section in a browser: each figure, what it is drawn from, and its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.records import Cell
from nvfp4bench import main
from tests.dashboards.browser import Look, key_of, needs_chromium
from tests.dashboards.synthetic import (
    CEILINGS,
    H200,
    HEAD_DIMS,
    KV_LENS,
    READ,
    SAGGING,
    latency,
    refused,
    run,
    without_number,
    work,
    write,
)

pytestmark = [needs_chromium, pytest.mark.slow]


@pytest.fixture
def h200(look: Look, site: Path) -> Look:
    """`h200(probe, "budget=0.01")` looks at the newest run of the H200 with these choices."""

    def see(probe: str, choices: str = "", **changes: Any) -> Any:
        return look("sm_90a.html", probe, fragment=f"#run={key_of(site, 'nvidia-h200')}&{choices}", **changes)

    return see


def pages_of(cells: list[Cell], place: Path) -> Path:
    write(place / "results", run("nvidia-h200", H200), cells)
    assert main(["dashboard", "--results", str(place / "results"), "--out", str(place / "site")]) == 0
    return place / "site"


CONTEXT = """const { data, layout } = document.getElementById("latency-context");
    return {
      types: [layout.xaxis.type, layout.yaxis.type],
      lines: Object.fromEntries(data.filter(({ mode }) => mode === "lines+markers").map(({ name, y }) => [name, y])),
      bands: data.map(({ name }) => name).filter((name) => name.endsWith(" quartiles")),
      label: document.getElementById("latency-context").getAttribute("aria-label"),
      bound: data.filter(({ name }) => name === "bound").map(({ mode, x, y, line }) => ({ mode, x, y, dash: line.dash })),
      levels: layout.shapes.map(({ y0, line }) => [y0, line.dash ?? "solid"]),
      texts: layout.annotations.map(({ text }) => text),
    };"""


def test_latency_is_drawn_over_context_with_its_bound_and_the_empty_graphs(h200: Look) -> None:
    seen = h200(CONTEXT)
    assert seen["types"] == ["log", "log"]
    assert set(seen["lines"]) == {"a4q", "triton", "torch-reference-bf16"}
    (bound,) = seen["bound"]
    assert (bound["mode"], bound["dash"], bound["x"]) == ("lines", "dash", list(KV_LENS))
    todo = [work("decode", 128, kv_len) for kv_len in KV_LENS]
    limits = [CEILINGS["bf16_matmul_flops_per_s"], READ]
    assert bound["y"] == pytest.approx([max(one["flops"] / limits[0], one["nvfp4_bytes"] / limits[1]) for one in todo])
    assert seen["levels"] == [[5.4e-6, "solid"], [4.6e-6, "solid"]]
    assert seen["texts"] == ["empty graph, 2 launches: 5.4 µs", "empty graph, 1 launch: 4.6 µs", "bound"]


def test_host_time_has_no_bound_of_the_gpu(h200: Look) -> None:
    seen = h200(CONTEXT, "series=host")
    assert (seen["bound"], seen["levels"], seen["texts"]) == ([], [], [])


def test_converting_is_charged_to_those_that_convert_and_the_sum_has_no_quartiles(h200: Look) -> None:
    alone, charged = h200(CONTEXT), h200(CONTEXT, "series=charge")
    assert charged["lines"]["a4q"] == alone["lines"]["a4q"]
    reference = "torch-reference-bf16"  # three times its latency goes into the conversion
    assert charged["lines"][reference] == pytest.approx([4 * value for value in alone["lines"][reference]], rel=1e-5)
    assert len(alone["bands"]) == 3 and charged["bands"] == []
    assert charged["bound"] == alone["bound"] and charged["levels"] == alone["levels"]
    assert "latency, plus converting the cache where that is needed of decode at d128" in charged["label"]


def test_what_was_measured_of_both_is_a_series_of_its_own(h200: Look) -> None:
    alone, total = h200(CONTEXT), h200(CONTEXT, "series=total")
    reference = "torch-reference-bf16"
    assert total["lines"] == {reference: pytest.approx([4e-6 + 4 * value for value in alone["lines"][reference]], rel=1e-5)}
    assert total["bands"] == [f"{reference} quartiles"]
    assert total["levels"] == []  # it is launched one by one: an empty graph says nothing of it
    options = h200("""return [...document.getElementById("series").options].map(({ value, text }) => [value, text]);""")
    assert ["total", "pack and call, eager"] in options
    assert ["charge", "latency, plus converting the cache where that is needed"] in options


def test_the_charge_is_the_sum_of_the_medians_of_a_cell(look: Look) -> None:
    """Neither the eager series of both, nor another cell's or device's conversion, counts; without a latency there is none."""
    seen = look(
        "sm_90a.html",
        """const ofOne = { q25: 1, q75: 9, minimum: 1, samples: 5, clock_mhz: 1980 };
           const row = (id, how, series, median) => ({ id, how, series, median, ...ofOne });
           return nvfp4bench.rows.charged([
             row("a", "gpu", "total", 90), row("a", "gpu", "pack", 30), row("a", "gpu", "latency", 2),
             row("b", "gpu", "latency", 3), row("b", "emulated", "pack", 30),
             row("c", "gpu", "pack", 4), row("c", "gpu", "total", 5),
             { ...row("d", "gpu", "latency", 6), cache_layout: "nvfp4 in pages of 64, HND" }, row("d", "gpu", "pack", 7),
           ]);""",
    )
    assert seen == [
        {"id": "a", "how": "gpu", "latency": 2, "pack": 30, "charge": 32},
        {"id": "b", "how": "gpu", "latency": 3, "pack": None, "charge": 3},
        {"id": "d", "how": "gpu", "latency": 6, "pack": None, "charge": 6, "cache_layout": "nvfp4 in pages of 64, HND"},
    ]


def test_the_bound_reads_at_the_faster_rate_and_needs_every_number(look: Look) -> None:
    seen = look(
        "cpu.html",
        """const rates = (copy, read, matmul) => new Map(Object.entries(
             { copy_bytes_per_s: copy, read_bytes_per_s: read, bf16_matmul_flops_per_s: matmul }));
           const bound = (...ceilings) => nvfp4bench.roofline.boundOf({ flops: 60, nvfp4_bytes: 120 }, rates(...ceilings));
           return [bound(4, 6, 100), bound(6, 4, 100), bound(undefined, 6, 100), bound(4, 6, 2),
                   bound(undefined, undefined, 100), bound(4, 6, undefined),
                   nvfp4bench.roofline.boundOf({ flops: 1, nvfp4_bytes: null }, rates(4, 6, 100)),
                   nvfp4bench.roofline.boundOf({ flops: 1, nvfp4_bytes: 1 }, new Map())];""",
    )
    assert seen == [20, 20, 20, 30, None, None, None, None]


def test_rates_are_drawn_under_the_ceilings_of_the_run(h200: Look) -> None:
    seen = h200(
        """return ["compute", "memory"].map((name) => {
             const { data, layout } = document.getElementById(`latency-${name}`);
             const line = data.find(({ name, mode }) => name === "a4q" && mode === "lines+markers");
             return [line.y.at(-1), layout.xaxis.type, layout.yaxis.type, layout.shapes.map(({ y0 }) => y0),
                     layout.annotations.map(({ text }) => text)];
           });""",
        "point=d512",
    )
    todo = work("decode", 512, 131072)
    seconds = 5e-6 + todo["nvfp4_bytes"] / READ
    compute, memory = seen
    assert compute[0] == pytest.approx(todo["flops"] / seconds / 1e12, rel=1e-3)
    assert memory[0] == pytest.approx(todo["nvfp4_bytes"] / seconds / 1e12, rel=1e-3)
    assert compute[1:4] == ["log", "log", [690]] and compute[4] == ["bf16 matmul 690 TFLOP/s"]
    assert memory[3] == [4.5, 4.3] and memory[4] == ["read 4.5 TB/s", "copy 4.3 TB/s"]


def test_error_is_drawn_against_what_is_charged(h200: Look) -> None:
    marks = h200(
        """const { data, layout } = document.getElementById("latency-errors");
           return [layout.xaxis.type, layout.yaxis.type, data.map(({ name, x, y, marker, text }) =>
             [name, x[0], y[0], marker.symbol, text[0]]),
             data.filter(({ error_x }) => error_x).length];"""
    )
    assert marks[:2] == ["log", "log"]
    found = {name: (x, y) for name, x, y, *_ in marks[2]}
    assert {name: y for name, (_, y) in found.items()} == {"a4q": 0.07, "torch-reference-bf16": 4e-3, "triton": 2e-3}
    alone = 5e-6 + work("decode", 128, 131072)["nvfp4_bytes"] / READ
    times = {"a4q": alone, "triton": 1.9 * alone, "torch-reference-bf16": 4 * 1.2 * alone}
    assert {name: x for name, (x, _) in found.items()} == pytest.approx(times, rel=1e-5)
    texts = {name: text for name, *_, text in marks[2]}
    assert " + pack " in texts["torch-reference-bf16"] and "pack" not in texts["triton"]
    assert marks[3] == 0  # no quartiles


def test_an_error_of_zero_or_none_is_not_a_mark_among_others(look: Look, tmp_path: Path) -> None:
    cells = [*latency("a4q"), *latency("exact", error=0.0), *latency("nobody-knows", error=None)]
    marks = look(
        "sm_90a.html",
        """return document.getElementById("latency-errors").data.map(({ name, marker }) => [name, marker.symbol]);""",
        of=pages_of(cells, tmp_path),
    )
    assert dict(marks)["exact"] == "triangle-down-open" and set(dict(marks)) == {"a4q", "exact"}


FASTEST = """return [...document.querySelectorAll("#latency-fastest tbody tr")].map((row) =>
    [...row.cells].map((cell) => [cell.className, cell.innerText.split(/\\s*\\n\\s*/).filter(Boolean)]));"""


def test_the_budget_changes_who_is_fastest(h200: Look) -> None:
    anyone, exact, nobody = (h200(FASTEST, choice) for choice in ("", "budget=0.01", "budget=0.001"))
    assert [row[0][1] for row in anyone] == [[f"d{head_dim}"] for head_dim in HEAD_DIMS]
    a4q, triton, none = (rows[1][5] for rows in (anyone, exact, nobody))
    seconds = 5e-6 + work("decode", 128, 131072)["nvfp4_bytes"] / READ
    assert a4q == ["won", ["a4q", f"{seconds * 1e6:.1f} µs", "1.9 x as fast as triton"]]
    assert triton[1][0] == "triton" and triton[1][2] == f"{4.8 / 1.9:.2f}".rstrip("0") + " x as fast as torch-reference-bf16"
    assert none == ["none", ["none: 3 over the budget, 1 unsupported"]]
    assert {cell[0] for row in nobody for cell in row[1:]} == {"none"}


def test_what_breaks_its_bound_is_never_the_fastest(look: Look, tmp_path: Path) -> None:
    wrong = []
    for cell in latency("a4q"):
        assert cell.numerics is not None
        wrong.append(replace(cell, numerics=replace(cell.numerics, error_over_bound=9.0, verdict="9 x its bound.")))
    cells = [*wrong, *latency("slow", slower=5)[:-1], without_number("prefill/slow/d512/kv131072", "timeout", "no answer.")]
    rows = look("sm_90a.html", FASTEST, fragment="#workload=prefill", of=pages_of(cells, tmp_path))
    assert {cell[1][0] for row in rows for cell in row[1:]} == {"slow", "none: 1 wrong, 1 timeout"}
    assert rows[-1][-1][0] == "none" and rows[0][1][1][2] == "alone"


def test_a_workload_that_nobody_can_do_is_all_gaps(h200: Look) -> None:
    seen = h200(
        """return [document.getElementById("latency-context").textContent,
             [...document.querySelectorAll("#latency-fastest tbody td")].map(({ textContent }) => textContent)];""",
        "workload=extend-q512",
    )
    assert seen[0] == "No number to draw: see the reasons below."
    assert set(seen[1]) == {"none: 1 unsupported"}


def test_a_sagging_clock_is_marked(h200: Look) -> None:
    seen = h200(
        """const { data, layout } = document.getElementById("latency-clocks");
           return {
             traces: data.map(({ name, x, y, text, marker }) =>
               [name, x.length, y, text.map((one) => one.split("<br>")[0]), marker]),
             levels: layout.shapes.map(({ y0 }) => y0),
             words: document.getElementById("latency-clocks-words").textContent,
           };"""
    )
    steady, sagging = seen["traces"]
    assert (sagging[0], sagging[1], sagging[2], sagging[3]) == ("sagging", 1, [1755], [SAGGING])
    assert steady[0] == "steady" and steady[1] == 3 * 40 - 2
    assert steady[4]["color"] != sagging[4]["color"] and steady[4]["symbol"] != sagging[4]["symbol"]
    assert seen["levels"] == [1980, 0.95 * 1980]
    assert seen["words"].startswith("1 of 119 cells sagged")


def test_the_highest_clock_is_that_of_the_run_and_not_of_the_selection(h200: Look) -> None:
    words = h200("""return document.getElementById("latency-clocks-words").textContent;""", f"cells={SAGGING}")
    assert words == "1 of 1 cells sagged: a quarter of the samples below 0.95 of 1980 MHz, the highest clock of the run."


def test_each_figure_has_its_table_with_downloads_and_commands(h200: Look) -> None:
    seen = h200(
        """for (const one of document.querySelectorAll("#latency-drawn details.rows-of")) {
             one.open = true;
             one.dispatchEvent(new Event("toggle"));
           }
           return Object.fromEntries(["context", "rates", "fastest", "errors", "clocks"].map((name) => {
             const place = document.getElementById(`latency-${name}-table`);
             const links = [...place.querySelectorAll(".downloads a")].map((link) => link.download);
             const rows = [...place.querySelectorAll("tbody tr")].map((row) => row.textContent);
             return [name, [links, rows.length, rows.filter((row) => row.includes("nvfp4bench cell decode/")).length]];
           }));"""
    )
    for name, (links, rows, commands) in seen.items():
        assert links == [f"nvfp4bench-latency-{name}.{kind}" for kind in ("csv", "json")]
        assert rows and commands == (59 if name == "clocks" else rows)


def test_a_table_that_is_open_stays_open(h200: Look) -> None:
    seen = h200(
        """const place = document.getElementById("latency-fastest-table");
           place.querySelector("details").open = true;
           document.getElementById("budget").value = "0.01";
           document.getElementById("budget").dispatchEvent(new Event("change"));
           return place.querySelector("details").open;"""
    )
    assert seen is True


def test_cells_without_a_number_stand_together_by_their_sentence(look: Look, tmp_path: Path) -> None:
    cells = [*latency("a4q"), *refused("one", "no kernel for it."), *refused("two", "no kernel for it.")]
    cells += [without_number("decode/three/d64/kv1024", "crashed", "the process died by SIGSEGV.")]
    rows = look(
        "sm_90a.html",
        """return [...document.querySelectorAll("#latency .unmeasured > .scroll tbody tr")].map((row) =>
             [...row.cells].map((cell) => cell.textContent));""",
        of=pages_of(cells, tmp_path),
    )
    assert rows == [
        ["crashed", "three", "decode", "d64", "gpu", "1", "the process died by SIGSEGV."],
        ["unsupported", "one, two", "decode, extend-q512, prefill", "d64, d128, d256, d512", "gpu", "120", "no kernel for it."],
    ]


@pytest.mark.parametrize("dark", [False, True])
def test_ten_implementations_are_told_apart(h200: Look, dark: bool) -> None:
    looks = h200(
        """const { lookOf, colourOf, variable } = nvfp4bench.marks;
           const looks = [...Array(10).keys()].map(lookOf);
           return { colours: looks.map(colourOf), shapes: looks.map(({ symbol, dash }) => `${symbol} ${dash}`),
                    others: ["--bound", "--bad", "--ground"].map(variable) };""",
        dark=dark,
    )
    assert len(set(looks["colours"]) | set(looks["others"])) == 13
    assert len(set(looks["shapes"])) == 10
