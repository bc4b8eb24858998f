"""What lanes of a warp tell each other, against the ISA's pseudocode. PTX ISA 9.1, 9.7.9.6 (shfl), 9.7.13.8 on (vote, match,
redux, activemask, elect)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from impls.cuda.emulator.machine.execution import Deadlock
from tests.cuda.emulator.machine.kernels import fails, run, words

LANES = np.arange(32, dtype=np.uint32)
MASKS = (0xFFFFFFFF, 0x0000FFFF, 0xF0F0F0F0, 0x80000001, 0x00000010)
VALUES = np.random.default_rng(3).integers(0, 2**32, 32, dtype=np.uint32)


def members(mask: int) -> np.ndarray[Any, Any]:
    return (mask >> LANES & 1).astype(bool)


def among(mask: int, body: str, *arguments: Any, **launch: Any) -> None:
    """Run `body` in the lanes of `mask`; the others branch around it."""
    run(
        f"shr.b32 %r38, {mask}, %lane; and.b32 %r38, %r38, 1; setp.eq.u32 %p15, %r38, 0; @%p15 bra END; {body} END:",
        *arguments,
        **launch,
    )


def shuffled(mode: str, a: list[int], b: int, c: int, lane: int) -> tuple[int, bool]:
    """The ISA's pseudocode."""
    bval, cval, segmask = b & 31, c & 31, c >> 8 & 31
    max_lane = (lane & segmask) | (cval & ~segmask)
    min_lane = lane & segmask
    match mode:
        case "up":
            j = lane - bval
            p = j >= max_lane
        case "down":
            j = lane + bval
            p = j <= max_lane
        case "bfly":
            j = lane ^ bval
            p = j <= max_lane
        case _:
            j = min_lane | (bval & ~segmask)
            p = j <= max_lane
    return a[j if p else lane], p


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("by_register", [False, True])
def test_shuffle_is_the_isas_pseudocode(mode: str, by_register: bool) -> None:
    """Offsets in and out of range, whole warps and segments of 16, 8 and 2 lanes, clamps inside them."""
    cases = [(b, c) for b in (0, 1, 5, 16, 31, 33) for c in (0, 0x1F, 0x101F, 0x181F, 0x1E1F, 0x1807, 0x1800, 0x000B)]
    shuffles = []
    for number, (b, c) in enumerate(cases):
        operands = f"{b}, {c}" if not by_register else "%r3, %r4"
        shuffles.append(
            f"""mov.u32 %r3, {b}; mov.u32 %r4, {c}; shfl.sync.{mode}.b32 %r1|%p1, %r10, {operands}, -1; selp.u32 %r2, 1, 0, %p1;
            st.global.v2.u32 [%wide1+{256 * number}], {{%r1, %r2}};"""
        )
    out = np.zeros((len(cases), 32, 2), np.uint32)
    run("ld.global.u32 %r10, [%at0];" + "\n".join(shuffles), VALUES, out, options={"schedules": ("forward",)})
    for (b, c), found in zip(cases, out, strict=True):
        expected = [shuffled(mode, VALUES.tolist(), b, c, lane) for lane in range(32)]
        assert [(int(value), bool(p)) for value, p in found] == expected, (b, c)


def test_shuffle_with_another_source_in_each_lane() -> None:
    out = words()
    run("mul.lo.u32 %r1, %lane, 7; shfl.sync.idx.b32 %r2, %lane, %r1, 31, -1; st.global.u32 [%at0], %r2;", out)
    np.testing.assert_array_equal(out, LANES * 7 % 32)


@pytest.mark.parametrize("mask", MASKS)
def test_shuffle_among_some_lanes(mask: int) -> None:
    out = words()
    lowest = int(LANES[members(mask)][0])
    among(mask, f"shfl.sync.idx.b32 %r1, %lane, {lowest}, 31, {mask}; st.global.u32 [%at0], %r1;", out)
    np.testing.assert_array_equal(out, np.where(members(mask), lowest, 0xDEAD))


def test_shuffle_from_a_lane_that_takes_no_part() -> None:
    body = "setp.gt.u32 %p1, %lane, 15; @%p1 bra END; shfl.sync.down.b32 %r1, %lane, 1, 31, 0xFFFF; END:"
    fails("lane 15: reads lane 16, which takes no part", body)


def test_lane_outside_its_own_member_mask() -> None:
    for text in ("shfl.sync.idx.b32 %r1, %lane, 0, 31, 1;", "vote.sync.any.pred %p1, %p2, 1;", "bar.warp.sync 0x7FFFFFFF;"):
        lane = 31 if "7FFF" in text else 1
        fails(f"lane {lane}: this lane is not in its own member mask", f"setp.eq.u32 %p2, %t, 0; {text}")


