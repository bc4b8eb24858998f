"""What lanes of a warp tell each other: shfl, vote, match, redux, elect, activemask. PTX ISA 9.1, 9.7.9.21 on and 9.7.14."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.machine.binding import Binder, Constant, NotConverged, Source, Step, full, lanes
from impls.cuda.emulator.machine.fronts import LANES, Front
from impls.cuda.emulator.machine.state import At
from impls.cuda.emulator.ptx.syntax import Operand

LANE = np.arange(LANES)
BIT = (np.uint32(1) << LANE.astype(np.uint32)).astype(np.uint32)


def shuffle(binder: Binder) -> Step:
    """shfl.sync.{up, down, bfly, idx}.b32 d|p, a, b, c, members."""
    _, mode, kind = binder.instruction.modifiers
    result, value, other, clamp, members = binder.operands
    destinations = binder.destinations(result)
    source = binder.source(value, kind)
    lane_of = _lane_of(mode, binder.source(other, "b32"), binder.source(clamp, "b32"), binder)
    members_of = _members(binder, members)

    def step(front: Front) -> None:
        mask, _ = members_of(front)
        values = lanes(source[front.rows], front)
        lane, inside = lane_of(front)
        if mask is not None:
            read = np.take_along_axis(mask, lane, axis=1) | ~mask
            if not read.all():
                row, to = (int(i) for i in np.argwhere(~read)[0])
                raise At(f"reads lane {int(lane[row, to])}, which takes no part", row, to)
        shuffled = values[:, lane[0]] if lane.shape[0] == 1 else np.take_along_axis(values, lane, axis=1)
        if destinations[0] is not None:
            destinations[0].put(front, mask, shuffled)
        if len(destinations) > 1 and destinations[1] is not None:
            destinations[1].put(front, mask, np.broadcast_to(inside, shuffled.shape))

    return step


def vote(binder: Binder) -> Step:
    """vote.sync.{any, all, uni}.pred p, a, members; vote.sync.ballot.b32 d, a, members."""
    _, mode, _ = binder.instruction.modifiers
    result, value, members = binder.operands
    destination, source = binder.destination(result), binder.source(value, "pred")
    members_of = _members(binder, members)

    def step(front: Front) -> None:
        mask, member = members_of(front)
        holds = lanes(source[front.rows], front) & member
        some, every = holds.any(axis=1, keepdims=True), (holds == member).all(axis=1, keepdims=True)
        if mode == "ballot":
            answer = np.where(holds, BIT, np.uint32(0)).sum(axis=1, keepdims=True, dtype=np.uint32)
        else:
            answer = {"any": some, "all": every, "uni": every | ~some}[mode]
        destination.put(front, mask, np.broadcast_to(answer, member.shape))

    if mode not in ("any", "all", "uni", "ballot"):
        raise binder.unknown(f"vote.sync.{mode}")
    return step


def match(binder: Binder) -> Step:
    """match.any.sync and match.all.sync: the lanes that hold the same value."""
    mode, _, kind = binder.instruction.modifiers
    result, value, members = binder.operands
    destinations, source = binder.destinations(result), binder.source(value, kind)
    members_of = _members(binder, members)
    if mode not in ("any", "all"):
        raise binder.unknown(f"match.{mode}")

    def step(front: Front) -> None:
        mask, member = members_of(front)
        values = lanes(source[front.rows], front)
        same = (values[:, :, None] == values[:, None, :]) & member[:, None, :]
        answer = np.where(same, BIT, np.uint32(0)).sum(axis=2, dtype=np.uint32)
        if mode == "all":
            every = (same == member[:, None, :]).all(axis=2)
            answer = np.where(every, answer, np.uint32(0))
            if len(destinations) > 1 and destinations[1] is not None:
                destinations[1].put(front, mask, every)
        if destinations[0] is not None:
            destinations[0].put(front, mask, answer)

    return step


def reduce(binder: Binder) -> Step:
    """redux.sync.op{.abs}{.NaN}.type d, a, members."""
    _, name, *options, kind = binder.instruction.modifiers
    result, value, members = binder.operands
    destination, source = binder.destination(result), binder.source(value, kind)
    members_of = _members(binder, members)
    reduction = _reduction(binder, name, options, kind)

    def step(front: Front) -> None:
        mask, member = members_of(front)
        answer = reduction(lanes(source[front.rows], front), member)
        destination.put(front, mask, np.broadcast_to(answer[:, None], member.shape))

    return step


def elect(binder: Binder) -> Step:
    """elect.sync d|p, members: the lowest of them."""
    result, members = binder.operands
    destinations = binder.destinations(result)
    members_of = _members(binder, members)

    def step(front: Front) -> None:
        mask, member = members_of(front)
        leader = member.argmax(axis=1).astype(np.uint32)[:, None]
        if destinations[0] is not None:
            destinations[0].put(front, mask, np.broadcast_to(leader, member.shape))
        if destinations[1] is not None:
            destinations[1].put(front, mask, leader == LANE)

    return step


def active_mask(binder: Binder) -> Step:
    """activemask.b32 d."""
    destination = binder.destination(binder.operands[0])

    def step(front: Front) -> None:
        mask = binder.mask(front)
        bits = np.where(full(mask, front), BIT, np.uint32(0)).sum(axis=1, dtype=np.uint32)
        destination.put(front, mask, np.broadcast_to(bits[:, None], (front.count, LANES)))

    return step


def meet(binder: Binder) -> Step:
    """bar.warp.sync members."""
    members_of = _members(binder, binder.operands[0])

    def step(front: Front) -> None:
        mask, _ = members_of(front)
        binder.state.watch.warps_met(front if mask is None else front.lanes(mask, front.pc))

    return step


def _members(binder: Binder, operand: Operand) -> Callable[[Front], tuple[Array | None, Array]]:
    """The lanes that execute, and those that the member mask names and that are alive.

    Raises `NotConverged` while one of them is elsewhere, `At` where a lane executes that is not a member, or a member is here
    and does not execute.
    """
    source = binder.source(operand, "b32")
    everyone = isinstance(source, Constant) and int(source.value) == 0xFFFFFFFF

    def members(front: Front) -> tuple[Array | None, Array]:
        mask = binder.mask(front)
        alive = binder.state.alive[front.rows]
        if everyone and mask is None:
            return None, alive
        executing = full(mask, front)
        # what the executing lanes say: the register of another may not even be written yet
        said = np.where(executing, lanes(source[front.rows], front), np.uint32(0))
        named = (np.bitwise_or.reduce(said, axis=1)[:, None] & BIT) != 0
        if (executing & ~named).any():
            row, lane = (int(i) for i in np.argwhere(executing & ~named)[0])
            raise At("this lane is not in its own member mask", row, lane)
        wanted = named & alive & executing.any(axis=1, keepdims=True)
        absent = wanted & ~executing
        if absent.any():
            idle = absent & front.active()
            if idle.any():
                row, lane = (int(i) for i in np.argwhere(idle)[0])
                raise At("a lane that the member mask names does not execute this", row, lane)
            raise NotConverged(wanted)
        return mask, wanted & executing

    return members


def _lane_of(mode: str, other: Source, clamp: Source, binder: Binder) -> Callable[[Front], tuple[Array, Array]]:
    """(lane to read from, whether that is inside the segment), [warps, 32] or [1, 32]."""
    if mode not in ("up", "down", "bfly", "idx"):
        raise binder.unknown(f"shfl.sync.{mode}")

    def lane_of(front: Front) -> tuple[Array, Array]:
        offset, limits = (np.atleast_2d(np.asarray(each[front.rows]).astype(np.int64)) for each in (other, clamp))
        segment, most = limits >> 8 & 31, limits & 31
        last = LANE & segment | most & ~segment
        first = LANE & segment
        by = offset & 31
        to = {"up": LANE - by, "down": LANE + by, "bfly": LANE ^ by, "idx": first | by & ~segment}[mode]
        inside = to >= last if mode == "up" else to <= last
        return np.where(inside, to, LANE), inside

    if isinstance(other, Constant) and isinstance(clamp, Constant):
        fixed = lane_of(Front(0, np.zeros(1, np.int64)))
        return lambda front: fixed
    return lane_of


def _reduction(binder: Binder, name: str, options: list[str], kind: str) -> Callable[[Array, Array], Array]:
    """[warps, 32] values and members -> [warps] results, as bits."""
    if kind == "f32":
        if name not in ("min", "max") or set(options) - {"abs", "NaN"}:
            raise binder.unknown(f"redux.sync.{name}.f32")
        pick = {("min", True): np.minimum, ("max", True): np.maximum, ("min", False): np.fmin, ("max", False): np.fmax}
        function = pick[name, "NaN" in options]

        def of_floats(values: Array, member: Array) -> Array:
            numbers = values.view(np.float32)
            numbers = np.abs(numbers) if "abs" in options else numbers
            first = np.take_along_axis(numbers, member.argmax(axis=1)[:, None], axis=1)
            reduced = function.reduce(np.where(member, numbers, first), axis=1)
            return np.where(np.isnan(reduced), np.uint32(0x7FFFFFFF), reduced.view(np.uint32))

        return of_floats
    functions = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    if name not in functions or options or kind not in ("u32", "s32", "b32"):
        raise binder.unknown(f"redux.sync.{name}.{kind}")
    number = np.int32 if kind == "s32" else np.uint32
    neutral = {"add": 0, "or": 0, "xor": 0, "and": -1}

    def of_integers(values: Array, member: Array) -> Array:
        numbers = values.view(number)
        rest = (
            np.take_along_axis(numbers, member.argmax(axis=1)[:, None], axis=1)
            if name in ("min", "max")
            else np.asarray(neutral[name]).astype(number)
        )
        return np.asarray(functions[name].reduce(np.where(member, numbers, rest), axis=1, dtype=number)).view(np.uint32)

    return of_integers
