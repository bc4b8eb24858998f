"""What GPUs gave, replayed: the emulator gives the same bits, or stays within the documented error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from impls.arch import find
from impls.cuda.confirm.compare import Finding, by_rule
from impls.cuda.confirm.probe import BLOCK
from impls.cuda.confirm.probes import PROBES
from impls.cuda.confirm.vectors import write
from impls.cuda.emulator.machine.observe import RULES
from impls.cuda.emulator.rules import confirmed, family
from tests.cuda.emulator.confirmed_by_vectors import FILES, confirmed_by_vectors, replayed
from tests.cuda.needs import needs_nvrtc

MOST_BYTES = 1_000_000
CONTRADICTIONS: dict[str, set[str]] = {}
"""{GPU: instructions of which it gave other bits}: what is known to be wrong in the emulator, and not mended yet."""


def differing(found: Iterable[Finding]) -> set[str]:
    return {each.instruction for each in found if each.differing}


def unfounded(silicon: Mapping[str, tuple[str, ...]], replays: Iterable[tuple[str, list[Finding]]]) -> set[tuple[str, str]]:
    """(rule, GPU) that `silicon` says, where no vectors of the GPU follow the rule, or some contradict it."""
    verdicts = {gpu: by_rule(found) for gpu, found in replays}
    said = {(rule, gpu) for rule, gpus in silicon.items() for gpu in gpus}
    return {(rule, gpu) for rule, gpu in said if verdicts.get(gpu, {}).get(rule) != "confirmed"}


@needs_nvrtc
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_vectors_of_a_gpu(path):
    gpu, found = replayed(path)
    assert differing(found) == CONTRADICTIONS.get(gpu, set())


@needs_nvrtc
def test_a_rule_is_silicon_only_where_vectors_of_that_gpu_agree():
    assert confirmed().keys() <= RULES.keys()
    assert not unfounded(confirmed(), map(replayed, FILES))


@needs_nvrtc
def test_what_vectors_confirm_is_silicon():
    """Else `python -m tests.cuda.emulator.confirmed_by_vectors` was forgotten."""
    assert FILES
    assert {rule: set(gpus) for rule, gpus in confirmed().items()} == confirmed_by_vectors()


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


@needs_nvrtc
@pytest.mark.parametrize("outputs", ["7fffffff", "7fc00001"])
def test_a_corner_that_differs_is_found(tmp_path, outputs):
    """Of one thread, which the vectors have not."""
    gpu, arch = "Some GPU (sm_90a)", find("sm_90a")
    program = next(probe for probe in PROBES if probe.name == "narrow").on(arch)
    assert program is not None
    inputs = program.probe.given[:BLOCK]
    write(tmp_path / "sm_90a.npz", gpu, arch, {program: (inputs, program.predict(inputs))})
    words = {"add.rn.f32": "3f800000 3f800000 00000000 -> 40000000", "abs.f32": f"ffc00001 47800000 be000000 -> {outputs}"}
    document = {"gpu": gpu, "arch": "sm_90a", "probes": {"single": words}}
    (tmp_path / "sm_90a.corners.json").write_text(json.dumps(document))
    _, found = replayed(tmp_path / "sm_90a.npz")
    assert differing(found) == (set() if outputs == "7fffffff" else {"abs.f32"})
    assert {each.instruction for each in found} >= words.keys()
