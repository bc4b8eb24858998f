"""`nvfp4bench doctor`: what this machine has, and for each implementation whether it can be used here or why not.

The report is data first (`report`, which `--json` prints); the tables are made from it alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from benchmarks.asv_machine import machine_fields
from benchmarks.environment import (
    NVRTC_PACKAGES,
    cpu_model,
    environment,
    gpu,
    machine_name,
    package_version,
    tool_version,
    triton_ptxas,
)
from impls.arch import ARCHES, CPU, Arch, find
from impls.contract import Implementation, Problem, Unsupported
from impls.errors import CommandError
from impls.registry import implementations
from impls.worker import ROOT, Worker

DISTRIBUTION = "nvfp4-attention-bench"
INTERPRET = "TRITON_INTERPRET"
TYPICAL = Problem(batch=1, q_heads=32, kv_heads=8, q_len=1, kv_len=8192, head_dim=128, v_head_dim=128)
"""What "usable" is asked for: one decode step of an 8B model with an 8k cache."""
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)>=(?P<oldest>[0-9.]+)(; *sys_platform == ['\"](?P<system>\w+)['\"])?")
EXTRA = re.compile(r"(?P<requirement>.+?)(;| and) *extra == ['\"](?P<name>\w+)['\"]")
"""A requirement of an extra, as the metadata of an installed package state it."""
ANSWER_SECONDS = 120


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print everything the tables show as JSON")
    parser.add_argument(
        "--asv-machine",
        action="store_true",
        help="print this machine's entry for ~/.asv-machine.json and add it there, so that asv knows it by its results' name",
    )


def execute(arguments: argparse.Namespace) -> int:
    """0 if an implementation is usable on the GPU or CPU here, 1 if none is."""
    found = report()
    if arguments.asv_machine:
        found["asv_machine"] = save_asv_machine(found["machine"], cpu=found["gpu"]["arch"] is None)
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        print("\n".join(_lines(found)))
    return 0 if any(one["here"] in ("usable", "interpreted") for one in found["implementations"]) else 1


def report() -> dict[str, Any]:
    """All that doctor knows, as JSON data. Raises CommandError where torch or numpy is missing."""
    state = gpu()
    usable = state.arch is not None
    return {
        "machine": machine_name(cpu=not usable),
        "gpu": {
            "present": state.present,
            "name": state.name,
            "arch": state.arch and state.arch.name,
            "driver": state.driver,
            "cuda": state.cuda,
            "why_not": state.why_not,
        },
        "cpu": cpu_model(),
        "platform": environment(cpu=True).platform,
        "compilers": compilers(),
        "packages": packages(),
        "implementations": usable_implementations(state.arch.name if state.arch else CPU.name),
    }


def compilers() -> list[dict[str, Any]]:
    """What compiles kernels and where it was found; `path` and `version` are null where it was not."""
    on_path = shutil.which("ptxas")
    places = {
        "ptxas of Triton, before sm_100": triton_ptxas(),
        "ptxas of Triton, sm_100 and newer": triton_ptxas(blackwell=True),
        "ptxas on PATH": Path(on_path) if on_path else None,
    }
    found = [
        {"name": name, "version": tool_version(path) if path else None, "path": str(path) if path else None}
        for name, path in places.items()
    ]
    package = next(filter(package_version, NVRTC_PACKAGES), None)
    return [*found, {"name": "NVRTC", "version": package_version(package) if package else None, "path": package}]


def packages() -> list[dict[str, Any]]:
    """Python and each package that the project names: version here, oldest it works with, whether that is kept."""
    oldest, groups = _requirements()
    wanted: list[dict[str, Any]] = [
        {"name": "python", "oldest": oldest, "group": "runtime", "version": platform.python_version()}
    ]
    for group, lines in groups.items():
        for line in lines:
            parts = REQUIREMENT.fullmatch(line)
            if parts is None:
                raise CommandError(f"doctor cannot read the requirement {line!r}; state it as NAME>=VERSION.")
            if parts["system"] in (None, sys.platform):
                found = package_version(parts["name"])
                wanted.append({"name": parts["name"], "oldest": parts["oldest"], "group": group, "version": found})
    return [{**one, "ok": one["version"] is not None and _release(one["version"]) >= _release(one["oldest"])} for one in wanted]


def usable_implementations(here: str) -> list[dict[str, Any]]:
    """Each implementation asked about `TYPICAL`, here and on every architecture.

    `here` and the values of `arches` are "usable", "interpreted" (only in a process that interprets Triton, which the
    commands start for it) or one sentence that says why not.
    """
    reasons = _ask({INTERPRET: "0"}, [CPU.name, *ARCHES])
    interpreted = _ask({INTERPRET: "1"}, [CPU.name])
    listed = []
    for name, one in implementations().items():
        arches = {arch: reason or "usable" for arch, reason in reasons[name].items()}
        if reasons[name][CPU.name] and interpreted[name][CPU.name] is None:
            arches[CPU.name] = "interpreted"
        listed.append({"name": name, "summary": one.summary, "here": arches[here], "arches": arches})
    return listed


def why_nots(request: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """{implementation: {arch: sentence or None}} for the architectures in `request`. Runs in a child of `_ask`."""
    return {name: {arch: _answer(one, find(arch)) for arch in request["arches"]} for name, one in implementations().items()}


def _answer(one: Implementation, arch: Arch) -> str | None:
    """Its sentence; where it has none to give, one about that."""
    try:
        reason = one.why_not(TYPICAL, arch)
        return str(Unsupported(reason)) if reason else None
    except Exception as error:  # one that is broken must not hide the others
        what = (str(error).splitlines() or ["no message"])[0].rstrip(".")
        return f"{one.name} cannot be asked: {type(error).__name__}: {what}."


def save_asv_machine(machine: str, *, cpu: bool) -> dict[str, str]:
    """Add `machine` to asv's own file of machines, ~/.asv-machine.json, and return its entry there."""
    try:
        from asv.machine import MachineCollection
        from asv.util import UserError
    except ImportError:
        raise CommandError(
            f"asv is not installed for {sys.executable}; install it there, or let `make bench` set up .venv."
        ) from None

    entry = machine_fields(machine, environment(cpu=cpu))
    path = MachineCollection.get_machine_file_path()
    try:
        MachineCollection.save(machine, entry)
    except (UserError, TypeError) as error:
        raise CommandError(f"{path} is not a machine file that asv can read ({error}); repair or remove it.") from error
    return entry


