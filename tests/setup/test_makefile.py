"""The Makefile: whose Python it uses, and that it never touches another one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = ("setup", "bench", "gate", "gate-emulated", "test", "test-slow", "lint", "clean")


def make(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", *arguments], cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def test_help_lists_every_target():
    shown = make("help").stdout
    phony = re.search(r"^\.PHONY: help (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None and set(phony[1].split()) == set(TARGETS)
    for target in TARGETS:
        assert re.search(rf"^make {target} +\S", shown, re.MULTILINE), target


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "clean"])
def test_given_python_is_used_and_nothing_is_installed(target):
    planned = make("--dry-run", target, "PYTHON=/opt/other python/bin/python")
    assert planned.returncode == 0
    assert '"/opt/other python/bin/python"' in planned.stdout
    assert "install.py" not in planned.stdout and ".venv" not in planned.stdout


def test_python_in_the_environment_was_not_meant_for_us():
    planned = make("--dry-run", "test", PYTHON="/usr/bin/false")
    assert "/usr/bin/false" not in planned.stdout
    assert ".venv/bin/python -m pytest" in planned.stdout


@pytest.mark.parametrize("variable", ["PYTHON", "PYTHON3"])
def test_old_python_is_one_sentence(tmp_path, variable):
    old = tmp_path / "old python"
    old.write_text(
        f"#!{sys.executable}\n"
        "import runpy, sys\n"
        "sys.version_info = (3, 10, 4, 'final', 0)\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    old.chmod(0o755)
    done = make("setup", f"{variable}={old}")
    assert done.returncode == 2
    assert "Python 3.11 or newer is needed" in done.stderr and "is 3.10" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_python_is_named(tmp_path):
    done = make("setup", f"PYTHON3={tmp_path / 'python3.99'}")
    assert done.returncode == 2
    assert "python3.99" in done.stderr and "Traceback" not in done.stderr


def test_checkout_in_a_path_with_spaces(tmp_path):
    checkout = tmp_path / "a b" / "check out"
    checkout.mkdir(parents=True)
    for name in ("Makefile", "scripts"):
        (checkout / name).symlink_to(ROOT / name)
    python = tmp_path / "a b" / "python"
    python.symlink_to(sys.executable)
    assert make("setup", f"PYTHON={python}", cwd=checkout).returncode == 0
