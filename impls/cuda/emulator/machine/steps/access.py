"""Loads and stores of global, shared, local and constant memory, by spaces of their own or by generic addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from impls.cuda.emulator.arithmetic.forms import Array
from impls.cuda.emulator.checks.happens_before import Order, Scope
from impls.cuda.emulator.machine.binding import Binder, Constant, Step, full, lanes
from impls.cuda.emulator.machine.fronts import LANES, Front
from impls.cuda.emulator.machine.located import LARGEST_WORD, MOST_KEPT, Located
from impls.cuda.emulator.machine.memory import LOCAL_BASE, SHARED_BASE, OutOfBounds
from impls.cuda.emulator.machine.state import At, State, word_of
from impls.cuda.emulator.ptx.syntax import TYPE_BYTES, Address, Symbol

SPACES = {"global": "global", "const": "global", "shared": "shared", "shared::cta": "shared", "local": "local"}
VECTORS = {"v2": 2, "v4": 4, "v8": 8}
STRONG: Mapping[str, Order] = {
    "volatile": "relaxed",
    "relaxed": "relaxed",
    "acquire": "acquire",
    "release": "release",
    "mmio": "relaxed",
}
HINTS = {"nc", "weak", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "unified"}
SCOPES: Mapping[str, Scope] = {"cta": "cta", "cluster": "cluster", "gpu": "gpu", "sys": "sys"}


@dataclass(frozen=True)
class Access:
    """What a load or store says of itself."""

    space: str | None
    """None for a generic address."""
    count: int
    """Elements a lane."""
    kind: str
    """Of an element."""
    scope: Scope | None
    """Of a strong access; None of a weak one."""
    order: Order

    @property
    def size(self) -> int:
        """Bytes a lane."""
        return self.count * TYPE_BYTES[self.kind]


def access_of(binder: Binder) -> Access:
    """Read the modifiers of ld and st. Raises `Unknown` on one that is not theirs."""
    *modifiers, kind = binder.instruction.modifiers
    space, count = None, 1
    scope: Scope | None = None
    order: Order = "relaxed"
    for modifier in modifiers:
        if modifier in SPACES:
            space = SPACES[modifier]
        elif modifier in VECTORS:
            count = VECTORS[modifier]
        elif modifier in STRONG:
            order, scope = STRONG[modifier], scope or "sys"
        elif modifier in SCOPES:
            scope = SCOPES[modifier]
        elif modifier not in HINTS and not modifier.startswith(("L1::", "L2::")):
            raise binder.unknown(f".{modifier} of {binder.instruction.name}")
    if kind not in TYPE_BYTES or kind == "b128":
        raise binder.unknown(f".{kind} of {binder.instruction.name}")
    return Access(space, count, kind, scope, order)


def load(binder: Binder, pc: int) -> Step:
    """ld. A narrower signed value fills its register with the sign."""
    if "param" in binder.instruction.modifiers or "param::entry" in binder.instruction.modifiers:
        return _parameter(binder)
    access = access_of(binder)
    address = binder.address(binder.operands[1])
    destinations = binder.destinations(binder.operands[0])
    if len(destinations) != access.count:
        raise binder.unknown(f"{len(destinations)} results of {binder.instruction.name}")
    state = binder.state
    element = np.dtype(f"{'i' if access.kind.startswith('s') else 'u'}{TYPE_BYTES[access.kind]}")

    def step(front: Front) -> None:
        mask = binder.mask(front)
        if mask is not None and not mask.any():
            return
        values = np.empty((front.count, LANES, access.count), element)
        for place, active in places(state, access, address[front.rows], front, mask):
            found = gather(state, place, element)
            if active is mask:
                values = found
            else:
                values[active] = found[active]
            if place.space != "global":
                require_defined(state, place, active)
            state.watch.read(front, place, pc, access.scope, access.order)
        for number, destination in enumerate(destinations):
            if destination is not None:
                destination.put(front, mask, values[..., number].astype(destination.array.dtype, copy=False))

    return step


def store(binder: Binder, pc: int) -> Step:
    """st. Lanes of a warp that write different values to one place in one instruction are an error; warps write one after
    another, which those of strong stores may, and the checks tell of weak ones."""
    access = access_of(binder)
    address = binder.address(binder.operands[0])
    sources = binder.parts(binder.operands[1], access.kind)
    if len(sources) != access.count:
        raise binder.unknown(f"{len(sources)} values in {binder.instruction.name}")
    state = binder.state
    element = np.dtype(f"u{TYPE_BYTES[access.kind]}")

    def step(front: Front) -> None:
        mask = binder.mask(front)
        if mask is not None and not mask.any():
            return
        values = np.empty((front.count, LANES, access.count), element)
        for number, source in enumerate(sources):
            values[..., number] = source[front.rows]
        for place, active in places(state, access, address[front.rows], front, mask):
            require_writeable(state, place, active)
            if access.scope is None:
                repeats = partial(found_there, state, place, values, active)
                state.watch.write(front, place, pc, repeats=repeats)
                scatter(state, place, values, active)
            else:
                strong(front, place, values, active)
        state.progress += 1

    def strong(front: Front, place: Located, values: Array, active: Array | None) -> None:
        there = full(active, front)
        for row in state.schedule.order(front.count).tolist():
            if there[row].any():
                one = front.some(np.arange(front.count) == row, pc)
                state.watch.write(one, place.part(row, there), pc, access.scope, access.order)
                _scatter_row(state, place, values, there, row)

    return step


def places(
    state: State, access: Access, address: Array, front: Front, mask: Array | None
) -> list[tuple[Located, Array | None]]:
    """[(place, lanes)] of an access; several only if a generic address leads to several spaces."""
    address = lanes(address, front)
    if access.space is not None:
        return [(located(state, access.space, address, front, mask, access.size), mask)]
    active = full(mask, front)
    found: list[tuple[Located, Array | None]] = []
    local = address >= np.uint64(LOCAL_BASE)
    shared = ~local & (address >= np.uint64(SHARED_BASE))
    for space, lanes_there, window in (
        ("global", ~local & ~shared, 0),
        ("shared", shared, SHARED_BASE),
        ("local", local, LOCAL_BASE),
    ):
        there = lanes_there & active
        if there.any():
            everyone = mask if (there == active).all() else there
            found.append((located(state, space, address - np.uint64(window), front, everyone, access.size), everyone))
    return found


def located(
    state: State, space: str, address: Array, front: Front, mask: Array | None, size: int, *, matrices: bool = False
) -> Located:
    """As `locate`. What is found out about an access to shared or local memory is kept for those that are equal: of a loop, of
    other instructions, and of blocks that reside later. `matrices`: the lanes name rows of these."""
    if space == "global":
        return Located(space, locate(state, space, address, front, mask, size), size, mask)
    lanes_there = None if mask is None else mask.tobytes()
    key = space, size, matrices, address.itemsize, address.tobytes(), front.warps.tobytes(), lanes_there
    found = state.located.get(key)
    if found is None:
        positions = locate(state, space, address, front, mask, size)
        found = Located(space, positions, size, None if mask is None else mask.copy(), kept=True)
        if len(state.located) == MOST_KEPT:
            state.located.clear()
        state.located[key] = found
    return found


def locate(state: State, space: str, address: Array, front: Front, mask: Array | None, size: int) -> Array:
    """int64 [warps, 32] positions in the space's array; lanes that take no part are where the first of the others is.

    Raises `At` where an access is not aligned to its size, or outside its memory.
    """
    require_aligned(address, mask, size, space)
    if mask is not None:
        address = np.where(mask, address, address[mask][0])
    return bounded(state, space, address, front, mask, size)


def bounded(state: State, space: str, address: Array, front: Front, mask: Array | None, size: int) -> Array:
    """As `locate`, of addresses that are aligned, wherever lanes that take no part have them."""
    try:
        if space == "global":
            return state.memory.offsets(address.astype(np.uint64, copy=False), size)
        if space == "shared":
            return state.shared.offsets(state.shared_base[front.rows], address, size)
        return state.local.offsets(state.local_base[front.rows], address, size)
    except OutOfBounds as error:
        where = error.where if mask is None or mask[error.where] else tuple(int(i) for i in np.argwhere(mask)[0])
        raise At(f"out of bounds of {space} memory: {error}", where[0], where[1]) from error


def require_aligned(address: Array, mask: Array | None, size: int, space: str) -> None:
    """Raises `At` where an address in `mask` is no multiple of `size`."""
    if not int(np.bitwise_or.reduce(address, axis=None)) & (size - 1):
        return
    odd = address & address.dtype.type(size - 1) != 0
    if mask is not None:
        odd &= mask
    if odd.any():
        row, lane = (int(i) for i in np.argwhere(odd)[0])
        raise At(f"{size} B at {int(address[row, lane]):#x} of {space} memory are misaligned", row, lane)


def require_writeable(state: State, place: Located, active: Array | None) -> None:
    """Raises `At` where one of the positions is in memory that the caller lent for reading."""
    if place.space != "global":
        return
    for one, there in state.memory.read_only(place.positions):
        if active is not None:
            there &= active
        if there.any():
            row, lane = (int(i) for i in np.argwhere(there)[0])
            raise At(f"{one.name} is read-only", row, lane)


def array_of(state: State, space: str, size: int) -> Array:
    """A space's memory, as words of so many bytes."""
    if space == "global":
        return state.memory.view(size)
    return (state.shared if space == "shared" else state.local).view(size)


