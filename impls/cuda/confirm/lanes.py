"""Probes of what lanes tell each other: shuffles, votes, matches, reductions, elections and an mbarrier.

What they should give is written here once more, a warp at a time, from the PTX ISA 9.1 (9.7.9.6, 9.7.13, 9.7.14).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import product

import numpy as np

from impls.cuda.confirm.probe import WARP, Instruction, Probe, Words, instruction
from impls.cuda.confirm.scalar import BLACKWELL, HOPPER

WARPS = 64
PerWarp = Callable[[Words], object]
"""Words [32, inputs] of one warp to words [32] or [32, outputs]."""
CLAMPS = (0x1F, 0x0, 0x1C1F, 0x1C03, 0x181F, 0x1807, 0x1000, 0x100F)
"""Clamp in bits 0 to 4, mask of the segment in bits 8 to 12."""
EVERYONE = 0xFFFF_FFFF


def _each_warp(one: PerWarp, outputs: int) -> Callable[[Words], Words]:
    def predict(inputs: Words) -> Words:
        warps = inputs.reshape(-1, WARP, inputs.shape[1])
        return np.array([one(warp) for warp in warps], np.uint32).reshape(-1, outputs)

    return predict


def _shuffle(mode: str, clamp: int) -> Instruction:
    """By the amount in i1 of each lane."""
    name = f"shfl.sync.{mode}.b32"

    def one(warp: Words) -> list[list[int]]:
        found = []
        for lane in range(WARP):
            by, most, segment = int(warp[lane, 1]) & 31, clamp & 31, clamp >> 8
            first = lane & segment
            last, indexed = first | (most & ~segment), first | (by & ~segment)
            to, holds = {
                "up": (lane - by, lane - by >= last),
                "down": (lane + by, lane + by <= last),
                "bfly": (lane ^ by, lane ^ by <= last),
                "idx": (indexed, indexed <= last),
            }[mode]
            found.append([int(warp[to if holds else lane, 0]), int(holds)])
        return found

    text = f""".reg .pred inside;
    {name} o0|inside, i0, i1, {clamp}, -1;
    selp.b32 o1, 1, 0, inside;"""
    return instruction(f"{name} clamp {clamp:#x}", text, 2, _each_warp(one, 2), ("shfl",))


def _vote(mode: str) -> Instruction:
    """Of i2 being odd; i2 is the same in all lanes of some warps."""
    name = f"vote.sync.{mode}.{'b32' if mode == 'ballot' else 'pred'}"

    def one(warp: Words) -> list[int]:
        odd = [int(word) & 1 for word in warp[:, 2]]
        answers = {
            "any": any(odd),
            "all": all(odd),
            "uni": len(set(odd)) == 1,
            "ballot": sum(bit << lane for lane, bit in enumerate(odd)),
        }
        return [int(answers[mode])] * WARP

    result = "o0" if mode == "ballot" else "answer"
    text = f""".reg .b32 bit;
    .reg .pred odd, answer;
    and.b32 bit, i2, 1;
    setp.eq.u32 odd, bit, 1;
    {name} {result}, odd, -1;
    {"" if mode == "ballot" else "selp.b32 o0, 1, 0, answer;"}"""
    return instruction(name, text, 1, _each_warp(one, 1), ("vote",))


def _match(mode: str) -> Instruction:
    name = f"match.{mode}.sync.b32"

    def one(warp: Words) -> list[list[int]]:
        values = warp[:, 2].tolist()
        same = [sum(1 << lane for lane, value in enumerate(values) if value == mine) for mine in values]
        if mode == "any":
            return [[each, 0] for each in same]
        every = len(set(values)) == 1
        return [[EVERYONE if every else 0, int(every)]] * WARP

    text = f"{name} o0, i2, -1;\nmov.b32 o1, 0;"
    if mode == "all":
        text = f".reg .pred every;\n{name} o0|every, i2, -1;\nselp.b32 o1, 1, 0, every;"
    return instruction(name, text, 2, _each_warp(one, 2), ("match",))


_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b,
    "add.s32": lambda a, b: a + b,
    "min.u32": min,
    "max.u32": max,
    "min.s32": min,
    "max.s32": max,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
}


def _reduce(what: str, *, by_some: bool) -> Instruction:
    """Over all lanes, or over those whose i1 is odd, of warps that have one."""
    name = f"redux.sync.{what}"

    def one(warp: Words) -> list[int]:
        values = (warp[:, 0].astype(np.int32) if what.endswith("s32") else warp[:, 0]).tolist()
        member = [not by_some or int(word) & 1 == 1 for word in warp[:, 1]]
        if not any(member):
            return [0] * WARP
        found = reduce(_INTEGERS[what], [value for value, there in zip(values, member, strict=True) if there]) & EVERYONE
        return [found if there else 0 for there in member]

    if not by_some:
        return instruction(name, f"{name} o0, i0, -1;", 1, _each_warp(one, 1), ("redux",))
    text = f""".reg .b32 bit, members;
    .reg .pred odd;
    and.b32 bit, i1, 1;
    setp.eq.u32 odd, bit, 1;
    vote.sync.ballot.b32 members, odd, -1;
    mov.b32 o0, 0;
    @odd {name} o0, i0, members;"""
    return instruction(f"{name} of some lanes", text, 1, _each_warp(one, 1), ("redux",))


def _reduce_floats(what: str) -> Instruction:
    name = f"redux.sync.{what}.f32"
    operator, *options = what.split(".")

    def one(warp: Words) -> list[int]:
        values = warp[:, 3].copy().view(np.float32)
        values = np.abs(values) if "abs" in options else values
        numbers = values[~np.isnan(values)]
        if not numbers.size or ("NaN" in options and numbers.size < WARP):
            return [0x7FFFFFFF] * WARP
        found = numbers.max() if operator == "max" else numbers.min()
        return [int(found.view(np.uint32))] * WARP

    return instruction(name, f"{name} o0, i3, -1;", 1, _each_warp(one, 1), ("redux f32",), since=BLACKWELL, before=(12, 0))


def _elect() -> Instruction:
    text = """.reg .pred leads;
    elect.sync o0|leads, -1;
    selp.b32 o1, 1, 0, leads;"""

    def one(warp: Words) -> list[list[int]]:
        return [[0, int(lane == 0)] for lane in range(WARP)]

    return instruction("elect.sync", text, 2, _each_warp(one, 2), ("elect",), since=HOPPER)


def _mbarrier() -> Instruction:
    """32 arrivals end phase 0, and 32 more phase 1; the parity of the phase that runs is not over."""
    text = """.reg .b32 lane;
    .reg .b64 state;
    .reg .pred first, over;
    mov.u32 lane, %%laneid;
    setp.eq.u32 first, lane, 0;
    bar.warp.sync -1;
    @first mbarrier.init.shared.b64 [%2], 32;
    bar.warp.sync -1;
    mbarrier.test_wait.parity.shared.b64 over, [%2], 0;
    selp.b32 o0, 1, 0, over;
    bar.warp.sync -1;
    mbarrier.arrive.shared.b64 state, [%2];
    bar.warp.sync -1;
    mbarrier.test_wait.shared.b64 over, [%2], state;
    selp.b32 o1, 1, 0, over;
    mbarrier.test_wait.parity.shared.b64 over, [%2], 0;
    selp.b32 o2, 1, 0, over;
    mbarrier.test_wait.parity.shared.b64 over, [%2], 1;
    selp.b32 o3, 1, 0, over;
    bar.warp.sync -1;
    mbarrier.arrive.shared.b64 state, [%2];
    bar.warp.sync -1;
    mbarrier.test_wait.parity.shared.b64 over, [%2], 1;
    selp.b32 o4, 1, 0, over;
    bar.warp.sync -1;
    @first mbarrier.inval.shared.b64 [%2];"""
    return instruction(
        "mbarrier", text, 5, lambda inputs: np.tile(np.array([0, 1, 1, 0, 1], np.uint32), (len(inputs), 1)), ("mbarrier",)
    )


def inputs(rng: np.random.Generator) -> Words:
    """i0 any bits, i1 small amounts, i2 few values, the same in all lanes of some warps, i3 floats with some NaNs."""
    shape = (WARPS, WARP)
    few = np.where(rng.integers(0, 3, (WARPS, 1)) == 0, rng.integers(0, 4, (WARPS, 1)), rng.integers(0, 4, shape))
    floats = rng.standard_normal(shape).astype(np.float32)
    floats[rng.integers(0, 4, WARPS) == 0, 5] = np.nan
    words = [rng.integers(0, 2**32, shape, np.uint64), rng.integers(0, 33, shape), few, floats.view(np.uint32)]
    return np.stack([word.astype(np.uint32).reshape(-1) for word in words], axis=1)


PROBES = (
    Probe(
        "lanes",
        inputs,
        (
            *(_shuffle(mode, clamp) for mode, clamp in product(("up", "down", "bfly", "idx"), CLAMPS)),
            *map(_vote, ("any", "all", "uni", "ballot")),
            *map(_match, ("any", "all")),
            *(_reduce(what, by_some=some) for what in _INTEGERS for some in (False, True)),
            *(_reduce_floats(what) for what in ("min", "max", "min.abs", "max.NaN")),
            _elect(),
            _mbarrier(),
        ),
    ),
)
