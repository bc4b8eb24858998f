"""What GPUs gave, replayed: the emulator gives the same bits, or stays within the documented error."""

from __future__ import annotations

from pathlib import Path

import pytest

from impls.cuda.confirm.compare import findings
from impls.cuda.confirm.execute import in_emulator
from impls.cuda.confirm.vectors import read
from impls.cuda.emulator.machine.observe import RULES
from impls.cuda.emulator.rules import confirmed
from tests.cuda.needs import needs_nvrtc

FILES = sorted(Path(__file__).with_name("vectors").glob("*.npz"))
MOST_BYTES = 1_000_000


@pytest.mark.skipif(not FILES, reason="no vectors are recorded yet; nvfp4bench confirm --record does on a GPU")
@needs_nvrtc
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_vectors_of_a_gpu(path):
    _, recorded = read(path)
    wrong = []
    for each in recorded:
        emulated = in_emulator(each.program, each.inputs)
        found = findings(each.program, each.inputs, each.outputs, emulated)
        rules = confirmed()
        wrong += [one for one in found if one.differing and all(rule in rules for rule in one.rules)]
    assert not wrong


def test_vectors_are_small():
    assert sum(path.stat().st_size for path in FILES) < MOST_BYTES


def test_a_rule_is_silicon_only_with_vectors_of_that_gpu():
    tested: dict[str, set[str]] = {}
    for path in FILES:
        gpu, recorded = read(path)
        for each in recorded:
            for instruction in each.program.instructions:
                for rule in instruction.rules:
                    tested.setdefault(rule, set()).add(gpu)
    for rule, gpus in confirmed().items():
        assert rule in RULES
        assert set(gpus) <= tested.get(rule, set())


def test_a_confirmed_rule_has_the_status():
    for name, rule in RULES.items():
        assert (rule.status == "silicon") == (name in confirmed())