def test_lanes_that_come_by_different_ways_meet_at_the_instruction() -> None:
    """The two halves get there in different loops; a warp's shuffle waits for both."""
    out = words()
    run(
        """setp.lt.u32 %p1, %lane, 16; mov.u32 %r1, 0; @%p1 bra SHORT; LONG: add.u32 %r1, %r1, 1;
            setp.lt.u32 %p2, %r1, 50; @%p2 bra LONG;
        SHORT: add.u32 %r1, %r1, 1; shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1; st.global.u32 [%at0], %r2;""",
        out,
    )
    np.testing.assert_array_equal(out, np.where(LANES < 16, 51, 1))


def test_same_shuffle_in_both_branches_is_two_instructions() -> None:
    """A deadlock here if each half waits for the other at another place. A GPU may let them pass: it counts who has executed
    an instruction like this."""
    body = """setp.lt.u32 %p1, %lane, 16; @%p1 bra OTHER; shfl.sync.bfly.b32 %r2, %lane, 16, 31, -1; bra END;
        OTHER: shfl.sync.bfly.b32 %r2, %lane, 16, 31, -1; END:"""
    fails("waits for lanes of its warp that never come", body, kind=Deadlock)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("true", [0, 0xFFFFFFFF, 0x8000F00F, 0x10])
def test_vote(mask: int, true: int) -> None:
    out = np.zeros((32, 4), np.uint32)
    among(
        mask,
        f"""shr.b32 %r1, {true}, %lane; and.b32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, 1; mad.wide.u32 %d1, %lane, 16, %a0;
        vote.sync.any.pred %p2, %p1, {mask}; vote.sync.all.pred %p3, %p1, {mask}; vote.sync.uni.pred %p4, %p1, {mask};
        vote.sync.ballot.b32 %r5, %p1, {mask}; selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 1, 0, %p3; selp.u32 %r4, 1, 0, %p4;
        st.global.v4.u32 [%d1], {{%r2, %r3, %r4, %r5}};""",
        out,
    )
    some, every = true & mask != 0, true & mask == mask
    expected = np.array([some, every, every or not some, true & mask], np.uint32)
    np.testing.assert_array_equal(out, np.where(members(mask)[:, None], expected, 0))


def test_vote_of_a_negated_predicate() -> None:
    out = words()
    run("setp.lt.u32 %p1, %lane, 8; vote.sync.ballot.b32 %r1, !%p1, -1; st.global.u32 [%at0], %r1;", out)
    np.testing.assert_array_equal(out, 0xFFFFFF00)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_match(mask: int, kind: str) -> None:
    """Values that differ in the upper half only, in every third lane, and values that are all the same."""
    out = np.zeros((32, 4), np.uint32)
    value = "%d2" if kind == "b64" else "%r1"
    among(
        mask,
        f"""rem.u32 %r1, %lane, 3; mov.b64 %d2, {{%lane, %r1}}; shr.u64 %d2, %d2, 32; shl.b64 %d2, %d2, 40;
            mad.wide.u32 %d1, %lane, 16, %a0;
        match.any.sync.{kind} %r2, {value}, {mask}; match.all.sync.{kind} %r3|%p1, {value}, {mask};
        sub.u32 %r1, %r1, %r1; sub.u64 %d2, %d2, %d2; match.all.sync.{kind} %r4|%p2, {value}, {mask};
        selp.u32 %r5, 1, 0, %p1; selp.u32 %r6, 2, 0, %p2; add.u32 %r5, %r5, %r6;
        st.global.v4.u32 [%d1], {{%r2, %r3, %r4, %r5}};""",
        out,
    )
    inside = members(mask)
    for lane in range(32):
        same = sum(1 << other for other in range(32) if inside[other] and other % 3 == lane % 3)
        alone = same == mask
        expected = [same, mask if alone else 0, mask, 3 if alone else 2] if inside[lane] else [0] * 4
        assert out[lane].tolist() == expected, lane


