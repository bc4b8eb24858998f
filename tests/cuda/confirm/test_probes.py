"""Probes: their kernels compile for every target that they claim, and the emulator executes them as its functions say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from impls.arch import find
from impls.cuda.confirm.execute import in_emulator
from impls.cuda.confirm.probe import BLOCK
from impls.cuda.confirm.probes import PROBES
from impls.cuda.emulator.machine.observe import RULES
from tests.cuda.needs import needs_nvrtc

TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
WITHOUT_A_PROBE = {
    "integer division",  # by zero it is unspecified
    "bits",
    "mixed precision",
    "approximation f64",
    "mma 35-bit window, blocks of 16, ue8m0 4X",
}


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_inputs_are_the_same_each_time_and_whole_blocks(probe):
    first, again = probe.given, replace(probe).given
    assert first.dtype == np.uint32
    assert len(first) % BLOCK == 0
    assert (first == again).all()


def test_names_tell_probes_and_instructions_apart():
    names = [probe.name for probe in PROBES]
    assert len(set(names)) == len(names)
    for target in TARGETS:
        for probe in PROBES:
            instructions = [each.name for each in probe.instructions if each.on(find(target))]
            assert len(set(instructions)) == len(instructions)


def test_rules_are_those_of_the_emulator_and_each_has_a_probe():
    tested = {rule for probe in PROBES for each in probe.instructions for rule in each.rules}
    assert tested <= RULES.keys()
    assert RULES.keys() - tested <= WITHOUT_A_PROBE


@needs_nvrtc
@pytest.mark.parametrize("probe", [each for each in PROBES if not each.name.startswith("mma e")], ids=lambda probe: probe.name)
def test_the_emulator_executes_a_probe_as_its_functions_say(probe):
    program = probe.on(find("sm_120a"))
    assert program is not None
    inputs = probe.given[: 4 * BLOCK]
    observed, expected = in_emulator(program, inputs), program.predict(inputs)
    for each, columns in zip(program.instructions, program.columns(), strict=True):
        np.testing.assert_array_equal(observed[:, columns], expected[:, columns], err_msg=each.name)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_target(target):
    for probe in PROBES:
        program = probe.on(find(target))
        if program is not None:
            inputs = probe.given
            assert (in_emulator(program, inputs) == program.predict(inputs)).all(), probe.name
