"""Kernels of this project with one synchronising instruction left out: the emulator tells each, or a table here says why none
is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from impls.a4q import planner
from impls.arch import find
from impls.contract import Launch, Problem
from impls.cuda.emulation.launches import run_emulated
from impls.cuda.emulator.emulate import SCHEDULES, parsed
from impls.cuda.emulator.errors import EmulationError, Unknown
from impls.cuda.emulator.ptx.syntax import Instruction
from impls.cuda.source import NAMED_ROOT
from impls.nvfp4 import quantize
from impls.registry import implementation
from tests.cuda.needs import needs_nvrtc

ROOT = Path(__file__).parents[3]
SYNCHRONISES = re.compile(
    r"bar\.(sync|warp|arrive)|barrier|cp\.async\.(wait|commit)|fence|membar|mbarrier\.(arrive|test_wait|try_wait)|griddepcontrol\.wait"
)
REDUNDANT = {
    "queries and `work`": "each step begins with a barrier, before the first use of either",
    "fence.proxy.async.shared::cta;": "shows initialised mbarriers to bulk copies: in the emulator all see them at once",
}
"""What stands in the source line of an instruction that the emulator does not miss, and why."""


@dataclass(frozen=True)
class Case:
    """Kernels, and lengths of the cache that bring each of their instructions to bear, in one launch or another."""

    arch: str
    head_dim: int
    q_len: int
    kv_lens: tuple[int, ...]
    sms: int | None = None
    """Plan for a GPU of so many, whose blocks have more to do."""

    def launches(self, kv_len: int) -> Sequence[Launch]:
        problem = Problem(1, 2, 1, self.q_len, kv_len, self.head_dim, self.head_dim, causal=self.q_len > 1)
        generator = torch.Generator().manual_seed(0)
        q, k, v = (
            torch.randn(1, heads, length, self.head_dim, generator=generator)
            for heads, length in ((2, self.q_len), (1, kv_len), (1, kv_len))
        )
        plan = implementation("a4q").plan(problem, find(self.arch))
        cache = plan.pack(quantize(k), quantize(v, block_axis=problem.v_block_axis))
        return plan.bind(q.bfloat16(), cache).launches


CASES = {
    "native decode": Case("sm_120a", 128, 1, (128, 384, 1024)),
    "native prefill": Case("sm_120a", 128, 64, (512,)),
    "portable decode": Case("sm_80", 128, 1, (256,)),
    "portable prefill": Case("sm_80", 64, 64, (128,)),
    "staged decode": Case("sm_90a", 64, 1, (3072,), sms=1),
}


def synchronising(launch: Launch) -> Iterator[Instruction]:
    for instruction in parsed(launch.ptx).functions[launch.entry].body:
        if SYNCHRONISES.match(instruction.name):
            yield instruction


def without(launch: Launch, instruction: Instruction) -> Launch:
    """The launch of the same kernel, in which the instruction is not; a wait that asks has its answer at once."""
    lines = launch.ptx.splitlines()
    answer = (
        f"setp.eq.u32 {instruction.operands[0]}, 0, 0;"
        if "wait" in instruction.modifiers[0] and instruction.opcode == "mbarrier"
        else ""
    )
    before = lines[instruction.line - 1]
    lines[instruction.line - 1] = re.sub(rf"(?:@!?%\w+\s+)?\b{re.escape(instruction.name)}\b[^;]*;", answer, before)
    assert lines[instruction.line - 1] != before
    return replace(launch, ptx="\n".join(lines))


def found(case: Case, launches: Sequence[Launch], changed: int, mutant: Launch) -> bool:
    """Whether the emulator has an objection to the launches of which number `changed` is the mutant."""
    mutants = [mutant if number == changed else launch for number, launch in enumerate(launches)]
    for schedule in SCHEDULES:
        try:
            run_emulated(mutants, find(case.arch), schedules=(schedule,))
        except Unknown:
            raise
        except EmulationError:
            return True
    return False


def reason(instruction: Instruction) -> str | None:
    """Why the emulator need not miss it."""
    assert instruction.source is not None
    path = ROOT / instruction.source.file.removeprefix(NAMED_ROOT)
    line = path.read_text().splitlines()[instruction.source.line - 1]
    return next((why for part, why in REDUNDANT.items() if part in line), None)


def check_case(case: Case, kv_lens: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns how many instructions were left out in turn."""
    if case.sms is not None:
        monkeypatch.setattr(planner, "SMS", case.sms)
    missed: dict[tuple[str, int], Instruction] = {}
    told: set[tuple[str, int]] = set()
    for kv_len in kv_lens:
        launches = case.launches(kv_len)
        run_emulated(launches, find(case.arch))
        for number, launch in enumerate(launches):
            for instruction in synchronising(launch):
                key = launch.entry, instruction.line
                if key in told or reason(instruction):
                    continue
                if found(case, launches, number, without(launch, instruction)):
                    told.add(key)
                else:
                    missed[key] = instruction
    still_missed = [str(missed[key]) + f" in line {key[1]} of {key[0]}" for key in missed.keys() - told]
    assert not still_missed, still_missed
    return len(told)


@needs_nvrtc
def test_missing_synchronisation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the joining of splits and a decode kernel without tensor cores for NVFP4."""
    assert check_case(Case("sm_80", 64, 1, (256,)), (256,), monkeypatch) >= 4


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_missing_synchronisation_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    assert check_case(case, case.kv_lens, monkeypatch) >= 4


@needs_nvrtc
def test_what_is_redundant_really_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The barrier that the table names: without it the results are the same under every schedule, which compares bits."""
    case = CASES["native decode"]
    launches = case.launches(384)
    (attend, *_) = launches
    named = [each for each in synchronising(attend) if reason(each)]
    assert len(named) == 1
    assert not found(case, launches, 0, without(attend, named[0]))
