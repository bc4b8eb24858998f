"""The sections of products with weights, and of layers, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.records import Cell
from nvfp4bench import main
from tests.dashboards.browser import Look, needs_chromium
from tests.dashboards.synthetic import CEILINGS, H200, exactly, run, without_number, write

pytestmark = needs_chromium
ROWS = (1, 64, 4096)


def projection(impl: str, rows: int, slower: float) -> Cell:
    work = {"flops": 2 * rows * 4096 * 14336, "nvfp4_bytes": 4096 * 14336 * 9 // 16, "weight_bytes": 4096 * 14336 * 2}
    cell_id = f"projection/{impl}/4096x14336/m{rows}"
    return Cell(
        id=cell_id,
        suite="projection",
        how="gpu",
        status="ok",
        series={"latency": (slower * 1e-5 * rows**0.5,) * 20},
        numerics=exactly(1e-3),
        work=work,
    )


def layer(impl: str, *, packs: bool) -> Cell:
    series = {"latency": (3e-5,) * 20} | ({"pack": (5e-5,) * 5} if packs else {})
    return Cell(
        id=f"layer/{impl}/llama-3-8b/kv8192",
        suite="layer",
        how="gpu",
        status="ok",
        series=series,
        numerics=exactly(1e-3),
        cache_layout="bfloat16 dense" if packs else "nvfp4",
        work={"flops": 10**9, "nvfp4_bytes": 10**7, "weight_bytes": 24 * 2**20, "cache_bytes": 9 * 2**20},
    )


@pytest.fixture(scope="module")
def weights_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("weights")
    cells = [projection(impl, rows, slower) for impl, slower in (("w4a16", 1.0), ("torch-bf16-linear", 2.5)) for rows in ROWS]
    cells += [layer("triton+w4a16", packs=False), layer("sdpa-cudnn+torch-bf16-linear", packs=True)]
    refusal = "sm_90a lacks what it needs."
    cells.append(without_number("projection/w4a16/14336x4096/m1", "unsupported", refusal, suite="projection"))
    write(place / "results", run("nvidia-h200", H200), cells)
    assert main(["dashboard", "--results", str(place / "results"), "--out", str(place / "site")]) == 0
    return place / "site"


def test_projections_are_drawn_over_rows_and_layers_told_with_their_memory(look: Look, weights_site: Path) -> None:
    seen = look(
        "sm_90a.html",
        """const folded = document.querySelector("#projection-rates details");
           folded.dispatchEvent(new Event("toggle"));
           const text = (row) => [...row.cells].map((cell) => cell.textContent);
           return {
             lines: document.getElementById("projection-rows").data.map(({ name, x, y }) => ({ name, x, y })),
             axis: document.getElementById("projection-rows").layout.xaxis.title.text,
             levels: document.getElementById("projection-rows").layout.annotations.map(({ text }) => text),
             rates: [...document.querySelectorAll("#projection-rates tbody tr")].map(text),
             costs: [...document.querySelectorAll("#layer-costs tbody tr")].map(text),
             reasons: document.querySelector("#projection .unmeasured").textContent,
           };""",
        of=weights_site,
        fragment="#weights=4096x14336",
    )
    lines = {line["name"]: line for line in seen["lines"]}
    assert lines["w4a16"]["x"] == list(ROWS)
    assert lines["w4a16"]["y"] == pytest.approx([1e-5, 8e-5, 64e-5])
    bound = dict(zip(lines["bound"]["x"], lines["bound"]["y"], strict=True))
    memory = 4096 * 14336 * 9 / 16 / max(CEILINGS["copy_bytes_per_s"], CEILINGS["read_bytes_per_s"])
    assert bound[1] == pytest.approx(memory, rel=1e-5)
    assert bound[4096] == pytest.approx(2 * 4096 * 4096 * 14336 / CEILINGS["bf16_matmul_flops_per_s"], rel=1e-5)
    assert seen["axis"] == "rows of x"
    assert any("as many bytes copied" in text for text in seen["levels"])
    assert len(seen["rates"]) == 2 * len(ROWS)
    costs = {row[3]: row for row in seen["costs"]}
    assert costs["triton+w4a16"][4:6] == ["30 µs", "30 µs"]
    assert costs["triton+w4a16"][7:10] == ["24", "9", "33"]
    assert costs["sdpa-cudnn+torch-bf16-linear"][4:7] == ["80 µs", "30 µs", "50 µs"]
    assert "sm_90a lacks what it needs" in seen["reasons"]
