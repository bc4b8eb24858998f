"""What GPUs gave, replayed: the emulator gives the same bits, or stays within the documented error."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pytest

from impls.arch import find
from impls.cuda.confirm.compare import Finding, by_rule
from impls.cuda.confirm.probe import BLOCK
from impls.cuda.confirm.probes import PROBES
from impls.cuda.confirm.vectors import write
from impls.cuda.emulator.machine.observe import RULES
from impls.cuda.emulator.rules import confirmed, family
from tests.cuda.emulator.replay import FILES, replayed
from tests.cuda.needs import needs_nvrtc

MOST_BYTES = 1_000_000
CONTRADICTIONS: dict[str, set[str]] = {}
"""{GPU: instructions of which it gave other bits}: what is known to be wrong in the emulator, and not mended yet."""


def differing(found: Iterable[Finding]) -> set[str]:
    return {each.instruction for each in found if each.differing}


def agreeing(replays: Iterable[tuple[str, list[Finding]]]) -> dict[str, set[str]]:
    """{rule: the GPUs whose vectors all agree with it}."""
    rules: dict[str, set[str]] = {}
    for gpu, found in replays:
        for rule, verdict in by_rule(found).items():
            if verdict == "confirmed":
                rules.setdefault(rule, set()).add(gpu)
    return rules


@pytest.fixture(scope="module")
def replays():
    assert FILES
    return [replayed(path) for path in FILES]


@needs_nvrtc
def test_vectors_of_gpus(replays):
    for gpu, found in replays:
        assert differing(found) == CONTRADICTIONS.get(gpu, set())


@needs_nvrtc
def test_a_rule_is_silicon_where_vectors_of_that_gpu_agree_and_nowhere_else(replays):
    """Where the emulator was mended, `nvfp4bench confirm --record` on that GPU writes silicon.json anew."""
    assert confirmed().keys() <= RULES.keys()
    assert {rule: set(gpus) for rule, gpus in confirmed().items()} == agreeing(replays)


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
    agreed = agreeing([(read_from, found)])
    assert agreed.keys().isdisjoint({*changed.rules} if bit else {"shfl"})
    assert bit or agreed.keys() >= {*changed.rules}


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
