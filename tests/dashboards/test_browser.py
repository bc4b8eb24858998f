"""The pages in a browser, opened from the disk without a network: what must never break."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nvfp4bench import main
from tests.dashboards.browser import Look, key_of, needs_chromium
from tests.dashboards.synthetic import H200, KV_LENS, latency, run, without_number, write

pytestmark = needs_chromium


def test_a_cpu_page_draws_its_figures_and_no_latency(look: Look) -> None:
    seen = look(
        "cpu.html",
        """return {
          plots: [...document.querySelectorAll(".js-plotly-plot")].map((plot) => plot.id),
          latency: document.getElementById("latency-empty").checkVisibility(),
          drawn: document.getElementById("latency-drawn").checkVisibility(),
          matrix: document.getElementById("latency-matrix").textContent,
          reasons: document.querySelector("#latency .unmeasured").textContent,
          trouble: document.getElementById("trouble").hidden,
        };""",
    )
    assert seen["plots"] == ["numerics-bound", "numerics-l2", "host-steps"]
    assert (seen["latency"], seen["drawn"]) == (True, False)
    assert "5 unsupported" in seen["matrix"]
    assert "latency is measured on a GPU" in seen["reasons"]
    assert seen["trouble"] is True


def test_a_missing_cell_is_a_gap_in_its_line(look: Look, site: Path) -> None:
    lines = look(
        "sm_90a.html",
        """return document.getElementById("latency-context").data.map(({ name, x, y, connectgaps }) =>
             ({ name, x, y, connectgaps }));""",
        fragment=f"#run={key_of(site, 'nvidia-h200')}",
    )
    triton = next(line for line in lines if line["name"] == "triton")
    a4q = next(line for line in lines if line["name"] == "a4q")
    assert triton["x"] == a4q["x"] == list(KV_LENS)
    assert [value is None for value in triton["y"]] == [kv_len == 16384 for kv_len in KV_LENS]
    assert None not in a4q["y"]
    assert triton["connectgaps"] is False
    band = next(line for line in lines if line["name"] == "triton quartiles")
    outlines = "".join("|" if x is None else f" {x}" for x in band["x"])
    assert outlines == " 1024 4096 4096 1024| 65536 131072 131072 65536|"


def test_hostile_text_stays_text(look: Look, tmp_path: Path) -> None:
    hostile = """</script><img src=x onerror="document.title='owned'"><b>bold</b>"""
    header = replace(run("nvidia-h200", replace(H200, device=hostile)), command=hostile)
    cells = [*latency("a4q"), without_number("decode/triton/d64/kv1024", "failed", hostile)]
    write(tmp_path / "results", header, cells)
    out = tmp_path / "site"
    assert main(["dashboard", "--results", str(tmp_path / "results"), "--out", str(out)]) == 0
    seen = look(
        "sm_90a.html",
        """return {
          title: document.title,
          made: document.querySelectorAll("main img, main b").length,
          told: document.getElementById("failures-table").textContent,
          facts: document.getElementById("facts").textContent,
        };""",
        of=out,
    )
    assert "owned" not in seen["title"] and seen["made"] == 0
    assert hostile in seen["told"] and hostile in seen["facts"]