@pytest.mark.parametrize("mask", MASKS)
def test_integer_reductions(mask: int) -> None:
    signed, inside = VALUES.view(np.int32), members(mask)
    functions = {
        "add.u32": VALUES[inside].sum(dtype=np.uint32),
        "add.s32": VALUES[inside].sum(dtype=np.uint32),
        "min.u32": VALUES[inside].min(),
        "max.u32": VALUES[inside].max(),
        "min.s32": signed[inside].min(),
        "max.s32": signed[inside].max(),
        "and.b32": np.bitwise_and.reduce(VALUES[inside]),
        "or.b32": np.bitwise_or.reduce(VALUES[inside]),
        "xor.b32": np.bitwise_xor.reduce(VALUES[inside]),
    }
    out = np.zeros((len(functions), 32), np.uint32)
    lines = [
        f"redux.sync.{name} %r2, %r1, {mask}; st.global.u32 [%at1+{128 * row}], %r2;" for row, name in enumerate(functions)
    ]
    among(mask, "ld.global.u32 %r1, [%at0];" + "".join(lines), VALUES, out, options={"schedules": ("forward",)})
    for row, (name, value) in enumerate(functions.items()):
        np.testing.assert_array_equal(out[row], np.where(inside, np.asarray(value).view(np.uint32), 0), err_msg=name)


def test_reductions_of_floats() -> None:
    """ "If .NaN is given the result is NaN if any input is; else NaN only if all are": in its canonical form 0x7fffffff."""
    values = np.linspace(-5, 3, 32, dtype=np.float32)
    values[9] = np.nan
    names = ("min.f32", "max.f32", "min.abs.f32", "max.abs.f32", "min.NaN.f32", "max.abs.NaN.f32")
    out = np.zeros((len(names), 32), np.uint32)
    lines = [f"redux.sync.{name} %f2, %f1, -1; st.global.f32 [%at1+{128 * row}], %f2;" for row, name in enumerate(names)]
    run("ld.global.f32 %f1, [%at0];" + "".join(lines), values, out, options={"schedules": ("forward",)})
    rest = np.delete(values, 9)
    for row, value in enumerate((rest.min(), rest.max(), abs(rest).min(), abs(rest).max())):
        np.testing.assert_array_equal(out[row].view(np.float32), value)
    np.testing.assert_array_equal(out[4:], 0x7FFFFFFF)


@pytest.mark.parametrize("mask", MASKS)
def test_one_lane_is_elected_and_all_know_which(mask: int) -> None:
    out = np.zeros((32, 2), np.uint32)
    among(mask, f"elect.sync %r1|%p1, {mask}; selp.u32 %r2, 1, 0, %p1; st.global.v2.u32 [%wide0], {{%r1, %r2}};", out)
    inside = members(mask)
    (leader,) = np.unique(out[inside, 0])
    assert inside[leader]
    np.testing.assert_array_equal(out[:, 1], leader == LANES)


def test_active_mask_is_of_lanes_that_are_here() -> None:
    out = words()
    run("setp.lt.u32 %p1, %lane, 12; @%p1 bra HERE; ret; HERE: activemask.b32 %r1; st.global.u32 [%at0], %r1;", out)
    np.testing.assert_array_equal(out, np.where(LANES < 12, 0xFFF, 0xDEAD))


def test_lane_masks() -> None:
    out = np.zeros((32, 4), np.uint32)
    run(
        """mov.u32 %r1, %lanemask_eq; mov.u32 %r2, %lanemask_lt; mov.u32 %r3, %lanemask_ge; mov.u32 %r4, %lanemask_gt;
            mad.wide.u32 %d1, %lane, 16, %a0;
        st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4};""",
        out,
    )
    expected = [[1 << lane, (1 << lane) - 1, 2**32 - (1 << lane), 2**32 - (2 << lane)] for lane in range(32)]
    assert out.tolist() == expected


@pytest.mark.parametrize(
    "instruction",
    [
        "shfl.sync.idx.b32 %r1, %lane, 0, 31, -1;",
        "vote.sync.any.pred %p2, %p3, -1;",
        "match.any.sync.b32 %r1, %lane, -1;",
        "redux.sync.add.u32 %r1, %lane, -1;",
        "elect.sync %r1|%p2, -1;",
        "bar.warp.sync -1;",
    ],
)
def test_member_whose_predicate_is_off(instruction: str) -> None:
    """ "executing threads wait until all threads in membermask have executed the same instruction": this one never will."""
    start = "setp.ne.u32 %p1, %t, 38; setp.eq.u32 %p3, %t, %t;"
    options = {"limit": 10_000}
    told = "warp 1, lane 6: a lane that the member mask names does not execute this"
    fails(told, f"{start} @%p1 {instruction}", block=64, options=options)
    run(f"setp.eq.u32 %p1, %warp, 1; setp.eq.u32 %p3, %t, %t; @%p1 {instruction}", block=64, options=options)
    named = instruction.replace("-1;", "0xFFFFFFBF;")
    run(f"{start} setp.ne.u32 %p1, %lane, 6; @%p1 {named}", block=64, options=options)
