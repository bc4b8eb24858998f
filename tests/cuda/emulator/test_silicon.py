"""What GPUs gave, replayed: the emulator gives the same bits, or stays within the documented error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest

from impls.arch import find
from impls.cuda.confirm.compare import Finding, by_rule, findings
from impls.cuda.confirm.execute import in_emulator
from impls.cuda.confirm.probe import BLOCK
from impls.cuda.confirm.probes import PROBES
from impls.cuda.confirm.vectors import read, write
from impls.cuda.emulator.machine.observe import RULES
from impls.cuda.emulator.rules import confirmed, family
from tests.cuda.needs import needs_nvrtc

FILES = sorted(Path(__file__).with_name("vectors").glob("*.npz"))
MOST_BYTES = 1_000_000
CONTRADICTIONS: dict[str, set[str]] = {}
"""{GPU: instructions of which it gave other bits}: what is known to be wrong in the emulator, and not mended yet."""


def replayed(path: Path) -> tuple[str, list[Finding]]:
    """(the GPU, what becomes of each instruction that it has vectors of)."""
    gpu, recorded = read(path)
    found: list[Finding] = []
    for each in recorded:
        found += findings(each.program, each.inputs, each.outputs, in_emulator(each.program, each.inputs))
    return gpu, found


def differing(found: Iterable[Finding]) -> set[str]:
    return {each.instruction for each in found if each.differing}


def unfounded(silicon: Mapping[str, tuple[str, ...]], replays: Iterable[tuple[str, list[Finding]]]) -> set[tuple[str, str]]:
    """(rule, GPU) that `silicon` says, where no vectors of the GPU follow the rule, or some contradict it."""
    verdicts = {gpu: by_rule(found) for gpu, found in replays}
    said = {(rule, gpu) for rule, gpus in silicon.items() for gpu in gpus}
    return {(rule, gpu) for rule, gpu in said if verdicts.get(gpu, {}).get(rule) != "confirmed"}


@pytest.mark.skipif(not FILES, reason="no vectors are recorded yet; nvfp4bench confirm --record does on a GPU")
@needs_nvrtc
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_vectors_of_a_gpu(path):
    gpu, found = replayed(path)
    assert differing(found) == CONTRADICTIONS.get(gpu, set())


@needs_nvrtc
def test_a_rule_is_silicon_only_where_vectors_of_that_gpu_agree():
    assert confirmed().keys() <= RULES.keys()
    assert not unfounded(confirmed(), map(replayed, FILES))


def test_every_gpu_that_confirms_is_of_a_known_family():
    assert all(family(gpu) for gpus in confirmed().values() for gpu in gpus)


def test_vectors_are_small():
    assert sum(path.stat().st_size for path in FILES) < MOST_BYTES


@needs_nvrtc
@pytest.mark.parametrize("bit", [0, 1])
def test_a_bit_that_differs_is_found(tmp_path, bit):
    """Vectors as a GPU would leave them, one of them with a bit that is not the emulator's."""
    gpu, arch = "Some GPU (sm_90a)", find("sm_90a")
    program = next(probe for probe in PROBES if probe.name == "half").on(arch)
    assert program is not None
    inputs = program.probe.given[:BLOCK]
    outputs = program.predict(inputs)
    changed = next(each for each in program.instructions if not each.approximates)
    outputs[3, program.columns()[program.instructions.index(changed)].start] ^= np.uint32(bit)
    path = tmp_path / "sm_90a.npz"
    write(path, gpu, arch, {program: (inputs, outputs)})
    read_from, found = replayed(path)
    assert read_from == gpu
    assert differing(found) == ({changed.name} if bit else set())
    silicon = dict.fromkeys(changed.rules, (gpu,)) | {"shfl": (gpu,)}
    wrong = {(rule, gpu) for rule in changed.rules} if bit else set()
    assert unfounded(silicon, [(read_from, found)]) == wrong | {("shfl", gpu)}
