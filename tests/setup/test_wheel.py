"""The wheel: every module and every data file is in it, and it works where there is no checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("impls", "benchmarks", "dashboards")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the tree, since building leaves files beside the sources."""
    copy = tmp_path_factory.mktemp("tree") / "copy"
    copy.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("nvfp4bench.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    built = subprocess.run(
        [*command, "--wheel-dir", str(copy / "dist"), str(copy)], capture_output=True, text=True, timeout=120, check=False
    )
    assert built.returncode == 0, built.stderr
    (file,) = (copy / "dist").glob("*.whl")
    return file


def test_wheel_holds_every_file_of_the_packages_and_no_other(wheel):
    """A folder without __init__.py, or a data file that package-data does not name, would be missing."""
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == sources | {"nvfp4bench.py"}


def test_wheel_declares_command_and_licence(wheel):
    archive = zipfile.ZipFile(wheel)
    (entry_points,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
    assert "nvfp4bench = nvfp4bench:main" in archive.read(entry_points).decode()
    assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())


def test_wheel_works_without_a_checkout(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-c", "import nvfp4bench; print(nvfp4bench.__file__, nvfp4bench.quantize.__name__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == [str(tmp_path / "site" / "nvfp4bench.py"), "quantize"], done.stderr
