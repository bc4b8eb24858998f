"""nvfp4bench as a command: every mistake is one sentence and exit status 2, from a checkout and from a bare copy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nvfp4bench

ROOT = Path(__file__).parents[1]


def command(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "nvfp4bench.py", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def test_help_names_every_command():
    done = command("--help")
    assert done.returncode == 0
    for name, (_, summary) in nvfp4bench.COMMANDS.items():
        assert name in done.stdout and summary.split()[0] in done.stdout


@pytest.mark.parametrize("name", nvfp4bench.COMMANDS)
def test_every_command_has_help(name):
    done = command(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: nvfp4bench {name}")


@pytest.mark.parametrize("arguments", [["frobnicate"], [], ["run", "--frobnicate"], ["--frobnicate"]], ids=" ".join)
def test_bad_usage_is_status_2_and_no_traceback(arguments):
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: nvfp4bench") and "Traceback" not in done.stderr


def test_old_python_is_one_sentence():
    program = "import sys; sys.version_info = (3, 10, 4); import nvfp4bench; sys.exit(nvfp4bench.main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == f"nvfp4bench: Python 3.11 or newer is needed, and {sys.executable} is 3.10.\n"


@pytest.mark.parametrize("arguments", [["gate"], ["cell", "host/torch-reference-bf16/d64/kv1024", "--once", "--cpu"]])
def test_python_without_torch_is_one_sentence(arguments):
    program = f"import sys; sys.modules['torch'] = None; import nvfp4bench; sys.exit(nvfp4bench.main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    remedy = "install it there, or let `make bench` set up .venv."
    assert done.stderr == f"nvfp4bench {arguments[0]}: torch is not installed for {sys.executable}; {remedy}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("streams", [(1,), (2,), (1, 2)], ids=["stdout", "stderr", "both"])
def test_a_full_disk_behind_the_output_is_status_2(streams, tmp_path):
    """On stderr too: status 1 would be a regression."""
    arguments = ["run", "--plan", "--cell", "host/*"] if 1 in streams else ["results", "check", "--results", str(tmp_path)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "nvfp4bench.py", *arguments],
            cwd=ROOT,
            stdout=full if 1 in streams else subprocess.PIPE,
            stderr=full if 2 in streams else subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    if 2 not in streams:
        assert done.stderr == "nvfp4bench run: cannot read or write the output: No space left on device.\n"


def test_public_names_are_what_they_say():
    for name in nvfp4bench.__all__:
        assert getattr(nvfp4bench, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = nvfp4bench.frobnicate


def test_bare_copy_without_git_runs(tmp_path):
    """`python nvfp4bench.py` needs the tree alone: no installation, no git, no results."""
    for package in ("impls", "benchmarks", "dashboards"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "nvfp4bench.py", tmp_path)
    done = command("run", "--plan", "--quick", "--cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch-reference-bf16" in done.stdout
