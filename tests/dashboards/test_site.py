"""The pages as files: what is on them without a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from benchmarks.journal import read_results
from benchmarks.records import Cell
from dashboards.site import ArchRun, build, split_by_arch
from impls.arch import find
from tests.dashboards.synthetic import CEILINGS, CPU, H200, KV_LENS, latency, numerics, run, without_number, write

HOSTILE = """</script><script>document.title="owned"</script><img src=x onerror=alert(1)>"'&"""


def pages(results: Path, problems: Iterable[str] = ()) -> dict[str, bytes]:
    journals, unreadable = read_results(results)
    assert not unreadable
    runs, unknown = split_by_arch(journals, results)
    return build(runs, [*problems, *unknown], "// plotly")


def data(files: dict[str, bytes], name: str) -> object:
    """What the data file `name` hands to the page."""
    call = files[f"data/{name}.js"].decode("ascii")
    found = re.fullmatch(r'nvfp4bench\.receive\("([^"]+)", (.*)\);\n', call, re.DOTALL)
    assert found and found[1] == name
    return json.loads(found[2])


def rows(files: dict[str, bytes], name: str) -> list[dict[str, object]]:
    """The rows of the data file `name`, as objects."""
    packed: Any = data(files, name)
    texts = dict(zip(packed["columns"], packed["texts"], strict=True))
    return [
        {
            column: texts[column][value] if texts[column] is not None and value is not None else value
            for column, value in zip(packed["columns"], values, strict=True)
        }
        for values in packed["rows"]
    ]


def text_of(page: bytes) -> str:
    """What a reader sees: the page's text nodes."""
    parts: list[str] = []
    parser = HTMLParser(convert_charrefs=True)
    parser.handle_data = parts.append  # type: ignore[method-assign]
    parser.feed(page.decode())
    return " ".join(parts)


