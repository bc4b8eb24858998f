"""The whole site in memory: {file name: bytes}, made from results alone, so the same results give the same bytes.

index.html              overview: problems and failures first, what is usable, the runs
<arch>.html             one page per architecture found in the results
static.html             what kernels become on each architecture, see `dashboards.kernels`
isa.html                what each target's assembler accepts, see `dashboards.isa`
data/<arch>.js          the runs on that architecture, for its page
data/<run>-<suite>.js   the rows of one run, fetched by a page when it shows them
static/                 style, scripts, plotly.js
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined

from benchmarks.journal import Journal
from benchmarks.records import COMPILED, COUNTED, SUITES, Cell, Run
from dashboards import isa, kernels
from dashboards.counters import counter_rows, rests_on
from dashboards.kernels import CompiledRun
from dashboards.rows import BAD, ROWS, VERDICTS, Row, head
from dashboards.scripts import packed, script
from impls.arch import ARCHES, Arch, find
from impls.isa.result import Probe

HERE = Path(__file__).parent
ROWS_OF = {**ROWS, COUNTED: counter_rows}
"""What makes the rows of each suite that has a section."""


@dataclass(frozen=True)
class ArchRun:
    """What one journal holds about one architecture."""

    key: str
    """Unique and safe as a file name and an id, whatever the journal is called."""
    run: Run
    arch: Arch
    cells: tuple[Cell, ...]

    @property
    def counts(self) -> dict[str, int]:
        """{verdict: cells}, only those that occur, in the order of VERDICTS."""
        found = Counter(cell.verdict for cell in self.cells)
        return {word: found[word] for word in VERDICTS if word in found}

    @property
    def failures(self) -> list[Row]:
        return [head(cell) for cell in self.cells if cell.verdict in BAD]

    @cached_property
    def _by_impl(self) -> dict[str, list[Cell]]:
        found: dict[str, list[Cell]] = {}
        for cell in self.cells:
            found.setdefault(cell.impl, []).append(cell)
        return found

    def outcome(self, impl: str) -> tuple[dict[str, int], str]:
        """({verdict: cells} of one implementation, the most frequent reason why one has no number or a wrong one)."""
        rows = [head(cell) for cell in self._by_impl.get(impl, ())]
        found = Counter(row["status"] for row in rows)
        reasons = Counter(row["sentence"] for row in rows if "sentence" in row).most_common(1)
        return {word: found[word] for word in VERDICTS if word in found}, reasons[0][0] if reasons else ""


def build(
    runs: Sequence[ArchRun],
    problems: Sequence[str],
    plotly: str,
    probes: Sequence[Probe] = (),
    compiled: Sequence[CompiledRun] = (),
) -> dict[str, bytes]:
    """The site's files. `runs` are those of `split_by_arch`; `problems` say what is left out; `plotly` is plotly.js.

    `probes` are results of `nvfp4bench isa`; without one there is no page of instruction sets. `compiled` are the runs of
    static cells, the newest first; without one there is no page of kernels.
    """
    arches = sorted({one.arch.name: one.arch for one in runs}.values(), key=lambda arch: (arch.compute_capability, arch.name))
    impls = sorted({cell.impl for cells in (*(one.cells for one in runs), *(one.cells for one in compiled)) for cell in cells})

    templates = Templates(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    files = {f"static/{path.name}": path.read_bytes() for path in sorted((HERE / "static").iterdir())}
    files["static/plotly.min.js"] = plotly.encode()
    probes = isa.newest_first(probes)
    frame = {"arches": arches, "probes": probes, "compiled": compiled}
    overview = {
        "page": "index.html",
        "runs": runs,
        "newest": newest_of_each_machine(runs),
        "problems": problems,
        "impls": impls,
    }
    files["index.html"] = templates.get_template("index.html").render(frame, **overview).encode("utf-8", "replace")
    for arch in arches:
        mine = [one for one in runs if one.arch == arch]
        page = {"page": f"{arch.name}.html", "arch": arch, "suites": _order_of_suites(mine)}
        files[f"{arch.name}.html"] = templates.get_template("arch.html").render(frame, **page).encode("utf-8", "replace")
        here = {cell.impl for one in mine for cell in one.cells}
        looks = [(impl, order) for order, impl in enumerate(impls) if impl in here]
        files[f"data/{arch.name}.js"] = script(arch.name, {"impls": looks, "runs": [_run_data(one) for one in mine]})
        for one in mine:
            for suite, cells in _by_suite(one.cells).items():
                files[f"data/{one.key}-{suite}.js"] = script(f"{one.key}-{suite}", packed(ROWS_OF[suite](cells)))
    if compiled:
        files |= _kernels(compiled, impls, templates, frame)
    if probes:
        files |= isa.build(probes, templates, frame)
    return files


def _kernels(
    compiled: Sequence[CompiledRun], impls: Sequence[str], templates: Templates, frame: Mapping[str, Any]
) -> dict[str, bytes]:
    """The files of the page of kernels. `impls` are all that any page shows, whose looks go by their order."""
    page = templates.get_template(kernels.PAGE).render(frame, page=kernels.PAGE, all_arches=list(ARCHES.values()))
    runs = [{"key": one.key, "label": one.label, "command": one.run.command, "facts": run_facts(one.run)} for one in compiled]
    here = {cell.impl for one in compiled for cell in one.cells}
    looks = [(impl, order) for order, impl in enumerate(impls) if impl in here]
    files = {kernels.PAGE: page.encode("utf-8", "replace")}
    files["data/static.js"] = script("static", {"impls": looks, "limits": kernels.limits(), "runs": runs})
    for one in compiled:
        files[f"data/{one.key}-static.js"] = script(f"{one.key}-static", packed(kernels.kernel_rows(one.cells)))
    return files


def compiled_runs(journals: Sequence[Journal], results: Path) -> list[CompiledRun]:
    """The static cells of each journal that has some, the newest first."""
    cells_of = [(one, tuple(cell for cell in one.cells if cell.suite == COMPILED)) for one in journals]
    found = [CompiledRun(_key(one, COMPILED, results), one.run, cells) for one, cells in cells_of if cells]
    return sorted(found, key=lambda one: (one.run.started, one.key), reverse=True)


def split_by_arch(journals: Sequence[Journal], results: Path) -> tuple[list[ArchRun], list[str]]:
    """(runs on each architecture, the newest first; sentences about cells of architectures that nobody knows).

    Emulated runs come behind all others, so that a page begins with what was measured.
    """
    runs, unknown = [], []
    for journal in journals:
        cells_of: dict[Arch, list[Cell]] = {}
        for name, cells in _by_arch_name(journal).items():
            try:
                cells_of.setdefault(find(name), []).extend(cells)
            except ValueError as error:
                unknown.append(f"{journal.path}: {len(cells)} cells are left out: {error}")
        runs += [
            ArchRun(_key(journal, arch.name, results), journal.run, arch, tuple(cells)) for arch, cells in cells_of.items()
        ]
    runs.sort(key=lambda one: one.key)
    runs.sort(key=lambda one: one.run.started, reverse=True)
    runs.sort(key=lambda one: one.run.machine == "emulated")
    return runs, unknown


def newest_of_each_machine(runs: Sequence[ArchRun]) -> list[ArchRun]:
    """The newest run of each machine on each architecture; `runs` are sorted, the newest first."""
    found: dict[tuple[str, str], ArchRun] = {}
    for one in runs:
        found.setdefault((one.run.machine, one.arch.name), one)
    return list(found.values())


def _by_arch_name(journal: Journal) -> dict[str, list[Cell]]:
    """An emulated cell names its architecture; one that was executed has that of the run's device. Static ones are left out."""
    device = journal.run.environment.arch
    groups: dict[str, list[Cell]] = {} if journal.cells else {device: []}
    for cell in journal.cells:
        if cell.suite == COMPILED:
            continue
        groups.setdefault(cell.how.partition(":")[2] or device, []).append(cell)
    return groups


