"""Recorded vectors: what a GPU gave for some of the inputs, small enough to be kept beside the tests that replay them.

A .npz holds for each probe its inputs and outputs, and the names of its instructions in the order of the outputs.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from impls.arch import Arch, find
from impls.cuda.confirm.probe import BLOCK, WARP, Probe, Program, Words
from impls.cuda.confirm.probes import PROBES
from impls.cuda.emulator.rules import confirmed, confirmed_in
from impls.files import one_at_a_time, replace_file

PROBE_BYTES = 48 * 1024
"""Of inputs and outputs, of each probe, before they are compressed."""
MOST_WARPS = 16
ABOUT = "about"


@dataclass(frozen=True, eq=False)
class Recorded:
    """A probe's vectors."""

    program: Program
    inputs: Words
    outputs: Words


class Outdated(ValueError):
    """Vectors are of a probe that is no more as it was."""


def some(inputs: Words, outputs: Words) -> slice:
    """The threads that are recorded: whole blocks, few if they have many outputs."""
    warp_bytes = 4 * WARP * (inputs.shape[1] + outputs.shape[1])
    blocks = min(MOST_WARPS, PROBE_BYTES // warp_bytes) * WARP // BLOCK
    return slice(0, max(blocks, 1) * BLOCK)


def write(path: Path, gpu: str, arch: Arch, results: Mapping[Program, tuple[Words, Words]]) -> None:
    """Keep some of the inputs and outputs of each program. Raises OSError where they cannot be written."""
    probes = {program.probe.name: [each.name for each in program.instructions] for program in results}
    arrays: dict[str, np.ndarray] = {}
    for program, (inputs, outputs) in results.items():
        name = program.probe.name
        threads = some(inputs, outputs)
        arrays[f"{name}: inputs"], arrays[f"{name}: outputs"] = inputs[threads], outputs[threads]
    arrays[ABOUT] = np.frombuffer(json.dumps({"gpu": gpu, "arch": arch.name, "probes": probes}).encode(), np.uint8)
    made = io.BytesIO()
    np.savez_compressed(made, **arrays)  # type: ignore[arg-type]
    replace_file(path, made.getvalue())


def read(path: Path) -> tuple[str, list[Recorded]]:
    """(the GPU, its vectors). Raises Outdated if they are of an instruction that no probe has any longer."""
    with np.load(path) as arrays:
        about = json.loads(bytes(arrays[ABOUT]))
        arch = find(about["arch"])
        recorded = [
            Recorded(program_of(name, instructions, arch), arrays[f"{name}: inputs"], arrays[f"{name}: outputs"])
            for name, instructions in about["probes"].items()
        ]
    return about["gpu"], recorded


def file_name(gpu: str) -> str:
    """Of its vectors, e.g. "nvidia-h200-sm_90a.npz" of "NVIDIA H200 (sm_90a)": GPUs of one architecture have their own."""
    return "-".join(re.findall(r"\w+", gpu.lower())) + ".npz"


def write_confirmed(path: Path, gpu: str, rules: Mapping[str, str]) -> None:
    """What the emulator's silicon.json has to say when this GPU's verdicts are added to it, or to what lies at `path` already.

    Raises OSError where it cannot be written, ValueError where what lies there is no silicon.json.
    """
    with one_at_a_time(path):
        before = confirmed_in(path) if path.exists() else confirmed()
        known = {rule: set(gpus) - {gpu} for rule, gpus in before.items()}
        for rule, verdict in rules.items():
            if verdict == "confirmed":
                known.setdefault(rule, set()).add(gpu)
        text = {rule: sorted(gpus) for rule, gpus in sorted(known.items()) if gpus}
        replace_file(path, (json.dumps(text, indent=2) + "\n").encode())


def program_of(name: str, instructions: list[str], arch: Arch) -> Program:
    """These instructions of a probe. Raises Outdated."""
    probe: Probe | None = next((each for each in PROBES if each.name == name), None)
    on_arch = {each.name: each for each in probe.instructions if each.on(arch)} if probe else {}
    missing = [each for each in instructions if each not in on_arch]
    if probe is None or missing:
        raise Outdated(f"the probe {name!r} has no {missing[0] if probe else 'instructions'} any more; record it anew.")
    return Program(probe, arch, tuple(on_arch[each] for each in instructions))