def test_the_same_results_give_the_same_bytes_wherever_they_lie(results: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(results, tmp_path / "elsewhere")
    assert pages(results) == pages(results) == pages(moved)


def test_nothing_is_fetched_from_a_network(results: Path) -> None:
    for name, content in pages(results).items():
        addresses = re.findall(rb"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"']*", content)
        assert set(addresses) <= {b"http://www.w3.org/2000/svg"}, name  # the name of a namespace, which nobody fetches


def test_every_file_a_page_names_is_there(results: Path) -> None:
    files = pages(results)
    for name, content in files.items():
        if name.endswith(".html"):
            named = re.findall(r'(?:src|href)="(?!data:)([^"#]+)', content.decode())
            assert named and set(named) <= set(files), name


def test_each_architecture_has_its_page_and_no_numbers_of_another(results: Path) -> None:
    files = pages(results)
    assert {name for name in files if name.endswith(".html")} == {"index.html", "cpu.html", "sm_90a.html", "sm_120a.html"}
    for arch, hows in {"cpu": {"cpu", "gpu"}, "sm_90a": {"gpu"}, "sm_120a": {"emulated:sm_120a"}}.items():
        for one in data(files, arch)["runs"]:  # type: ignore[index]
            for suite in one["suites"]:
                assert {row["how"] for row in rows(files, f"{one['key']}-{suite}")} <= hows


def test_an_emulated_cell_lands_on_the_page_of_its_architecture_not_of_its_host(results: Path) -> None:
    (emulated,) = data(pages(results), "sm_120a")["runs"]  # type: ignore[index]
    assert emulated["machine"] == "emulated"


def test_spellings_of_one_architecture_are_one_run(tmp_path: Path) -> None:
    write(tmp_path, run("emulated", CPU), [*numerics("a4q", "emulated:sm_120"), *numerics("triton", "emulated:sm_120a")])
    (one,) = data(pages(tmp_path), "sm_120a")["runs"]  # type: ignore[index]
    assert sum(count for _, count in one["counts"]) == len(numerics("a4q")) * 2


def test_the_newest_run_comes_first(results: Path) -> None:
    runs = data(pages(results), "sm_90a")["runs"]  # type: ignore[index]
    assert [(one["machine"], one["started"][:10]) for one in runs] == [
        ("nvidia-h100-80gb-hbm3", "2026-11-04"),
        ("nvidia-h200", "2026-11-03"),
        ("nvidia-h200", "2026-11-02"),
    ]


def test_only_the_newest_run_of_a_machine_counts_as_its_state(tmp_path: Path) -> None:
    failed = [without_number("decode/a4q/d64/kv1024", "timeout", "no answer within 120 s.")]
    write(tmp_path, run("nvidia-h200", H200, day=1, commit="a"), failed)
    write(tmp_path, run("nvidia-h200", H200, day=2, commit="b"), latency("a4q"))
    assert "no answer within 120 s." not in text_of(pages(tmp_path)["index.html"])


def test_failures_stand_before_everything_that_went_well(results: Path) -> None:
    text = text_of(pages(results)["index.html"])
    order = ["the process died by SIGSEGV.", "the largest error is 3.5 x its bound.", "What is usable", "Runs"]
    assert sorted(map(text.index, order)) == list(map(text.index, order))


def test_each_failure_says_how_to_reproduce_it(results: Path) -> None:
    text = text_of(pages(results)["index.html"])
    assert "nvfp4bench cell decode/triton/d128/kv16384" in text
    assert "nvfp4bench cell numerics/triton/sink-flat-tail-f16" in text


def test_an_implementation_without_a_number_has_its_reason(results: Path) -> None:
    assert "sdpa reads no NVFP4 cache on sm_90a." in text_of(pages(results)["index.html"])


def test_a_crashed_cell_is_a_row_without_a_number(results: Path) -> None:
    files = pages(results)
    newest = data(files, "sm_90a")["runs"][1]["key"]  # type: ignore[index]
    triton = [row for row in rows(files, f"{newest}-latency") if row["impl"] == "triton"]
    decode = [row for row in triton if row["workload"] == "decode" and row["point"] == "d128"]
    assert {row["kv_len"] for row in decode} == set(KV_LENS)
    (gap,) = [row for row in decode if row["kv_len"] == 16384]
    assert gap["status"] == "crashed" and gap["median"] is None


def test_hostile_text_is_text(tmp_path: Path) -> None:
    header = replace(run("nvidia-h200", replace(H200, device=HOSTILE)), command=HOSTILE)
    write(tmp_path, header, [without_number("decode/a4q/d64/kv1024", "failed", HOSTILE)])
    files = pages(tmp_path, problems=[HOSTILE])
    for name, content in files.items():
        if name.endswith(".html"):
            tags = set(re.findall(r"<(\w+)", content.decode()))
            assert "img" not in tags, name
            assert all("owned" not in one for one in re.findall(r"<script[^>]*>([^<]*)", content.decode())), name
        if name.startswith("data/"):
            assert b"<" not in content, name
    assert files["index.html"].decode().count(html.escape(HOSTILE, quote=False)[:20]) >= 3
    assert text_of(files["index.html"]).count("owned") >= 3


def test_a_lone_surrogate_does_not_stop_the_pages(tmp_path: Path) -> None:
    write(tmp_path, run("nvidia-h200", H200), [without_number("decode/a4q/d64/kv1024", "failed", "half a character: \ud800")])
    assert b"half a character: ?" in pages(tmp_path)["index.html"]


def test_cells_of_an_unknown_architecture_are_said_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, run("nvidia-h900", replace(H200, arch="../sm_900a")), latency("a4q"))
    write(tmp_path, run("nvidia-h200", H200), latency("a4q"))
    files = pages(tmp_path)
    assert {name for name in files if name.endswith(".html")} == {"index.html", "sm_90a.html"}
    assert "40 cells are left out: unknown architecture" in text_of(files["index.html"])


def test_a_run_that_ended_before_its_first_cell_is_shown(tmp_path: Path) -> None:
    write(tmp_path, run("nvidia-h200", H200), [])
    assert "2026-11-01T12:00:00Z" in text_of(pages(tmp_path)["index.html"])


def test_an_implementation_looks_the_same_on_every_page(results: Path) -> None:
    files = pages(results)
    looks = [tuple(one) for arch in ("cpu", "sm_90a", "sm_120a") for one in data(files, arch)["impls"]]  # type: ignore[index]
    assert len({name for name, _ in looks}) == len(set(looks)) == 4


def test_suites_with_numbers_come_first(results: Path) -> None:
    def order(page: bytes) -> list[str]:
        return re.findall(r'<section id="(latency|numerics|host)"', page.decode())

    files = pages(results)
    assert order(files["sm_90a.html"])[0] == "latency"
    assert order(files["cpu.html"])[-1] == "latency"


def test_a_page_and_what_it_loads_stay_below_a_megabyte() -> None:
    """Ten implementations, each with 90 latency cells of five series and 90 cases; plotly.js is apart and shared."""
    names = [f"implementation-{order}" for order in range(10)]
    workloads = [f"extend-q{order}" for order in range(9)]
    cells: list[Cell] = []
    for name in names:
        for cell in latency(name, packs=True)[:10]:
            cells += [replace(cell, id="/".join([workload, *cell.id.split("/")[1:]])) for workload in workloads]
        cells += [
            replace(numerics(name, "gpu")[0], id=f"numerics/{name}/some-long-name-of-a-case-{case}") for case in range(90)
        ]
    runs = [ArchRun("some-key", run("nvidia-h200", H200), find("sm_90a"), tuple(cells))]
    files = build(runs, [], plotly="")
    assert sum(map(len, files.values())) < 1_000_000


def test_the_measured_ceilings_are_handed_to_the_page(results: Path) -> None:
    by_machine = {one["machine"]: dict(one["ceilings"]) for one in data(pages(results), "sm_90a")["runs"]}  # type: ignore[index]
    assert by_machine["nvidia-h200"] == CEILINGS
    (cpu,) = data(pages(results), "cpu")["runs"]  # type: ignore[index]
    assert cpu["ceilings"] == []
