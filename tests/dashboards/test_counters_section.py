"""The section of emulated counters on an architecture's page: as files, and in a browser."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.records import Cell, CounterRecord, Environment
from dashboards.counters import counter_rows, in_clocks, rests_on
from impls.arch import find
from nvfp4bench import main
from tests.dashboards.browser import Look, needs_chromium
from tests.dashboards.synthetic import CPU, H200, latency, run, write
from tests.dashboards.test_site import data, rows, text_of

EMULATOR: Environment = dataclasses.replace(CPU, device="none: PTX executed by the emulator", platform="any", nvrtc="13.0.88")
RULES = {"banks of shared memory": "documented only", "fragments of m16n8k16": "silicon"}


def launch(entry: str, **changes: object) -> CounterRecord:
    fields: dict[str, object] = {
        "entry": entry,
        "ptx": "a" * 64,
        "blocks": 8,
        "executed": 1000,
        "global_bytes": 4096,
        "global_requests": 32,
        "sectors": 128,
        "dram_bytes": 2048,
        "shared_bytes": 1024,
        "wavefronts": 20,
        "ideal_wavefronts": 10,
        "barriers": 3,
        "divergent_branches": 1,
        "classes": {"integer": 900, "special function": 100},
        "mma": {"f16 m16n8k16": 5},
        "work": {"xu": 16.0 * 8 * 7, "issue": 128.0 * 8 * 3, "dram": 2048.0},
    }
    return CounterRecord(**{**fields, **changes})  # type: ignore[arg-type]


def call(impl: str, arch: str, *launches: CounterRecord, kind: str = "decode", sentence: str | None = None) -> Cell:
    names = {"id": f"counters-{kind}/{impl}/{arch}/d128", "suite": "counters", "how": f"emulated:{arch}"}
    measured = {"counters": launches, "rules": RULES, "work": {"nvfp4_bytes": 1152}} if launches else {}
    return Cell(**names, status="ok" if launches else "unsupported", sentence=sentence, **measured)  # type: ignore[arg-type]


CELLS = (
    call(
        "a4q", "sm_120a", launch("attend"), launch("merge", executed=10, blocks=400, wavefronts=0, work={"xu": 16.0 * 170 * 2})
    ),
    call("triton", "sm_120a", launch("attend"), kind="prefill"),
    call("triton", "sm_90a", sentence="the emulator does not execute it yet."),
    call("a4q", "sm_121a", launch("attend")),
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results, out = tmp_path_factory.mktemp("results"), tmp_path_factory.mktemp("pages")
    write(results, run("emulated", EMULATOR, day=2), CELLS)
    write(results, run("nvidia-h200", H200), latency("gpu")[:1])
    assert main(["dashboard", "--results", str(results), "--out", str(out)]) == 0
    return out


def files(pages: Path) -> dict[str, bytes]:
    return {path.relative_to(pages).as_posix(): path.read_bytes() for path in pages.rglob("*") if path.is_file()}


def test_a_row_is_a_launch_with_its_bound() -> None:
    attend, merge, *_, refused, _ = counter_rows(CELLS)
    assert (attend["impl"], attend["work"], attend["head_dim"], attend["kernel"]) == ("a4q", "decode", "128", "attend")
    assert (attend["sector_bytes"], attend["sectors_per_request"], attend["nvfp4_bytes"]) == (4096, 4.0, 1152)
    assert attend["classes"] == (("integer", 900), ("special function", 100))
    # 16 lanes a clock of the table's unit on each of 8 SMs; DRAM: 1792 GB/s at the 2.407 GHz of the stated peak
    assert dict(attend["bounds"])["xu"] == 7.0 and dict(attend["bounds"])["issue"] == 3.0
    assert dict(attend["bounds"])["dram"] == pytest.approx(2048 / (1.792e12 / 2.407e9), abs=0.06)
    assert (attend["limit"], attend["limit_clocks"], attend["unknown"]) == ("xu", 7.0, "")
    assert merge["limit_clocks"] == 2.0  # no more SMs than the product has
    assert "kernel" not in refused and refused["sentence"] == "the emulator does not execute it yet."


def test_a_clock_that_is_not_known_leaves_dram_unknown() -> None:
    bound, product = in_clocks(launch("attend"), find("sm_121a"))
    assert product is not None and product.clock_hz is None
    assert (bound.unknown, bound.limit) == (("dram",), "xu")


def test_only_what_nobody_confirmed_is_listed() -> None:
    assert rests_on(CELLS) == ["banks of shared memory"]
    assert rests_on(CELLS[2:3]) == []


def test_the_page_says_that_it_is_emulated_and_no_measurement(pages: Path) -> None:
    made = files(pages)
    told = text_of(made["sm_120a.html"])
    assert "Counters, emulated: PTX executed, SASS not" in told and "no measurement" in told
    index = data(made, "sm_120a")
    assert [one["documented"] for one in index["runs"]] == [["banks of shared memory"]]  # type: ignore[index, call-overload]
    (name,) = (name for name in made if name.startswith("data/emulated-sm_120a") and name.endswith("-counters.js"))
    assert len(rows(made, name.removeprefix("data/").removesuffix(".js"))) == 3


def test_a_page_begins_with_what_was_measured(pages: Path) -> None:
    index = data(files(pages), "sm_90a")
    assert [one["machine"] for one in index["runs"]] == ["nvidia-h200", "emulated"]  # type: ignore[index, call-overload]


@needs_chromium
def test_counters_are_drawn_hollow_and_tabled(look: Look, pages: Path) -> None:
    seen = look(
        "sm_120a.html",
        """
        const pairsOf = ({ x, marker }) => marker.symbol.map((symbol, place) => [symbol, x[place]]);
        const marksOf = (id) => (document.getElementById(id).data ?? []).flatMap(pairsOf);
        const axis = document.getElementById("counters-bounds").layout.yaxis.ticktext;
        return {
          classes: marksOf("counters-classes"),
          pipes: axis,
          waves: marksOf("counters-wavefronts"),
          bytes: marksOf("counters-bytes"),
          rules: document.getElementById("counters-rules").textContent,
          table: document.querySelector("#counters .rows summary").textContent,
        };
        """,
        of=pages,
    )
    symbols = {symbol for name in ("classes", "waves", "bytes") for symbol, _ in seen[name]}
    assert symbols and all("-open" in symbol for symbol in symbols)
    assert sorted(x for _, x in seen["classes"]) == [200, 1800]  # both launches of the call
    assert [x for _, x in seen["waves"]] == [20, 10]
    assert sorted(x for _, x in seen["bytes"]) == [1152, 1152, 4096, 8192]
    assert sorted(seen["pipes"]) == ["dram", "issue", "xu"]
    assert seen["rules"] == "banks of shared memory"
    assert seen["table"] == "Table: 3 rows"


@needs_chromium
def test_the_address_chooses_the_kind_of_work(look: Look, pages: Path) -> None:
    probe = "return document.getElementById('counters-classes').data.flatMap(({ x }) => x);"
    assert sorted(look("sm_120a.html", probe, of=pages, fragment="#counters-work=prefill")) == [100, 900]