def gather(state: State, place: Located, element: np.dtype[Any]) -> Array:
    """[warps, 32, size / element] read there."""
    word = min(place.size, LARGEST_WORD)
    array = array_of(state, place.space, word)
    shape = *place.positions.shape, -1
    parts = [
        array.take(place.words + part if part else place.words).view(element).reshape(shape)
        for part in range(place.size // word)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def scatter(state: State, place: Located, values: Array, active: Array | None) -> None:
    """Write `values`, [warps, 32, size / element]; where warps write to one place, one after another in the order of the
    schedule. Raises `At` where another lane of the warp writes something else to the same place."""
    chosen = slice(None) if active is None else active
    if _put(state, place, place.words[chosen], values[chosen]) is not None:
        for row in state.schedule.order(len(values)).tolist():
            _scatter_row(state, place, values, active, row)


def _scatter_row(state: State, place: Located, values: Array, active: Array | None, row: int) -> None:
    """As `scatter`, what one warp writes."""
    lanes_there = np.arange(values.shape[1]) if active is None else np.flatnonzero(active[row])
    lost = _put(state, place, place.words[row, lanes_there], values[row, lanes_there])
    if lost is not None:
        lane = int(lanes_there[lost[0]])
        sentence = f"another lane of the same instruction writes something else to this place of {place.space} memory"
        raise At(sentence, row, lane)


def _put(state: State, place: Located, words: Array, values: Array) -> tuple[int, ...] | None:
    """Write `values`, [..., size / element], to some of the place's words. Returns which is the first that another has
    overwritten with something else."""
    word = min(place.size, LARGEST_WORD)
    array = array_of(state, place.space, word)
    per_word = values.shape[-1] * word // place.size
    lost = None
    for part in range(place.size // word):
        slab = np.ascontiguousarray(values[..., part * per_word : (part + 1) * per_word])
        index = words + part if part else words
        array[index] = slab.view(array.dtype)[..., 0]
        if lost is None and not place.apart:
            wrong = array.take(index).view(values.dtype).reshape(slab.shape) != slab
            if wrong.any():
                lost = tuple(int(i) for i in np.argwhere(wrong)[0][:-1])
        if place.space != "global":
            (state.shared if place.space == "shared" else state.local).define(index, word)
    return lost


def found_there(state: State, place: Located, values: Array, active: Array | None = None) -> Array:
    """bool [warps, n]: which of `values` [warps, n, elements] are at their place, if the warps write one after another."""
    positions, size = place.positions, place.size
    word = min(size, 8)  # the largest that NumPy compares by its bits
    array = array_of(state, place.space, word)
    index = positions[..., None] // word + np.arange(size // word)
    new = np.ascontiguousarray(values).view(array.dtype)
    before = array[index]
    found = np.ones(positions.shape, bool)
    for row in range(len(positions)):
        writing = slice(None) if active is None else active[row]
        found[row, writing] = (array[index[row, writing]] == new[row, writing]).all(axis=-1)
        array[index[row, writing]] = new[row, writing]
    array[index] = before
    return found


def require_defined(state: State, place: Located, active: Array | None) -> None:
    memory = state.shared if place.space == "shared" else state.local
    for part in range(-(-place.size // LARGEST_WORD)):
        where = memory.first_undefined(place.words + part if part else place.words, min(place.size, LARGEST_WORD))
        if where is not None:
            row, lane = where if active is None or active[where] else (int(i) for i in np.argwhere(active)[0])
            inside = int(place.positions[row, lane]) % memory.size
            raise At(
                f"byte {inside} or one after it of {place.space} memory was never written, or its copy is still under way",
                row,
                lane,
            )


def _parameter(binder: Binder) -> Step:
    """ld.param: the same in all lanes of all launches of one binding."""
    kind = binder.instruction.modifiers[-1]
    address = binder.operands[1]
    if not isinstance(address, Address) or not isinstance(address.base, Symbol):
        raise binder.unknown(f"parameter address {address}")
    held = binder.state.loaded.parameters.get(address.base.name)
    if held is None:
        raise binder.unknown(f"parameter {address.base.name}")
    destinations = binder.destinations(binder.operands[0])
    size, start = TYPE_BYTES[kind], address.base.offset + address.offset
    if start + size * len(destinations) > len(held):
        raise At(
            f"byte {start + size * len(destinations) - 1} of parameter {address.base.name}, which has {len(held)}", 0, None
        )
    element = np.dtype(f"{'i' if kind.startswith('s') else 'u'}{size}")
    values = [
        Constant(np.frombuffer(held, element, 1, start + size * number)[0].astype(word_of(kind)))
        for number in range(len(destinations))
    ]

    def step(front: Front) -> None:
        mask = binder.mask(front)
        for destination, value in zip(destinations, values, strict=True):
            if destination is not None:
                destination.put(front, mask, value.value)

    return step
