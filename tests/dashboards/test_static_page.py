"""The page of kernels: as files, and in a browser."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.records import Cell, Environment, KernelRecord
from dashboards.kernels import kernel_rows
from impls.arch import ARCHES
from nvfp4bench import main
from tests.dashboards.browser import Look, needs_chromium
from tests.dashboards.synthetic import CPU, run, write
from tests.dashboards.test_site import data, rows

COMPILERS: Environment = dataclasses.replace(CPU, device="none: compiled, not executed", platform="any", nvrtc="13.0.88")
ON = ("sm_90a", "sm_120a")


def kernel(entry: str, **facts: int) -> KernelRecord:
    usual = {"registers": 100, "spill_bytes": 0, "local_bytes": 0, "shared_bytes": 50000, "threads": 128, "warps_per_sm": 16}
    return KernelRecord(entry=entry, cubin="c" * 64, **{**usual, "instructions": 900, **facts})


def call(impl: str, arch: str, *kernels: KernelRecord, kind: str = "decode", sentence: str | None = None) -> Cell:
    status = "ok" if kernels else "failed" if sentence == "it broke." else "unsupported"
    names = {"id": f"static-{kind}/{impl}/{arch}/d128", "suite": "static", "how": f"static:{arch}"}
    return Cell(**names, status=status, sentence=sentence, kernels=kernels)  # type: ignore[arg-type]


CELLS = (
    *(call("triton", arch, kernel("attend", spill_bytes=24, registers=255), kernel("merge", registers=40)) for arch in ON),
    *(call("triton", arch, kernel("attend", shared_bytes=90000), kind="prefill") for arch in ON),
    call("wide", "sm_90a", kernel("wide", shared_bytes=200000)),
    call("wide", "sm_120a", kernel("wide", shared_bytes=200000, warps_per_sm=0)),
    call("native", "sm_90a", sentence="sm_90a has no NVFP4 mma.sync."),
    call("native", "sm_120a", sentence="it broke."),
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results, out = tmp_path_factory.mktemp("results"), tmp_path_factory.mktemp("pages")
    write(results, run("static", COMPILERS, day=2, commit="b"), CELLS)
    write(results, run("static", COMPILERS), CELLS[:1])
    assert main(["dashboard", "--results", str(results), "--out", str(out)]) == 0
    return out


def files(pages: Path) -> dict[str, bytes]:
    return {path.relative_to(pages).as_posix(): path.read_bytes() for path in pages.rglob("*") if path.is_file()}


def test_a_row_is_a_kernel_with_the_limits_of_its_architecture() -> None:
    found = kernel_rows(CELLS)
    assert len(found) == 4 + 2 + 2 + 2
    attend = found[0]
    assert (attend["impl"], attend["work"], attend["arch"], attend["head_dim"]) == ("triton", "decode", "sm_90a", "128")
    assert (attend["kernel"], attend["registers"], attend["spill_bytes"], attend["how"]) == ("attend", 255, 24, "static:sm_90a")
    assert (attend["shared_limit"], attend["warps_limit"]) == (ARCHES["sm_90a"].shared_per_block, 64)
    assert not {"kernel", "registers"} & set(found[-1])
    assert found[-1]["sentence"] == "it broke."


def test_nothing_that_was_compiled_is_on_the_page_of_an_architecture(pages: Path) -> None:
    made = files(pages)
    assert not {"sm_90a.html", "sm_120a.html", "cpu.html"} & set(made)
    (name, other) = (name.removesuffix(".js").removeprefix("data/") for name in sorted(made) if name.endswith("-static.js"))
    assert {len(rows(made, name)), len(rows(made, other))} == {2, 10}
    index = data(made, "static")
    assert [one["label"].split(" · ")[1] for one in index["runs"]] == ["bbbbbbbb", "aaaaaaaa"]  # type: ignore[index, call-overload]
    assert [limit["arch"] for limit in index["limits"]] == list(ARCHES)  # type: ignore[index, call-overload]


def test_the_overview_leads_there_and_says_what_failed(pages: Path) -> None:
    overview = (pages / "index.html").read_text()
    assert 'href="static.html"' in overview
    assert "it broke." in overview and "nvfp4bench cell static-decode/native/sm_120a/d128" in overview


def test_without_static_results_there_is_no_such_page(site: Path) -> None:
    assert not (site / "static.html").exists()
    assert "static.html" not in (site / "index.html").read_text()


def test_what_fits_nowhere_is_counted_without_javascript(pages: Path) -> None:
    lines = (pages / "static.html").read_text().split("<tr>")
    (consumer,) = (line for line in lines if '"id">sm_120a<' in line)
    numbers = [int(part.split("<")[0]) for part in consumer.split('class="number">')[1:]]
    assert numbers == [101376, 102400, 48, 3, 0, 4, 1, 1]


@needs_chromium
def test_marks_and_limits_are_drawn_and_tabled(look: Look, pages: Path) -> None:
    seen = look(
        "static.html",
        """
        const plot = document.getElementById("kernels-shared");
        document.querySelector("#kernels-table details").open = true;
        const traces = plot.data.map(({ mode, y, marker }) => [mode, y.filter((x) => x !== null), marker?.symbol ?? null]);
        return {
          traces,
          legend: document.getElementById("kernels-legend").textContent,
          table: document.querySelector("#kernels-table summary").textContent,
          reasons: document.getElementById("kernels-unmeasured").textContent,
          reproduce: document.getElementById("reproduce").textContent,
          work: [...document.getElementById("work").options].map(({ value }) => value),
        };
        """,
        of=pages,
    )
    *marked, (mode, limits, _) = seen["traces"]
    assert mode == "lines"
    assert limits == [arch.shared_per_block / 1024 for arch in ARCHES.values() for _ in range(2)]
    assert [len(values) for _, values, _ in marked] == [4, 2]
    assert {symbol for _, _, symbols in marked for symbol in symbols if "open-dot" not in symbol} == set()
    assert seen["table"] == "Table: 6 rows"
    assert seen["work"] == ["decode", "prefill"]
    assert "sm_90a has no NVFP4 mma.sync." in seen["reasons"] and "it broke." in seen["reasons"]
    assert seen["reproduce"] == "nvfp4bench run --full"


@needs_chromium
def test_the_address_chooses_what_is_shown(look: Look, pages: Path) -> None:
    probe = "return document.querySelector('#kernels-table summary').textContent;"
    assert look("static.html", probe, of=pages, fragment="#work=prefill") == "Table: 2 rows"


@needs_chromium
def test_a_narrow_window_scrolls_only_its_tables(look: Look, pages: Path) -> None:
    probe = "return document.documentElement.scrollWidth;"
    assert look("static.html", probe, of=pages, width=360, dark=True) <= 360
