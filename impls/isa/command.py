"""`nvfp4bench isa`: which instructions each target's ptxas accepts, and what they become. Needs no GPU."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from impls.errors import CommandError
from impls.host import usable_cores
from impls.isa import report, result, toolchain
from impls.isa.cache import Cache, default_folder
from impls.isa.catalogue import groups
from impls.isa.divide import divide
from impls.isa.probe import Prober, Progress
from impls.isa.processes import Processes
from impls.isa.program import Program
from impls.isa.result import Probe
from impls.isa.toolchain import Assembler

Groups = dict[str, tuple[Program, ...]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", metavar="A,B", help="targets, by their exact names; all that ptxas lists where left out")
    parser.add_argument(
        "--release",
        metavar="R",
        help=f"a ptxas by its CUDA release or path; {toolchain.PINNED_RELEASE} where it is here, else the newest",
    )
    parser.add_argument("--family", metavar="GLOB", help="only programs whose id matches, each shown by itself")
    parser.add_argument("--jobs", metavar="N", type=int, help="processes at a time; one a core where left out")
    parser.add_argument("--json", action="store_true", help="everything, as JSON on stdout")
    parser.add_argument(
        "--diff", nargs=2, metavar=("R1", "R2"), help="what changed between two releases, each found here or committed"
    )
    parser.add_argument("--update", action="store_true", help="commit the result: write impls/isa/probes/RELEASE.json")


def execute(arguments: argparse.Namespace) -> int:
    if arguments.jobs is not None and arguments.jobs < 1:
        raise CommandError(f"--jobs must be at least 1, not {arguments.jobs}.")
    if arguments.diff and (arguments.release or arguments.update):
        raise CommandError("--diff names its two releases itself: leave --release and --update out.")
    if arguments.update and (arguments.arch or arguments.family):
        raise CommandError("--update commits all programs on all targets: leave --arch and --family out.")
    selected = _selected(arguments.family)
    jobs = arguments.jobs or usable_cores()
    if arguments.diff:
        return _diff(arguments, selected, jobs)
    probe = _probe(toolchain.choose(arguments.release, Processes()), arguments.arch, selected, jobs)
    if arguments.update:
        _update(probe)
    if arguments.json:
        json.dump(report.as_json(probe, _flat(selected)), sys.stdout)
        print()
    else:
        _print(probe, selected, one_by_one=arguments.family is not None)
    return 0


def _selected(family: str | None) -> Groups:
    """The catalogue, or the programs whose id matches the glob `family`."""
    if family is None:
        return groups()
    matching = {
        name: tuple(program for program in programs if fnmatchcase(program.id, family)) for name, programs in groups().items()
    }
    found = {name: programs for name, programs in matching.items() if programs}
    if not found:
        raise CommandError(f"no program's id matches {family!r}; a family's programs are like 'mma.sync/mxf4nvf4/*'.")
    return found


def _flat(selected: Groups) -> list[Program]:
    return [program for programs in selected.values() for program in programs]


def _names(arch: str) -> list[str]:
    """The targets named in --arch, each once, in that order."""
    return list(dict.fromkeys(name.strip() for name in arch.split(",")))


def _targets(arch: str | None, assembler: toolchain.Assembler) -> Sequence[str]:
    """The targets named in --arch, or all."""
    if arch is None:
        return assembler.targets
    chosen = _names(arch)
    unknown = [name for name in chosen if name not in assembler.targets]
    if unknown:
        known = ", ".join(assembler.targets)
        raise CommandError(f"ptxas {assembler.release} has no target {', '.join(map(repr, unknown))}; it has {known}.")
    return chosen


def _probe(assembler: Assembler, arch: str | None, selected: Groups, jobs: int) -> Probe:
    """Probe with one assembler, telling on stderr what is missing or takes its time."""
    processes = Processes()
    disassembler = toolchain.disassembler(processes)
    if disassembler is None:
        print(
            f"there is no nvdisasm here, so opcodes are left out; install one with: {toolchain.HOW_TO_GET_DISASSEMBLER}",
            file=sys.stderr,
        )
    cache = Cache(default_folder())
    prober = Prober(assembler, disassembler, store=cache, processes=processes, jobs=jobs)
    probe = prober.probe(selected, _targets(arch, assembler), Progress(f"ptxas {assembler.release}"))
    if cache.trouble:
        print(cache.trouble, file=sys.stderr)
    return probe


def _print(probe: Probe, selected: Groups, *, one_by_one: bool) -> None:
    programs = _flat(selected)
    print(f"ptxas {probe.release}, PTX {probe.ptx_version}, {len(programs)} programs on {len(probe.targets)} targets\n")
    if one_by_one:
        print(report.details(probe, programs))
        return
    print(report.matrix(probe, programs))
    print(report.limits_text(probe))
    print(report.divide_text(divide(probe, {program.id: program for program in programs})))
    print(report.caveats_text(), end="")


def _diff(arguments: argparse.Namespace, selected: Groups, jobs: int) -> int:
    sources = [_source(release) for release in arguments.diff]  # both are known before minutes go into probing one
    if sources[0] == sources[1]:
        raise CommandError(f"{' and '.join(arguments.diff)} are the same, {sources[0].release}; name two releases.")
    before, after = (
        _probe(source, arguments.arch, selected, jobs)
        if isinstance(source, Assembler)
        else source.only(_names(arguments.arch))
        if arguments.arch
        else source
        for source in sources
    )
    found = report.differences(before, after, _flat(selected))
    if arguments.json:
        json.dump(report.differences_json(before, after, found), sys.stdout)
        print()
    else:
        print(report.differences_text(before, after, found), end="")
    return 0


def _source(release: str) -> Assembler | Probe:
    """Where a release's result comes from: its ptxas if that is here, to be probed, else the committed result."""
    committed = [known for known in result.committed() if known == release or known.startswith(f"{release}.")]
    try:
        return toolchain.choose(release, Processes())
    except CommandError as missing:
        if not committed:
            raise CommandError(f"{missing} Committed are {', '.join(result.committed()) or 'none'}.") from missing
        return result.load_committed(committed[-1])


def _update(probe: Probe) -> None:
    """Write the committed result and say what changed. Refuses a probe with holes."""
    holes = [
        f"{program} on {target}" for program, target, cell in probe.rows() if cell.error and cell.error.kind in result.HOLES
    ]
    if holes or probe.disassembler is None:
        why = f"ptxas crashed or ran out of time on {holes[0]}" if holes else "there is no nvdisasm here"
        raise CommandError(f"the result is not committed: {why}.")
    path = result.PROBES / f"{probe.release}.json"
    if path.exists():
        print(_changes(path, probe), file=sys.stderr, end="")
    result.save(probe, path)
    print(f"wrote {path}", file=sys.stderr)


def _changes(path: Path, probe: Probe) -> str:
    """What the new result changes in the committed one; one that cannot be read is replaced all the same."""
    try:
        before = result.load(path)
    except CommandError as unreadable:
        return f"the old result is replaced unread: {unreadable}\n"
    return report.differences_text(before, probe, report.differences(before, probe, _flat(groups())))
