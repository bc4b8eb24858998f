"""A ptxas made of a Python script, for faults that a real one does not show on demand."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

_SCRIPT = """#!{python} -SE
import os, pathlib, re, signal, sys, time
arguments = sys.argv[1:]
if "--version" in arguments:
    print("Cuda compilation tools, release {major}, V{release}")
    sys.exit(0)
if "--help" in arguments:
    print("--gpu-name <gpu name> (-arch) Allowed values for this option:")
    print("'compute_90','sm_90','sm_100','sm_100a','sm_100f','sm_90a'.")
    print(" Default value: 'sm_90'.")
    sys.exit(0)
source = next(pathlib.Path(word) for word in arguments if word.endswith(".ptx"))
text = source.read_text()
if ".version 99.9" in text:
    sys.exit("ptxas x.ptx, line 1; fatal   : Unsupported .version 99.9; current version is '9.0'")
with open({log!r}, "a") as log:
    print(len(re.findall(r"[.]entry", text)), file=log)
{behaviour}
pathlib.Path(arguments[arguments.index("-o") + 1]).write_bytes(b"cubin")
"""


def fake_ptxas(folder: Path, behaviour: str = "", release: str = "13.0.88") -> Path:
    """An executable that takes every module unless `behaviour`, Python statements that see `text`, does otherwise.

    Each module it is given is a line in `folder`/log: the number of its entries.
    """
    path = folder / "ptxas"
    path.write_text(
        _SCRIPT.format(
            python=sys.executable,
            major=release.rpartition(".")[0],
            release=release,
            log=str(folder / "log"),
            behaviour=behaviour,
        )
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def modules_seen(folder: Path) -> list[int]:
    """Entries of each module that the fake was given."""
    log = folder / "log"
    return [int(line) for line in log.read_text().split()] if log.exists() else []
