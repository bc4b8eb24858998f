"""The page of instruction sets: as files, and in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboards.isa import newest_first
from dashboards.matrix import pack
from dashboards.publish import publish
from dashboards.site import build
from impls.isa.catalogue import catalogue, program
from impls.isa.divide import ASPECTS, NOT_SHOWN, verdict
from impls.isa.result import Cell, Probe, Refusal, committed, load_committed
from tests.dashboards.browser import Look, needs_chromium
from tests.dashboards.test_site import HOSTILE, data, rows, text_of

NVFP4_MMA = "mma.sync/mxf4nvf4/m16n8k64/scale_vec::4X/ue4m3/f32"
NVFP4_TCGEN05 = "tcgen05.mma/block-scaled/cta_group::1/mxf4nvf4/shared/-/block16"
FP8_MMA = "mma.sync/fp8/m16n8k32/e4m3/e4m3/f32"


@pytest.fixture(scope="module")
def probe() -> Probe:
    """Of the newest release, which the page shows first."""
    return newest_first([load_committed(release) for release in committed()])[0]


@pytest.fixture(scope="module")
def files(probe: Probe) -> dict[str, bytes]:
    return build([], [], "// plotly", [probe])


def small(release: str = "9.1", **cells: Cell) -> Probe:
    """Three programs on two targets; `cells` replace those of the first target, by the number of the program."""
    refused = Cell(Refusal("target", "Instruction 'mma' not supported on .target 'sm_100a'; Feature '.x' needs 'sm_100ab'"))
    usual: dict[str, dict[str, Cell]] = {
        NVFP4_MMA: {"sm_100a": refused, "sm_120a": Cell(None, {"OMMA.SF.16864": 1})},
        NVFP4_TCGEN05: {"sm_100a": Cell(None, {"UTCOMMA": 1}), "sm_120a": Cell(Refusal("target", "no."))},
        FP8_MMA: {"sm_100a": Cell(None, {"HMMA": 2, "F2FP": 4}), "sm_120a": Cell(None, {"QMMA": 1})},
    }
    for number, cell in cells.items():
        usual[list(usual)[int(number[1:])]]["sm_100a"] = cell
    limits = {"sm_100a": {"static_shared_bytes": 7777, "registers": None}, "sm_120a": {"static_shared_bytes": 5555}}
    return Probe(release, "9.0", "13.5", "digest", ("sm_100a", "sm_120a"), usual, limits)


def unpacked(
    files: dict[str, bytes], release: str
) -> Iterator[tuple[str, str, str, str | None, list[str], dict[str, int] | None]]:
    """(program, target, verdict, kind, messages or warnings, opcodes) of every cell of a data file."""
    matrix: dict[str, Any] = data(files, f"isa-{release}")  # type: ignore[assignment]
    for family, rest, row in matrix["programs"]:
        for target, number in zip(matrix["targets"], matrix["rows"][row], strict=True):
            became, what, texts = matrix["outcomes"][number]
            word = matrix["verdicts"][became]
            said = [matrix["messages"][text].replace("{target}", target) for text in texts]
            kind = matrix["kinds"][what] if word == "refused" else None
            flat = None if word == "refused" else what
            opcodes = None if flat is None else {matrix["opcodes"][a]: n for a, n in zip(flat[::2], flat[1::2], strict=True)}
            yield matrix["families"][family] + rest, target, word, kind, said, opcodes


def test_the_matrix_has_every_program_on_every_target_as_it_was_probed(files: dict[str, bytes], probe: Probe) -> None:
    seen = set()
    for name, target, word, kind, said, opcodes in unpacked(files, probe.release):
        cell = probe.cells[name][target]
        assert word == verdict(program(name), cell)
        assert opcodes == cell.opcodes
        assert (kind, "; ".join(said)) == (
            (cell.error.kind, cell.error.text) if cell.error else (None, "; ".join(cell.warnings))
        )
        seen.add((name, target))
    assert len(seen) >= 1500 * 20
    assert seen == {(one.id, target) for one in catalogue() for target in probe.targets}


def test_every_entry_of_the_divide_names_programs_that_were_probed(files: dict[str, bytes], probe: Probe) -> None:
    page = files["isa.html"].decode()
    body = page[page.index('class="divide"') : page.index('id="matrix-section"')]
    rows = re.findall(r'<tr>\s*<th scope="row">(.*?)</th>(.*?)</tr>', body, re.DOTALL)
    assert len(rows) == 2 * (len(ASPECTS) + 1)  # the chips, and all targets
    known = {one.id for one in catalogue()} & probe.cells.keys()
    for aspect, columns in rows:
        for entry in re.findall(r"<td>(.*?)</td>", columns, re.DOTALL):
            named = re.findall(r'<a class="id" href="[^"]*">([^<]+)</a>', entry)
            assert set(named) <= known
            assert named or aspect == "shared memory"
            assert NOT_SHOWN not in entry


def test_the_divide_shows_what_each_program_became_on_each_target() -> None:
    text = " ".join(text_of(build([], [], "", [small()])["isa.html"]).split())
    assert (
        f"tcgen05.mma kind::mxf4nvf4 shown by 2 programs {NVFP4_TCGEN05} native on sm_100a {NVFP4_MMA} refused on sm_100a"
        in text
    )
    assert (
        f"mma.sync kind::mxf4nvf4 shown by 2 programs {NVFP4_MMA} native on sm_120a {NVFP4_TCGEN05} refused on sm_120a" in text
    )
    assert f"emulated by conversion to f16 shown by 1 program {FP8_MMA} emulated on sm_100a" in text
    assert "7777 bytes a block shown by a limit" in text


def test_an_entry_that_nothing_confirms_shows_all_that_was_asked() -> None:
    both = small(_0=Cell(None, {"OMMA.SF": 1}))  # NVFP4 by mma.sync and by tcgen05 on one target: no statement says that
    text = " ".join(text_of(build([], [], "", [both])["isa.html"]).split())
    assert f"{NOT_SHOWN} asked of 2 programs {NVFP4_MMA} native on sm_100a {NVFP4_TCGEN05} native on sm_100a" in text


def test_a_target_is_replaced_in_messages_and_a_longer_name_is_not() -> None:
    packed = pack(small(), [program(NVFP4_MMA)])
    assert packed["messages"][:2] == ["Instruction 'mma' not supported on .target '{target}'", "Feature '.x' needs 'sm_100ab'"]


def test_limits_that_nobody_sets_or_answered_are_no_numbers() -> None:
    page = build([], [], "", [small()])["isa.html"].decode()
    table = page[page.index('id="limits-title"') :]
    rows = [re.findall(r'<td class="number">(.*?)</td>', row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:]]
    assert rows == [["7777", "?", "\u2013", "?", "?", "?"], ["5555", "?", "?", "?", "?", "?"]]


def test_a_single_release_is_compared_with_nothing(files: dict[str, bytes]) -> None:
    assert "so there is nothing to compare yet" in text_of(files["isa.html"])
    assert [name for name in files if re.match(r"data/isa-[\d.]+-", name)] == []


def test_what_changed_between_releases_is_counted_and_listed() -> None:
    before = small("9.9", _1=Cell(Refusal("target", "not yet.")), _2=Cell(None, {"HMMA": 2}))
    after = replace(small("9.10", _2=Cell(None, {"QMMA": 1})), targets=("sm_100a",))
    files = build([], [], "", [after, before])
    changed = rows(files, "isa-9.9-9.10")
    assert [(row["change"], row["program"], row["targets"], row["cells"]) for row in changed] == [
        ("gained", NVFP4_TCGEN05, "sm_100a", 1),
        ("native", FP8_MMA, "sm_100a", 1),
    ]
    assert "not yet." in changed[0]["was"] and "UTCOMMA" in changed[0]["is"]
    text = " ".join(text_of(files["isa.html"]).split())
    assert (
        "9.9 to 9.10" in text and "1 gained, 0 lost, 1 native, 0 emulated" in text and "0 reason. Only 9.9 has sm_120a." in text
    )
    assert "ptxas 9.10 (PTX 9.0) was given" in text  # 9.10 is the newer one


def test_a_program_that_the_catalogue_lost_is_said() -> None:
    old = small()
    lost = replace(old, cells={**old.cells, "gone": old.cells[FP8_MMA]})
    assert "1 programs of this result are not in the catalogue any more" in text_of(build([], [], "", [lost])["isa.html"])


def test_it_says_what_it_cannot_show(files: dict[str, bytes]) -> None:
    text = text_of(files["isa.html"])
    for told in (
        "Acceptance is not execution",
        "GB10 (DGX Spark) sm_121",
        "RTX PRO Blackwell sm_120",
        "developer.nvidia.com/cuda-gpus",
    ):
        assert told in text


def test_the_overview_and_every_page_lead_there(site: Path) -> None:
    for page in site.glob("*.html"):
        assert 'href="isa.html"' in page.read_text(), page
    assert (site / "isa.html").is_file()
    assert "isa.html#targets=sm_120a" in (site / "sm_120a.html").read_text()


def test_without_a_probe_there_is_no_page_and_no_link() -> None:
    files = build([], [], "")
    assert "isa.html" not in files and b"isa.html" not in files["index.html"]


def test_the_same_probes_give_the_same_bytes_in_any_order(files: dict[str, bytes], probe: Probe) -> None:
    assert build([], [], "// plotly", [load_committed(probe.release)]) == files
    assert build([], [], "", [small("9.1"), small("9.2")]) == build([], [], "", [small("9.2"), small("9.1")])


def test_hostile_words_of_an_assembler_are_text() -> None:
    probe = small(_0=Cell(Refusal("target", HOSTILE)), _1=Cell(None, {HOSTILE: 1}, (HOSTILE,)))
    files = build([], [], "", [replace(probe, release="9.2", ptx_version=HOSTILE), small("9.1")])
    for name in ("data/isa-9.2.js", "data/isa-9.1-9.2.js"):
        assert b"owned" in files[name] and b"<" not in files[name]
    assert "img" not in re.findall(r"<(\w+)", files["isa.html"].decode())
    assert "owned" in text_of(files["isa.html"])


def test_nothing_is_fetched_from_a_network(files: dict[str, bytes]) -> None:
    for name, content in files.items():
        addresses = re.findall(rb"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"']*", content)
        assert set(addresses) <= {b"http://www.w3.org/2000/svg"}, name


def test_every_file_the_page_names_is_there(files: dict[str, bytes]) -> None:
    named = re.findall(r'(?:src|href)="(?!data:)([^"#]+)', files["isa.html"].decode())
    assert set(named) <= set(files)


def test_the_page_with_any_one_of_its_data_files_stays_below_a_megabyte(site: Path) -> None:
    """A release to search in, what changed, and the programs are each fetched when they are asked for."""
    data_files = list((site / "data").glob("isa-*.js"))
    assert len(data_files) >= 1 + len(committed())
    for file in data_files:
        assert file.stat().st_size + (site / "isa.html").stat().st_size < 1_000_000, file


SEEN = """
  const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent);
  return {
    shown: document.getElementById("shown").textContent,
    programs: texts("#matrix tbody th button"),
    heads: texts("#matrix thead th").slice(1),
    marks: [...document.querySelectorAll("#matrix tbody .mark[role=img]")].map((one) => one.getAttribute("aria-label")),
    detail: texts("#matrix .detail").join(" "),
    family: document.getElementById("family").value,
    verdict: document.getElementById("verdict").value,
    rows: document.querySelectorAll("#matrix tbody tr").length,
    trouble: document.getElementById("trouble").textContent,
    title: document.title,
    made: document.querySelectorAll("main img").length,
  };"""


@needs_chromium
def test_search_finds_a_program_and_shows_what_it_became(look: Look) -> None:
    seen = look("isa.html", SEEN, fragment=f"#text={NVFP4_MMA}&program={NVFP4_MMA}&targets=sm_90a,sm_100a,sm_120a")
    assert seen["programs"] == [NVFP4_MMA] and seen["heads"] == ["90a", "100a", "120a"]
    assert seen["marks"] == ["refused", "refused", "native"]
    assert "OMMA.SF" in seen["detail"] and "not supported on .target" in seen["detail"]
    assert "kind::mxf4nvf4" in seen["detail"] and "nvfp4bench isa --family" in seen["detail"]
    assert seen["trouble"] == ""


@pytest.mark.slow
@needs_chromium
class TestInABrowser:
    def test_of_all_programs_only_a_page_is_drawn(self, look: Look, probe: Probe) -> None:
        seen = look("isa.html", SEEN)
        assert seen["shown"] == f"1 to 50 of {len(catalogue()):,} programs"
        assert seen["rows"] == 50 and len(seen["marks"]) == 50 * len(probe.targets)

    def test_filters_are_taken_together_and_look_at_the_chosen_targets_alone(self, look: Look, probe: Probe) -> None:
        fragment = "#family=mma.sync/fp8&verdict=emulated&targets=sm_90a"
        wanted = [
            one.id
            for one in catalogue()
            if one.family == "mma.sync/fp8" and verdict(one, probe.cells[one.id]["sm_90a"]) == "emulated"
        ]
        seen = look("isa.html", SEEN, fragment=fragment)
        assert wanted and seen["programs"] == wanted[:50]
        assert set(seen["marks"]) == {"emulated"} and seen["heads"] == ["90a"]

    def test_words_are_looked_for_in_opcodes_of_the_chosen_targets(self, look: Look, probe: Probe) -> None:
        wanted = [
            one.id
            for one in catalogue()
            if "mma.sync" in one.id and any("OMMA" in code for code in probe.cells[one.id]["sm_120a"].opcodes or ())
        ]
        assert wanted
        assert look("isa.html", SEEN, fragment="#text=omma%20mma.sync&targets=sm_120a")["programs"] == wanted[:50]
        assert look("isa.html", SEEN, fragment="#text=omma.sf&targets=sm_90a")["programs"] == []

    def test_divided_rows_are_accepted_here_and_refused_there(self, look: Look, probe: Probe) -> None:
        seen = look("isa.html", SEEN, fragment="#verdict=divided&targets=sm_100a,sm_120a")
        count = sum(probe.accepts("sm_100a", one.id) != probe.accepts("sm_120a", one.id) for one in catalogue())
        assert seen["shown"] == f"1 to 50 of {count:,} programs"

    def test_a_program_in_the_address_is_shown_whatever_page_it_is_on(self, look: Look) -> None:
        last = catalogue()[-1].id
        seen = look("isa.html", SEEN, fragment=f"#program={last}")
        assert last in seen["programs"] and seen["detail"]

    def test_choices_go_into_the_address(self, look: Look, probe: Probe) -> None:
        act = """
          const change = (id, value, event) => {
            document.getElementById(id).value = value;
            document.getElementById(id).dispatchEvent(new Event(event));
          };
          change("text", "f32", "input");
          change("verdict", "native", "change");
          document.querySelector("#targets button[value=chips]").click();
          return new URLSearchParams(location.hash.slice(1)).toString();"""
        seen = look("isa.html", act)
        chips = "%2C".join(target for target in probe.targets if target.endswith("a"))
        assert seen == f"text=f32&verdict=native&targets={chips}"

    def test_an_address_that_means_nothing_shows_all(self, look: Look) -> None:
        seen = look("isa.html", SEEN, fragment="#family=none&verdict=none&release=0&rows=x&program=none&__proto__=1")
        assert seen["shown"].startswith("1 to 50 of") and (seen["family"], seen["verdict"]) == ("", "")

    def test_a_download_has_every_cell_that_was_found(self, look: Look, probe: Probe) -> None:
        seen = look(
            "isa.html",
            """const made = [];
               URL.createObjectURL = (blob) => { made.push(blob); return "#"; };
               const links = [...document.querySelectorAll("#downloads a")];
               for (const link of links) link.click();
               const label = document.getElementById("downloads").textContent;
               return { links: links.map((one) => one.download), label, sizes: made.map(({ size }) => size) };""",
            fragment=f"#text={NVFP4_MMA}",
        )
        assert all(size > len(probe.targets) * len(NVFP4_MMA) for size in seen["sizes"]) and len(seen["sizes"]) == 2
        assert [Path(name).suffix for name in seen["links"]] == [".csv", ".json"]
        assert seen["label"].startswith(f"Download {len(probe.targets)} cells")

    def test_hostile_words_stay_text(self, look: Look, tmp_path: Path) -> None:
        probe = small("9.2", _0=Cell(Refusal("target", HOSTILE)))
        publish(build([], [], "", [probe, small("9.1")]), tmp_path / "hostile")
        seen = look("isa.html", SEEN, of=tmp_path / "hostile", fragment=f"#program={NVFP4_MMA}")
        assert "owned" in seen["detail"] and "owned" not in seen["title"] and seen["made"] == 0

    def test_changes_are_fetched_when_they_are_opened(self, look: Look, tmp_path: Path) -> None:
        older = small("9.1", _1=Cell(Refusal("target", "not yet.")))
        publish(build([], [], "", [small("9.2"), older]), tmp_path / "two")
        open_it = """<script>addEventListener("load", () => { document.querySelector(".change").open = true; });</script>"""
        page = tmp_path / "two" / "isa.html"
        page.write_text(page.read_text().replace("</body>", f"{open_it}</body>"))
        rows = """return [...document.querySelectorAll(".change tbody tr")].map((one) => one.textContent);"""
        (row,) = look("isa.html", rows, of=tmp_path / "two")
        assert NVFP4_TCGEN05 in row and "not yet." in row

    @pytest.mark.parametrize("width", [400, 1280])
    def test_nothing_is_wider_than_the_window(self, look: Look, width: int) -> None:
        """Tables may be, inside a frame of their own that scrolls."""
        seen = look(
            "isa.html",
            """return {
              window: innerWidth,
              wide: [...document.body.querySelectorAll("*")]
                .filter((one) => !one.closest(".scroll") && one.getBoundingClientRect().right > innerWidth + 1)
                .map((one) => `${one.tagName} ${one.id} ${one.className}`),
            };""",
            fragment=f"#program={NVFP4_MMA}",
            width=width,
        )
        assert seen == {"window": width, "wide": []}
