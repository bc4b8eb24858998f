"""What importing costs and who may know whom: asv starts a process per benchmark, so an import of torch is paid each time."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nvfp4bench

ROOT = Path(__file__).parents[1]


def modules(package: str) -> list[str]:
    """Every module of a package, found as files: importing is what is under test."""
    return sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / package).rglob("*.py")
    )


def imported_names(path: Path) -> Iterator[str]:
    """Full names of all that a file imports, inside functions too; `from a import b` counts as a and a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports here are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def loaded_by(program: str) -> set[str]:
    """Top-level packages in memory at the end of `program`, run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules, file=sys.stderr)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize(
    "names", [["nvfp4bench"], ["impls", "impls.registry"], modules("benchmarks")], ids=["nvfp4bench", "impls", "benchmarks"]
)
def test_import_takes_neither_torch_nor_triton(names):
    assert not loaded_by("\n".join(f"import {name}" for name in names)) & {"torch", "triton"}


def test_listing_the_implementations_takes_neither_torch_nor_triton():
    assert not loaded_by("import nvfp4bench\nassert nvfp4bench.implementations()") & {"torch", "triton"}


@pytest.mark.parametrize("command", nvfp4bench.COMMANDS)
def test_help_of_a_command_takes_neither_torch_nor_triton(command):
    program = f"import nvfp4bench\ntry: nvfp4bench.main([{command!r}, '--help'])\nexcept SystemExit as end: assert not end.code"
    assert not loaded_by(program) & {"torch", "triton"}


def test_the_probe_sees_torch():
    """The reader under the tests above."""
    assert "torch" in loaded_by("import impls.reference")


def test_implementations_know_neither_benchmarks_nor_dashboards():
    for path in (ROOT / "impls").rglob("*.py"):
        for name in imported_names(path):
            assert name.partition(".")[0] not in ("benchmarks", "dashboards", "tests", "scripts"), f"{path} imports {name}"


def test_dashboards_know_results_probes_architectures_and_bounds_alone():
    readers = [f"impls.isa.{name}" for name in ("catalogue", "divide", "limits", "program", "report", "result")]
    bounds = "impls.cuda.emulator.counting"  # pure functions of a record and of the rates of an architecture
    allowed = ("benchmarks.records", "benchmarks.journal", "impls.arch", "impls.errors", bounds, *readers)
    for path in (ROOT / "dashboards").rglob("*.py"):
        for name in imported_names(path):
            if name.partition(".")[0] in ("impls", "benchmarks"):
                assert name.startswith(allowed), f"{path} imports {name}"


def test_benchmarks_know_no_dashboards():
    for path in (ROOT / "benchmarks").rglob("*.py"):
        for name in imported_names(path):
            assert name.partition(".")[0] not in ("dashboards", "tests", "scripts"), f"{path} imports {name}"


def test_imports_are_read_from_functions_and_from_clauses_too(tmp_path):
    """The reader under the three tests above: a boundary crossed inside a function counts."""
    file = tmp_path / "module.py"
    file.write_text("import a.b\ndef f():\n    from benchmarks import sweep\n")
    assert list(imported_names(file)) == ["a.b", "benchmarks.sweep"]