def _key(journal: Journal, arch: str, results: Path) -> str:
    place = hashlib.sha256(journal.path.relative_to(results).as_posix().encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{journal.run.machine}-{arch}-{journal.run.commit[:8]}-{place}"


def _by_suite(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    return {suite: found for suite in SUITES if (found := [cell for cell in cells if cell.suite == suite])}


def _order_of_suites(runs: Sequence[ArchRun]) -> list[str]:
    """Suites that have a number before those that have none."""
    measured = {cell.suite for one in runs for cell in one.cells if cell.status == "ok"}
    return sorted((suite for suite in SUITES if suite != COMPILED), key=lambda suite: suite not in measured)


def _run_data(one: ArchRun) -> dict[str, Any]:
    """A run as its page shows it. Pairs rather than objects where names are a journal's own."""
    run = one.run
    return {
        "key": one.key,
        "machine": run.machine,
        "started": run.started,
        "commit": run.commit[:8],
        "facts": run_facts(run),
        "ceilings": list(run.ceilings.items()),
        "counts": list(one.counts.items()),
        "suites": list(_by_suite(one.cells)),
        "failures": one.failures,
        "documented": rests_on(one.cells),
    }


def run_facts(run: Run) -> list[tuple[str, str]]:
    """What a page says about a run."""
    environment = {key: value for key, value in dataclasses.asdict(run.environment).items() if value is not None}
    return [
        *({"commit": run.commit, "source": run.source, "command": run.command, "protocol": run.protocol}).items(),
        *environment.items(),
        *((name, f"{value:.4g}") for name, value in run.ceilings.items()),
    ]
