"""The pages in a browser, in detail: choices, figures, tables, widths, colour schemes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.dashboards.browser import Look, key_of, needs_chromium
from tests.dashboards.synthetic import CASES

pytestmark = [needs_chromium, pytest.mark.slow]


def test_the_address_says_what_is_shown(look: Look, site: Path) -> None:
    older = key_of(site, "nvidia-h200", 1)
    seen = look(
        "sm_90a.html",
        """return {
          run: document.getElementById("run").value,
          machine: document.getElementById("machine").value,
          workload: document.getElementById("workload").value,
          series: document.getElementById("series").value,
          checked: [...document.querySelectorAll("#impls input:checked")].map((box) => box.value),
          budget: document.getElementById("budget").value,
          tokens: document.getElementById("kv").value,
          lines: document.getElementById("latency-context").data
            .filter(({ mode }) => mode === "lines+markers").map(({ name }) => name),
          label: document.getElementById("latency-context").getAttribute("aria-label"),
        };""",
        fragment=f"#run={older}&impl=triton&workload=prefill&point=d64&series=eager&budget=0.01&kv=4096",
    )
    assert (seen["run"], seen["machine"]) == (older, "nvidia-h200")
    assert (seen["workload"], seen["series"], seen["budget"], seen["tokens"]) == ("prefill", "eager", "0.01", "4096")
    assert seen["checked"] == seen["lines"] == ["triton"]
    assert "eager of prefill at d64" in seen["label"]


def test_a_choice_goes_into_the_address_and_changes_the_figure(look: Look) -> None:
    seen = look(
        "cpu.html",
        """document.querySelector("#impls input[value=triton]").click();
           const filter = document.getElementById("filter");
           filter.value = "causal";
           filter.dispatchEvent(new Event("input"));
           return new URLSearchParams(location.hash.slice(1)).toString();""",
    )
    assert seen == "impl=torch-reference-bf16&cells=causal"


def test_a_choice_by_keyboard_keeps_its_place(look: Look) -> None:
    """What is chosen redraws the page; the focus must not be thrown back to its start."""
    seen = look(
        "sm_90a.html",
        """const place = (one) => { one.focus(); one.click?.(); return document.activeElement === one; };
           const box = place(document.querySelector("#impls input"));
           const budget = document.getElementById("budget");
           budget.focus();
           budget.value = "0.01";
           budget.dispatchEvent(new Event("change"));
           return [box, document.activeElement === budget];""",
    )
    assert seen == [True, True]


def test_the_filter_leaves_the_cells_it_names(look: Look) -> None:
    ticks = look(
        "cpu.html",
        """return document.getElementById("numerics-bound").layout.yaxis.ticktext;""",
        fragment="#cells=window",
    )
    assert ticks == ["window-after-4k"]


def test_the_worst_case_stands_on_top_and_an_exact_zero_is_drawn_as_one(look: Look) -> None:
    seen = look(
        "cpu.html",
        """const { data, layout } = document.getElementById("numerics-bound");
           return {
             cases: layout.yaxis.ticktext,
             symbols: data.flatMap(({ marker }) => marker.symbol),
             shapes: layout.shapes.map(({ x0, x1, line }) => [x0, x1, line.dash]),
             texts: data.flatMap(({ text }) => text).filter((text) => text.startsWith("exact-zeros")),
           };""",
    )
    assert seen["cases"][0] == "sink-flat-tail-f16" and seen["cases"][-1] == "exact-zeros"
    assert set(seen["cases"]) == set(CASES)
    assert seen["symbols"].count("triangle-left-open") == 2
    assert seen["shapes"] == [[1, 1, "dash"]]
    assert all(": 0<br>" in text for text in seen["texts"]) and len(seen["texts"]) == 2


def test_emulated_marks_are_not_drawn_like_measured_ones(look: Look) -> None:
    probe = """return document.getElementById("numerics-l2").data.flatMap(({ marker }) => marker.symbol);"""
    emulated, measured = set(look("sm_120a.html", probe)), set(look("cpu.html", probe))
    assert all(symbol.endswith("-open") for symbol in emulated)
    assert {"diamond", "triangle-up"} <= measured  # filled


def test_every_figure_has_its_table_and_downloads(look: Look) -> None:
    seen = look(
        "cpu.html",
        """const details = [...document.querySelectorAll("details.rows-of")];
           for (const one of details) { one.open = true; one.dispatchEvent(new Event("toggle")); }
           const links = [...document.querySelectorAll(".downloads a")].map((link) => link.download);
           const [head, ...rows] = document.querySelector("#numerics .rows table").rows;
           const texts = (items) => [...items].map((item) => item.textContent);
           return { links, heads: texts(head.cells), rows: texts(rows) };""",
    )
    assert {f"nvfp4bench-{suite}.{kind}" for suite in ("numerics", "host") for kind in ("csv", "json")} <= set(seen["links"])
    assert "nvfp4bench-latency-unmeasured.csv" in seen["links"]
    assert {"case", "error / bound", "quantisation L2", "reproduce"} <= set(seen["heads"])
    assert len(seen["rows"]) == 2 * len(CASES)
    assert any("nvfp4bench cell numerics/triton/causal" in row for row in seen["rows"])


def test_a_table_sorts_numbers_as_numbers_and_what_has_none_last(look: Look) -> None:
    columns = look(
        "cpu.html",
        """const { table } = nvfp4bench.tables;
           const rows = [9, null, 10, "inf", 1e-7].map((value) => ({ value }));
           const made = table([{ key: "value", label: "value", kind: "number", text: ({ value }) => String(value) }], rows);
           const button = made.querySelector("th button");
           return [0, 1].map(() => {
             button.click();
             return [...made.querySelectorAll("td")].map((cell) => cell.textContent);
           });""",
    )
    assert columns == [["1e-7", "9", "10", "inf", "null"], ["inf", "10", "9", "1e-7", "null"]]


def test_a_download_is_whole_and_no_formula(look: Look) -> None:
    csv = look(
        "cpu.html",
        """const columns = ["id", "sentence"].map((key) => ({ key, kind: "text" }));
           const rows = [{ id: '=cmd|"calc"', sentence: "a, b\\nc" }, { id: "x", sentence: null }];
           return nvfp4bench.tables.toCsv(columns, rows);""",
    )
    assert csv == 'id,sentence\r\n"\'=cmd|""calc""","a, b\nc"\r\nx,\r\n'


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("page", ["index.html", "cpu.html", "sm_90a.html"])
def test_nothing_is_wider_than_the_window(look: Look, page: str, width: int) -> None:
    """Tables may be, inside a frame of their own that scrolls."""
    seen = look(
        page,
        """return {
          window: innerWidth,
          page: document.documentElement.scrollWidth,
          wide: [...document.body.querySelectorAll("*")]
            .filter((one) => !one.closest(".scroll") && one.getBoundingClientRect().right > innerWidth + 1)
            .map((one) => `${one.tagName} ${one.id} ${one.className}`),
        };""",
        width=width,
    )
    assert seen == {"window": width, "page": width, "wide": []}


def test_dark_figures_are_drawn_in_light_ink(look: Look) -> None:
    probe = """return document.getElementById("numerics-bound").layout.font.color;"""
    assert (look("cpu.html", probe), look("cpu.html", probe, dark=True)) == ("#1b1f24", "#e6e9ee")


def test_no_figure_offers_to_send_its_data_away(look: Look) -> None:
    buttons = look(
        "cpu.html",
        """return [...document.querySelectorAll(".modebar-btn")].map((one) => one.dataset.title ?? one.dataset.attr);""",
    )
    assert all("cloud" not in str(one).lower() and "share" not in str(one).lower() for one in buttons)
    config = look("cpu.html", """return document.getElementById("host-steps")._context.showSendToCloud;""")
    assert config is False


def test_a_missing_data_file_is_said(look: Look, site: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(site, tmp_path / "broken")
    (broken / "data" / "cpu.js").unlink()
    told = look("cpu.html", "return document.getElementById('trouble').textContent;", of=broken, may_complain=True)
    assert told == "data/cpu.js is missing; build the pages again."
