"""Random small programs: the checker finds the first race exactly where the transitive closure of causality order has it.

The model here is the text of the PTX memory model, one event a node and one relation a line, at warp granularity:
program order and barriers and synchronising patterns make base causality order; an observation before it counts as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impls.cuda.emulator.checks import grid_reads
from impls.cuda.emulator.checks.happens_before import HappensBefore
from impls.cuda.emulator.checks.reports import RaceFound
from impls.cuda.emulator.checks.shadow import Region


@pytest.fixture(params=["as it is", "compacted at each read"], autouse=True, scope="module")
def log_of_reads(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "as it is":
            patch.setattr(grid_reads, "AT_ONCE", 1)
            patch.setattr(grid_reads, "SHORTEST", 0)
        yield


BLOCKS, WARPS = 2, 2
ALL = BLOCKS * WARPS
REACH = {"cta": 1, "gpu": BLOCKS}


@dataclass(frozen=True)
class Step:
    """One instruction of one warp, or a barrier of a block."""

    kind: str
    """read, write, atomic, red, fence, fence.sc, barrier, arrive, complete or wait"""
    warp: int
    place: int = 0
    """0, 1: words of the block's shared memory; 2, 3: of global memory. Or which mbarrier."""
    scope: str | None = None
    order: str = "relaxed"

    @property
    def warps(self) -> list[int]:
        if self.kind == "complete":
            return []
        if self.kind != "barrier":
            return [self.warp]
        return [warp for warp in range(ALL) if warp // WARPS == self.warp // WARPS]

    @property
    def memory(self) -> tuple[int, int] | None:
        if self.kind not in ("read", "write", "atomic", "red"):
            return None
        return (self.place, self.warp // WARPS if self.place < 2 else -1)

    @property
    def reads(self) -> bool:
        return self.kind in ("read", "atomic", "red")

    @property
    def writes(self) -> bool:
        return self.kind in ("write", "atomic", "red")

    @property
    def acquires(self) -> bool:
        return self.order in ("acquire", "acq_rel")

    @property
    def releases(self) -> bool:
        return self.order in ("release", "acq_rel")


def include_each_other(first: Step, second: Step) -> bool:
    if first.scope is None or second.scope is None:
        return False
    reach = min(REACH[first.scope], REACH[second.scope])
    return first.warp // WARPS // reach == second.warp // WARPS // reach


def observed_by(program: list[Step], reader: int) -> list[int]:
    """Strong writes whose value the strong read sees, itself or through atomics that replaced it."""
    seen = []
    for at in reversed(range(reader)):
        step = program[at]
        if step.memory == program[reader].memory and step.writes:
            if step.scope is None:
                break
            seen.append(at)
            if not step.reads:
                break
    return seen


def starts_release(program: list[Step], start: int, write: int) -> bool:
    step = program[start]
    return step.kind.startswith("fence") or (step.memory == program[write].memory and step.writes and step.releases)


def ends_acquire(program: list[Step], read: int, end: int) -> bool:
    step = program[end]
    return step.kind.startswith("fence") or (step.memory == program[read].memory and step.kind != "red" and step.acquires)


def first_race(program: list[Step]) -> int | None:
    """Index of the first step that races with an earlier one."""
    n = len(program)
    before = np.zeros((n, n), bool)
    for b in range(n):
        for a in range(b):
            before[a, b] |= bool(set(program[a].warps) & set(program[b].warps))
    strong_reads = [at for at, step in enumerate(program) if step.reads and step.scope]
    observations = [(write, read) for read in strong_reads for write in observed_by(program, read)]
    for write, read in observations:
        if not include_each_other(program[write], program[read]) or program[read].kind == "red":
            continue
        starts = [write] if program[write].releases else []
        starts += [at for at in range(write) if program[at].warp == program[write].warp and starts_release(program, at, write)]
        ends = [read] if program[read].acquires else []
        ends += [at for at in range(read + 1, n) if program[at].warp == program[read].warp and ends_acquire(program, read, at)]
        for start in starts:
            for end in ends:
                before[start, end] |= include_each_other(program[start], program[end])
    for wait in range(n):
        completed = [at for at in range(wait) if program[at].kind == "complete" and program[at].place == program[wait].place]
        for arrive in range(max(completed, default=0)):
            if (program[arrive].kind, program[wait].kind) == ("arrive", "wait") and program[arrive].place == program[
                wait
            ].place:
                before[arrive, wait] |= include_each_other(program[arrive], program[wait])
    fences = [at for at, step in enumerate(program) if step.kind == "fence.sc"]
    for _ in range(n):
        for middle in range(n):
            before |= before[:, middle, None] & before[None, middle, :]
        # The other order of two fences would have a write come after who read it.
        for first in fences:
            for second in fences:
                seen = any(
                    before[first, write] and before[read, second] and program[read].kind != "red"
                    for write, read in observations
                )
                before[first, second] |= seen and include_each_other(program[first], program[second])
    for write, read in observations:
        before[write] |= before[read]
    for b in range(n):
        for a in range(b):
            conflict = program[a].memory is not None and program[a].memory == program[b].memory
            conflict &= program[a].writes or program[b].writes
            if conflict and not before[a, b] and not include_each_other(program[a], program[b]):
                return b
    return None


def checked(program: list[Step]) -> int | None:
    checker = HappensBefore(BLOCKS, WARPS, {"shared": 4, "global": 4})
    checker.add_shared("shared", 64)
    checker.reside(0, BLOCKS)
    checker.add_global("global", 64)
    lane = np.arange(32)[None, :] == 0
    for at, step in enumerate(program):
        warps = np.array(step.warps)
        try:
            if step.kind == "barrier":
                checker.barrier(warps[None])
            elif step.kind == "complete":
                checker.complete_phase(step.place)
            elif step.kind in ("arrive", "wait"):
                hook = checker.release if step.kind == "arrive" else checker.acquire
                hook(warps, [step.place], step.scope)
            elif step.kind.startswith("fence"):
                checker.fence(warps, step.scope, sc=step.kind == "fence.sc")
            else:
                space, offset = ("shared", 4 * step.place) if step.place < 2 else ("global", 4 * step.place - 8)
                order = {} if step.scope is None else {"scope": step.scope, "order": step.order}
                if step.kind == "red":
                    order["returns"] = False
                hook = checker.atomic if step.kind == "red" else getattr(checker, step.kind)
                hook(warps, Region(space, np.full((1, 32), offset), 4, lane), at, **order)
        except RaceFound:
            return at
    return None


warps = st.integers(0, ALL - 1)
places = st.integers(0, 3)
scopes = st.sampled_from(list(REACH))
weak = st.builds(Step, st.sampled_from(["read", "write"]), warps, places)
strong_read = st.builds(Step, st.just("read"), warps, places, scopes, st.sampled_from(["relaxed", "acquire"]))
strong_write = st.builds(Step, st.just("write"), warps, places, scopes, st.sampled_from(["relaxed", "release"]))
atomic = st.builds(
    Step, st.just("atomic"), warps, places, scopes, st.sampled_from(["relaxed", "acquire", "release", "acq_rel"])
)
red = st.builds(Step, st.just("red"), warps, places, scopes, st.sampled_from(["relaxed", "release"]))
fence = st.builds(Step, st.sampled_from(["fence", "fence.sc"]), warps, st.just(0), scopes)
barrier = st.builds(Step, st.just("barrier"), warps)
mbarrier = st.builds(Step, st.sampled_from(["arrive", "complete", "wait"]), warps, st.integers(0, 1), scopes)


@settings(max_examples=400, deadline=None)
@given(st.lists(weak | barrier | mbarrier, max_size=24))
def test_barriers(program: list[Step]) -> None:
    assert checked(program) == first_race(program)


@settings(max_examples=600, deadline=None)
@given(st.lists(weak | strong_read | strong_write | atomic | red | fence | barrier | mbarrier, max_size=20))
def test_everything(program: list[Step]) -> None:
    assert checked(program) == first_race(program)


def quiet(program: list[Step]) -> list[Step]:
    """The program without its races, so that more of it is reached."""
    while (at := first_race(program)) is not None:
        program = program[:at] + program[at + 1 :]
    return program


@settings(max_examples=400, deadline=None)
@given(st.lists(weak | strong_read | strong_write | atomic | red | fence | barrier | mbarrier, max_size=40), weak)
def test_last_step_after_a_program_without_races(program: list[Step], last: Step) -> None:
    program = quiet(program)
    assert checked(program) is None
    assert checked([*program, last]) == first_race([*program, last])


@dataclass(frozen=True)
class Together:
    """One instruction of several warps in step, each with its own place in global memory; or a barrier of block 0."""

    kind: str
    places: dict[int, int]
    """Of each warp that takes part."""

    @property
    def steps(self) -> list[Step]:
        if self.kind == "barrier":
            return [Step("barrier", 0)]
        scope = "gpu" if self.kind == "atomic" else None
        return [Step(self.kind, warp, place, scope, "acq_rel" if scope else "relaxed") for warp, place in self.places.items()]


together = st.builds(
    Together,
    st.sampled_from(["read", "write", "atomic", "barrier"]),
    st.dictionaries(warps, st.integers(2, 4), min_size=1).map(lambda places: dict(sorted(places.items()))),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(together, max_size=12))
def test_warps_in_step(program: list[Together]) -> None:
    """One call for many warps finds what a call for each would."""
    instruction_of = [at for at, instruction in enumerate(program) for _ in instruction.steps]
    race = first_race([step for instruction in program for step in instruction.steps])
    expected = None if race is None else instruction_of[race]

    checker = HappensBefore(BLOCKS, WARPS, {"shared": 4, "global": 4})
    checker.add_global("global", 64)
    found = None
    for at, instruction in enumerate(program):
        who = np.array(list(instruction.places))
        offsets = np.broadcast_to(4 * np.array(list(instruction.places.values()))[:, None], (len(who), 32))
        active = np.broadcast_to(np.arange(32) == 0, offsets.shape)
        try:
            if instruction.kind == "barrier":
                checker.barrier(np.array([[0, 1]]))
            elif instruction.kind == "atomic":
                checker.atomic(who, Region("global", offsets, 4, active), at, "gpu", "acq_rel")
            else:
                getattr(checker, instruction.kind)(who, Region("global", offsets, 4, active), at)
        except RaceFound:
            found = at
            break
    assert found == expected
