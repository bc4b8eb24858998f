"""Errors that are known and accepted, so that a change for the worse shows long before it breaks a bound.

A baseline file holds, for one way of running (`cpu`, `gpu-sm_90a`, `emulated-sm_120a`), relative L2, largest row error and
lse error of each implementation and case to 3 digits, and the toolchain they were made with, which is told and not compared:

    {"schema": 1, "toolchain": {"torch": "2.13.0", ...}, "entries": {implementation: {case: {metric: value}}}}
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeGuard

from impls.cuda import nvrtc
from impls.errors import CommandError
from impls.files import replace_file
from impls.host import driver_version

SCHEMA = 1
METRICS = ("relative_l2", "largest_row_error", "lse_error")
TOLERATED_RATIO = 1.25
TOLERATED_SHARE = 1 / 20
"""A metric fails over 1.25 x its baseline and by more than 1/20 of its bound: both, or float32 noise would fail."""

FOLDER = Path(__file__).parent / "baselines"
ANEW = "remove that file, then make them anew with --update"
Entry = Mapping[str, float]


@dataclass
class Baselines:
    """One file."""

    entries: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """{implementation: {case: {metric: value}}}."""
    toolchain: dict[str, str] = field(default_factory=dict)
    """{what computes: version}."""

    def entry(self, implementation: str, case: str) -> Entry | None:
        return self.entries.get(implementation, {}).get(case)

    def record(self, implementation: str, case: str, numerics: Mapping[str, Any]) -> str | None:
        """Take these errors over; "old -> new" if that changes anything."""
        new = {metric: three_digits(numerics[metric]) for metric in METRICS}
        old = self.entry(implementation, case)
        self.entries.setdefault(implementation, {})[case] = new
        if old == new:
            return None
        changes = [
            f"{metric} {'none' if old is None else f'{old[metric]:.3g}'} -> {new[metric]:.3g}"
            for metric in METRICS
            if old is None or old[metric] != new[metric]
        ]
        return ", ".join(changes)

    def write(self, path: Path) -> None:
        """Sorted, so that a change of one entry is a change of one place. Raises CommandError, and then the old ones stay."""
        data = {"schema": SCHEMA, "toolchain": self.toolchain, "entries": self.entries}
        try:
            replace_file(Path(os.path.realpath(path)), (json.dumps(data, indent=1, sort_keys=True) + "\n").encode())
        except OSError as error:
            raise CommandError(f"cannot write the baselines {path}: {error.strerror}.") from error


def default_path(on: str, arch: str) -> Path:
    """Where the baselines of a way of running lie: cpu.json, gpu-sm_90a.json, emulated-sm_120a.json."""
    return FOLDER / ("cpu.json" if on == "cpu" else f"{on.partition(':')[0]}-{arch}.json")


def read(path: Path) -> Baselines:
    """Raises CommandError, in one sentence, unless `path` is a baseline file of this version."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe waits, and reading some devices never ends
            raise CommandError(f"the baselines {path} are not a regular file; name one.")
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise CommandError(f"cannot read the baselines {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"the baselines {path} are damaged, since they are not JSON of ours; {ANEW}.") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise CommandError(f"the baselines {path} are not of schema {SCHEMA}; {ANEW}.")
    entries, tools = data.get("entries"), data.get("toolchain")
    if not _are_entries(entries) or not isinstance(tools, dict):
        wanted = "entries must be numbers by implementation, case and metric"
        raise CommandError(f"the baselines {path} are damaged: {wanted}; {ANEW}.")
    return Baselines(entries, tools)


def worse_than(entry: Entry, numerics: Mapping[str, Any], bounds: Mapping[str, float]) -> str | None:
    """None if the errors hold against their baseline, else one sentence."""
    for metric in METRICS:
        known, now = entry[metric], numerics[metric]
        if now > TOLERATED_RATIO * known and now - known > TOLERATED_SHARE * bounds[metric]:
            return f"{metric} is {now:.3g} where the baseline is {known:.3g}, more than {TOLERATED_RATIO} times."
    return None


def largest_ratio(entry: Entry, numerics: Mapping[str, Any]) -> float:
    """Largest metric over its baseline: 1 where nothing changed, Inf where the baseline is 0 and the error is not."""
    return max(
        numerics[metric] / entry[metric] if entry[metric] else (math.inf if numerics[metric] else 1.0) for metric in METRICS
    )


def three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def toolchain(on: str) -> dict[str, str]:
    """Versions of what computes; for a GPU, emulated or not, of NVRTC too, which compiles CUDA; on one also of the driver."""
    found = {}
    for package in ("torch", "triton", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if on != "cpu":
        with contextlib.suppress(nvrtc.NoCompiler):
            found["nvrtc"] = nvrtc.find().release
    if on == "gpu":
        driver = driver_version()
        if driver is not None:
            found["driver"] = driver
    return found


def _are_entries(data: Any) -> TypeGuard[dict[str, dict[str, dict[str, float]]]]:
    return isinstance(data, dict) and all(
        isinstance(cases, dict)
        and all(
            isinstance(entry, dict) and sorted(entry) == sorted(METRICS) and all(map(_is_error, entry.values()))
            for entry in cases.values()
        )
        for cases in data.values()
    )


def _is_error(value: Any) -> bool:
    """Whether it is a finite number of at least 0; JSON's whole numbers may be larger than any float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max