def _ask(env: Mapping[str, str], arches: list[str]) -> dict[str, dict[str, str | None]]:
    """`why_nots` in a child process: whether Triton interprets is settled once per process."""
    with Worker("benchmarks.commands.doctor:why_nots", env=env) as child:
        reply = child.call({"arches": arches}, timeout=ANSWER_SECONDS)
    if reply.status != "ok":
        raise CommandError(f"the implementations could not be asked what they can do: {reply.sentence}")
    return reply.value


def _requirements() -> tuple[str, dict[str, list[str]]]:
    """(oldest Python, {"runtime", extra or dependency group: requirements}), of the checkout or of the installed package."""
    stated = ROOT / "pyproject.toml"
    if stated.is_file():
        data = tomllib.loads(stated.read_text(encoding="utf-8"))
        project, groups = data["project"], data["dependency-groups"]
        extras = project["optional-dependencies"]
        return project["requires-python"].removeprefix(">="), {"runtime": project["dependencies"], **extras, **groups}
    try:
        installed = metadata(DISTRIBUTION)
    except PackageNotFoundError:
        raise CommandError(f"there is neither {stated} nor an installed {DISTRIBUTION} that says what it needs.") from None
    stated_by: dict[str, list[str]] = {"runtime": []}
    for line in installed.get_all("Requires-Dist") or []:
        extra = EXTRA.fullmatch(line)
        stated_by.setdefault(extra["name"] if extra else "runtime", []).append(extra["requirement"] if extra else line)
    return installed["Requires-Python"].removeprefix(">="), stated_by


def _release(version: str) -> tuple[int, ...]:
    """(2, 13, 0) of "2.13.0+cpu"; what follows the release (rc1, .dev3, +local) does not count."""
    return tuple(map(int, re.findall(r"\d+", re.match(r"[\d.]*", version)[0])))  # type: ignore[index]


def _lines(found: Mapping[str, Any]) -> list[str]:
    return [
        *_device_lines(found),
        "",
        "compilers",
        *_table([[one["name"], one["version"] or "not found", one["path"] or ""] for one in found["compilers"]]),
        "",
        "packages",
        *_table([[one["name"], one["version"] or "not installed", _bound(one)] for one in found["packages"]]),
        "",
        *_implementation_lines(found),
        *_asv_lines(found),
    ]


def _device_lines(found: Mapping[str, Any]) -> list[str]:
    state = found["gpu"]
    rows = [["machine", found["machine"]], ["gpu", state["name"] or "none"]]
    if state["why_not"]:
        rows[-1][1] = f"{state['name'] or 'none'}: {state['why_not']}"
    if state["arch"]:
        rows += [["arch", f"{state['arch']} ({ARCHES[state['arch']].chips})"]]
    if state["present"]:
        rows += [["driver", state["driver"] or "unknown"], ["torch's CUDA", state["cuda"] or "none"]]
    return _table([*rows, ["cpu", found["cpu"]], ["platform", found["platform"]]])


def _bound(package: Mapping[str, Any]) -> str:
    wanted = f">= {package['oldest']}"
    if package["group"] != "runtime":
        wanted += f" (for {package['group']} only)"
    return wanted if package["ok"] else f"{wanted}, which is not met"


def _implementation_lines(found: Mapping[str, Any]) -> list[str]:
    """Each implementation here, then on every architecture, with a number for each sentence below the table."""
    here = found["gpu"]["arch"] or CPU.name
    words = {"usable": "usable", "interpreted": f"usable, interpreted in a child process ({INTERPRET}=1)"}
    mine = [[one["name"], words.get(one["here"], one["here"])] for one in found["implementations"]]
    sentences: list[str] = []
    rows = [["", CPU.name, *ARCHES]]
    for one in found["implementations"]:
        row = [one["name"]]
        for answer in one["arches"].values():
            if answer not in words and answer not in sentences:
                sentences.append(answer)
            row.append({"usable": "yes", "interpreted": "interp."}.get(answer) or f"no ({sentences.index(answer) + 1})")
        rows.append(row)
    return [
        f"implementations on this machine ({here})",
        *_table(mine),
        "",
        "implementations on each architecture (yes: can be compiled for it here, and runs where such a GPU is)",
        *_table(rows),
        *(f"  ({number}) {sentence}" for number, sentence in enumerate(sentences, 1)),
    ]


def _asv_lines(found: Mapping[str, Any]) -> list[str]:
    if "asv_machine" not in found:
        return []
    rows = [[name, value] for name, value in found["asv_machine"].items()]
    return ["", f"added to ~/.asv-machine.json; use it by `asv run --machine {found['machine']}`", *_table(rows)]


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return [textwrap.indent(line, "  ") for line in lines]
