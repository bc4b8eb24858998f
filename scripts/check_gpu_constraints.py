"""Check that the package registry can serve constraints-gpu.txt: pip resolves it there, and installs nothing.

    .venv/bin/python scripts/check_gpu_constraints.py

Only the registry counts: wheels that lie on this machine and caps in its pip configuration are left out, as another
machine has neither. Resolved are the runtime dependencies and all extras and dependency groups, for one Python of GPU machines.
Exit status: 0 it resolves to the pinned pair, 1 it does not, 2 no registry answered (also in CI, where there is one).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from install import NO_CONNECTION, REFUSALS, ROOT, build_requirements, pyproject, requirements

CONSTRAINTS = ROOT / "constraints-gpu.txt"
TARGET_PYTHON = "3.12"


def main() -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = resolve(report)
        if done.returncode != 0:
            return explain(done.stdout)
        found = versions(report)
    wrong = [f"{name} {found.get(name, 'nothing')} instead of {pin}" for name, pin in pins().items() if found.get(name) != pin]
    if wrong:
        print(f"{CONSTRAINTS.name} resolves to {' and '.join(wrong)}.", file=sys.stderr)
        return 1
    pair = ", ".join(f"{name} {pin}" for name, pin in pins().items())
    print(f"{CONSTRAINTS.name} resolves: {pair}, {len(found)} packages, {time.monotonic() - started:.0f} s.")
    return 0


def resolve(report: Path) -> subprocess.CompletedProcess[str]:
    """pip's resolution of everything the project names, written to `report`."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--retries", "2"]
    command += ["--only-binary=:all:", "--python-version", TARGET_PYTHON, "--target", str(report.parent / "target")]
    command += ["--report", str(report), "-c", str(CONSTRAINTS), *build_requirements()]
    command += requirements(list(pyproject()["dependency-groups"]))
    command += [name for extra in pyproject()["project"]["optional-dependencies"].values() for name in extra]
    local = ("PIP_FIND_LINKS", "PIP_CONSTRAINT", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX")
    environment = {name: value for name, value in os.environ.items() if name not in local}
    environment["PIP_CONFIG_FILE"] = os.devnull
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def explain(message: str) -> int:
    """Say what pip's message means, after the end of it; the exit status."""
    print("\n".join(message.splitlines()[-15:]), file=sys.stderr)
    if NO_CONNECTION not in message and any(word in message for word in REFUSALS):
        print(f"{CONSTRAINTS.name} does not resolve; pip's reason stands above.", file=sys.stderr)
        return 1
    print(f"pip could not try {CONSTRAINTS.name}: is a package registry within reach?", file=sys.stderr)
    return 2


def versions(report: Path) -> dict[str, str]:
    """{package: version} of pip's report, names in lower case."""
    packages = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {package["metadata"]["name"].lower(): package["metadata"]["version"] for package in packages}


def pins() -> dict[str, str]:
    """{package: version} of the set's own lines: the pair that has to come out."""
    return dict(re.findall(r"^(\w+)==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE))


if __name__ == "__main__":
    sys.exit(main())
