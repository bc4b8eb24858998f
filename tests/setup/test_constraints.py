"""pyproject.toml and constraints*.txt: bounds in the one, a pin within them for everything in the others."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from impls.cuda.nvrtc import PINNED_HEADERS
from impls.isa.toolchain import PINNED_RELEASE
from scripts import check_gpu_constraints

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECLARED = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(name for extra in PROJECT["project"]["optional-dependencies"].values() for name in extra),
    *(name for group in PROJECT["dependency-groups"].values() for name in group),
]


def pins(file: str) -> dict[str, str]:
    """{package: version} of a constraint set, with the sets it includes. Anything but a pin, a comment or -c fails."""
    found = {}
    for line in (ROOT / file).read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-c "):
            found.update(pins(text.removeprefix("-c ").strip()))
        elif text:
            match = re.fullmatch(r"([A-Za-z0-9_.-]+)==([0-9][0-9A-Za-z.]*)", text)
            assert match is not None, f"{file}: {line!r} is no exact pin"
            found[canonicalize_name(match[1])] = match[2]
    return found


@pytest.mark.parametrize("file", ["constraints-cpu.txt", "constraints-gpu.txt"])
@pytest.mark.parametrize("requirement", DECLARED)
def test_everything_declared_is_pinned_within_its_bounds(file, requirement):
    wanted = Requirement(requirement)
    pinned = pins(file)
    assert canonicalize_name(wanted.name) in pinned
    assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("requirement", DECLARED)
def test_pyproject_has_lower_bounds_only(requirement):
    """An upper bound or a pin would keep the package out of environments that it works in."""
    assert [specifier.operator for specifier in Requirement(requirement).specifier] == [">="]


def test_everything_installed_for_it_is_pinned():
    """A dependency of a dependency that is not pinned may change under a green commit."""
    pinned, unpinned, seen = pins("constraints-cpu.txt"), set(), set()
    waiting = [Requirement(requirement) for requirement in DECLARED]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        try:
            needed = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # not in this environment, which then says nothing about what it brings
        waiting += map(Requirement, needed)
        if name not in pinned and not name.startswith("nvidia-"):  # torch itself pins these, and they differ by build
            unpinned.add(name)
    assert not unpinned


def test_the_sets_differ_in_torch_and_what_it_pins_alone():
    cpu, gpu, shared = (pins(f"constraints{kind}.txt") for kind in ("-cpu", "-gpu", ""))
    pinned = {"torch", "triton", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime"}
    assert cpu.keys() - shared.keys() == gpu.keys() - shared.keys() == pinned


def test_kernels_are_compiled_with_the_release_of_the_probed_assembler():
    pinned = pins("constraints-cpu.txt")
    assert pinned["nvidia-cuda-nvrtc"] == pinned["nvidia-cuda-nvcc"] == PINNED_RELEASE
    assert pinned["nvidia-cuda-runtime"] == PINNED_HEADERS


class TestCheckOfTheGpuSet:
    """scripts/check_gpu_constraints.py judges pip's answer; .ci/run asks pip itself."""

    def test_conflict_fails(self, capsys):
        assert check_gpu_constraints.explain("ERROR: ResolutionImpossible: see") == 1
        assert "does not resolve" in capsys.readouterr().err

    def test_no_registry_is_not_a_verdict(self, capsys):
        message = "WARNING: Retrying after connection broken by X\nERROR: ResolutionImpossible: see"
        assert check_gpu_constraints.explain(message) == 2
        assert "within reach?" in capsys.readouterr().err

    def test_other_versions_than_pinned_fail(self, monkeypatch, capsys):
        monkeypatch.setattr(check_gpu_constraints, "resolve", lambda report: type("Done", (), {"returncode": 0}))
        monkeypatch.setattr(check_gpu_constraints, "versions", lambda report: {"torch": "2.15.0", "triton": "3.8.0"})
        assert check_gpu_constraints.main() == 1
        assert "triton 3.8.0 instead of 3.9.0" in capsys.readouterr().err

    def test_local_wheels_and_caps_do_not_count(self, monkeypatch, tmp_path):
        """A wheel on this machine, or a cap in its pip configuration, would decide what another machine gets."""
        seen = {}
        monkeypatch.setenv("PIP_FIND_LINKS", "/some/wheels")
        monkeypatch.setenv("PIP_CONSTRAINT", "/some/caps.txt")
        monkeypatch.setattr(check_gpu_constraints.subprocess, "run", lambda command, **options: seen.update(options["env"]))
        check_gpu_constraints.resolve(tmp_path / "report.json")
        assert seen["PIP_CONFIG_FILE"] == "/dev/null"
        assert "PIP_FIND_LINKS" not in seen and "PIP_CONSTRAINT" not in seen
