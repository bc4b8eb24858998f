"""The reasons why Triton cannot be used, and that finding them does not import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from impls.arch import ARCHES, CPU, find
from impls.triton import availability

GPU = find("sm_90a")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def triton_is(monkeypatch):
    def install(version, *, interpreting=False):
        monkeypatch.setattr(availability, "installed_version", lambda: version)
        monkeypatch.setattr(availability, "interpreting", lambda: interpreting)

    return install


def test_no_triton(triton_is):
    triton_is(None)
    assert "triton is not installed" in availability.why_not(GPU)


def test_triton_too_old(triton_is):
    triton_is((3, 5))
    assert availability.why_not(GPU) == "triton 3.5 is too old; install triton 3.6 or newer."


def test_an_architecture_that_the_installed_triton_does_not_know(triton_is):
    triton_is((3, 6))
    refused = {arch.name for arch in ARCHES.values() if availability.why_not(arch)}
    assert refused == {"sm_110a"}
    assert "triton 3.6 cannot compile for sm_110a" in availability.why_not(find("sm_110a"))
    triton_is((3, 7))
    assert availability.why_not(find("sm_110a")) is None


def test_a_process_interprets_or_compiles_never_both(triton_is):
    triton_is((3, 9), interpreting=True)
    assert availability.why_not(CPU) is None
    assert "child process without TRITON_INTERPRET" in availability.why_not(GPU)
    triton_is((3, 9), interpreting=False)
    assert availability.why_not(GPU) is None
    assert "child process with TRITON_INTERPRET=1" in availability.why_not(CPU)


@pytest.mark.parametrize(("value", "interprets"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_the_prediction_is_what_triton_does(value, interprets):
    """Before triton is imported the environment is read; afterwards triton is asked. Both must say the same."""
    program = (
        "import sys; from impls.triton.availability import interpreting, installed_version\n"
        "version, before = installed_version(), interpreting(); assert 'triton' not in sys.modules\n"
        "import triton; assert triton.__version__.startswith('%d.%d.' % version)\n"
        "print(before, interpreting())"
    )
    environment = {"TRITON_INTERPRET": value, "PATH": "/usr/bin"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(interprets)] * 2
