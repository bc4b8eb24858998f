"""Recorded vectors of GPUs, replayed by the emulator.

vectors/GPU.npz is what `nvfp4bench confirm --record` leaves of all instructions, on a few threads. vectors/GPU.corners.json
is written by hand from `confirm --json` where that says that other threads contradicted the emulator: of each instruction the
first such words, {probe: {instruction: "inputs -> outputs"}}. They stay when the emulator is mended, as a test of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from impls.arch import Arch, find
from impls.cuda.confirm.compare import Finding, findings
from impls.cuda.confirm.execute import in_emulator
from impls.cuda.confirm.probe import BLOCK, Words
from impls.cuda.confirm.vectors import program_of, read

FILES = tuple(sorted(Path(__file__).with_name("vectors").glob("*.npz")))


def replayed(path: Path) -> tuple[str, list[Finding]]:
    """(the GPU, what becomes of each instruction that it has vectors of, and once more of each that it has corners of)."""
    gpu, recorded = read(path)
    found: list[Finding] = []
    for each in recorded:
        found += findings(each.program, each.inputs, each.outputs, in_emulator(each.program, each.inputs))
    corners = path.with_suffix(".corners.json")
    if corners.exists():
        document = json.loads(corners.read_text())
        assert document["gpu"] == gpu
        for probe, words in document["probes"].items():
            found += _of_corners(probe, words, find(document["arch"]))
    return gpu, found


def _of_corners(probe: str, words: Mapping[str, str], arch: Arch) -> list[Finding]:
    """Each instruction on words of its own: on the thread of its number, where it gave them; elsewhere nothing is known."""
    program = program_of(probe, list(words), arch)
    assert len(words) <= BLOCK
    pairs = [[_words(half) for half in text.split("->")] for text in words.values()]
    inputs = np.resize(np.array([given for given, _ in pairs], np.uint32), (BLOCK, len(pairs[0][0])))
    expected = in_emulator(program, inputs)
    observed = expected.copy()
    for thread, (columns, (_, gave)) in enumerate(zip(program.columns(), pairs, strict=True)):
        observed[thread, columns] = gave
    return [replace(finding, threads=1) for finding in findings(program, inputs, observed, expected)]


def _words(text: str) -> Words:
    return np.array([int(word, 16) for word in text.split()], np.uint32)
