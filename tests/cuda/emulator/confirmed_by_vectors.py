"""Which rules the recorded vectors confirm: `python -m tests.cuda.emulator.confirmed_by_vectors` writes them to silicon.json.

vectors/ARCH.npz is what `nvfp4bench confirm --record` leaves of all instructions, on a few threads. vectors/ARCH.corners.json
is written by hand from `confirm --json` where that says that other threads contradicted the emulator: of each instruction the
first such words, {probe: {instruction: "inputs -> outputs"}}. They stay when the emulator is mended, as a test of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from impls.arch import Arch, find
from impls.cuda.confirm.compare import Finding, by_rule, findings
from impls.cuda.confirm.execute import in_emulator
from impls.cuda.confirm.probe import BLOCK, Words
from impls.cuda.confirm.vectors import program_of, read, write_rules
from impls.cuda.emulator.rules import SILICON

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
    return findings(program, inputs, observed, expected)


def _words(text: str) -> Words:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


def confirmed_by_vectors() -> dict[str, set[str]]:
    """{rule: the GPUs whose vectors all agree with it}."""
    rules: dict[str, set[str]] = {}
    for gpu, found in map(replayed, FILES):
        for rule, verdict in by_rule(found).items():
            if verdict == "confirmed":
                rules.setdefault(rule, set()).add(gpu)
    return rules


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    rules = confirmed_by_vectors()
    write_rules(SILICON, rules)
    print(f"{SILICON}: {len(rules)} rules, {sum(map(len, rules.values()))} confirmations")


if __name__ == "__main__":
    main()
