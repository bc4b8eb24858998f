""".ci/run: a check that fails, or takes longer than its share, fails CI; the others still run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = ("lint", "test", "gate", "gate-emulated", "test-slow")


@pytest.fixture
def ci(tmp_path):
    """Run a copy of .ci/run in which make and the constraint check are stand-ins."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    tools = tmp_path / "tools"
    tools.mkdir()

    def stand_in(path: Path, body: str) -> None:
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run(make: str = "true", check: str = "true", edit: tuple[str, str] = ("", "")) -> tuple[int, str]:
        stand_in(tools / "make", f'echo "ran $1"; {make}')
        stand_in(tools / "chromium", "true")
        stand_in(python, check)
        script = tmp_path / ".ci" / "run"
        script.write_text((ROOT / ".ci" / "run").read_text().replace(*edit))
        done = subprocess.run(
            ["bash", script],
            env={"PATH": f"{tools}:/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout

    return run


def test_all_checks_run_and_print_their_seconds(ci):
    status, printed = ci()
    assert status == 0, printed
    for check in CHECKS:
        assert f"ran {check}\n=== {check}: status 0, " in printed
    for check, minutes in (("test", 8), ("gate", 10), ("gate-emulated", 12), ("test-slow", 30)):
        assert f" s of {60 * minutes} s" in printed.split(f"=== {check}: status")[1].splitlines()[0]


@pytest.mark.parametrize("failing", CHECKS)
def test_failing_check_fails_ci_and_stops_no_other(ci, failing):
    status, printed = ci(make=f"[ $1 != {failing} ]")
    assert status == 1
    assert f"CI failed: {failing} (status 1)" in printed
    assert all(f"ran {check}" in printed for check in CHECKS)


def test_failing_constraint_check_fails_ci(ci):
    status, printed = ci(check="exit 2")
    assert status == 1 and "CI failed: gpu-constraints (status 2)" in printed


def test_failing_setup_ends_ci_at_once(ci):
    status, printed = ci(make="[ $1 != setup ]")
    assert status == 1 and "ran lint" not in printed


def test_check_over_its_share_fails_ci(ci):
    status, printed = ci(make="[ $1 != gate ] || sleep 1.1", edit=("step gate 10 ", "step gate 0 "))
    assert status == 1
    assert "CI failed: gate (" in printed and "its share is 0 s" in printed


def test_hanging_check_is_ended(ci):
    status, printed = ci(make="[ $1 != gate ] || sleep 50", edit=("$((2 * share)) ", "1 "))
    assert status == 1 and "CI failed: gate (status 124)" in printed
