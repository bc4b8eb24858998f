"""Probes of what goes through shared memory: ldmatrix, stmatrix, movmatrix, cp.async.

row r of a tile, 16 bytes       lane r writes i0 to i3 there
lane l names the row            5 l + 3 modulo 32: each once, none its own place
"""

from __future__ import annotations

from functools import partial

import numpy as np

from impls.cuda.confirm.probe import WARP, Capability, Instruction, Probe, Words, instruction
from impls.cuda.confirm.scalar import BLACKWELL, HOPPER
from impls.cuda.emulator.tensor_cores.matrices import MatrixMove, ldmatrix, movmatrix, stmatrix

THREADS = 2048
NAMED = (5 * np.arange(WARP) + 3) % WARP
"""Row that each lane names."""
ADDRESSES = """
.reg .b32 lane, own, named;
mov.u32 lane, %%laneid;
mad.lo.u32 own, lane, 16, %2;
mad.lo.u32 named, lane, 5, 3;
and.b32 named, named, 31;
mad.lo.u32 named, named, 16, %2;
bar.warp.sync -1;
"""


def _load(name: str, since: Capability = (8, 0)) -> Instruction:
    move = ldmatrix(tuple(name.split(".")[1:]))
    registers = ", ".join(f"o{number}" for number in range(move.registers))
    text = f"""{ADDRESSES}
    st.shared.v4.b32 [own], {{i0, i1, i2, i3}};
    bar.warp.sync -1;
    {name} {{{registers}}}, [named];"""
    return instruction(name, text, move.registers, partial(_loaded, move), (move.rule,), since=since)


def _loaded(move: MatrixMove, inputs: Words) -> Words:
    rows = inputs[:, :4].copy().view(np.uint8).reshape(-1, WARP, 16)
    named = rows[:, NAMED[: move.matrices * move.rows]].reshape(-1, move.matrices, move.rows, 16)
    return move.to_registers(np.ascontiguousarray(named)).reshape(len(inputs), -1)


def _store(name: str, since: Capability = HOPPER) -> Instruction:
    move = stmatrix(tuple(name.split(".")[1:]))
    registers = ", ".join(f"i{number}" for number in range(move.registers))
    text = f"""{ADDRESSES}
    st.shared.v4.b32 [own], {{0, 0, 0, 0}};
    bar.warp.sync -1;
    {name} [named], {{{registers}}};
    bar.warp.sync -1;
    ld.shared.v4.b32 {{o0, o1, o2, o3}}, [own];"""
    return instruction(name, text, 4, partial(_stored, move), (move.rule,), since=since)


def _stored(move: MatrixMove, inputs: Words) -> Words:
    warps = inputs.reshape(-1, WARP, inputs.shape[1])
    tile = np.zeros((len(warps), WARP, 16), np.uint8)
    used = NAMED[: move.matrices * move.rows]
    tile[:, used] = move.to_rows(warps[..., : move.registers].copy()).reshape(len(warps), -1, 16)
    return tile.view(np.uint32).reshape(-1, 4)


def _transpose() -> Instruction:
    name = "movmatrix.sync.aligned.m8n8.trans.b16"
    modifiers = tuple(name.split(".")[1:])

    def predict(inputs: Words) -> Words:
        return movmatrix(modifiers, inputs[:, 0].reshape(-1, WARP).copy()).reshape(-1, 1)

    return instruction(name, f"{name} o0, i0;", 1, predict, ("movmatrix",))


def _copy(cache: str, size: int, limit: str) -> Instruction:
    """cp.async of the thread's own inputs. `limit` is what there is to say of how much is read: nothing, that i4 modulo
    size + 1 bytes are, or that none are where i4 is odd; the rest become zeros."""
    name = f"cp.async.{cache}.shared.global {size}{limit and f', {limit}'}"
    fourth = {"": "", "bytes": ", read", "ignored": ", none"}[limit]
    text = f"""{ADDRESSES}
    .reg .b32 read, odd;
    .reg .pred none;
    rem.u32 read, i4, {size + 1};
    and.b32 odd, i4, 1;
    setp.eq.u32 none, odd, 1;
    st.shared.v4.b32 [own], {{-1, -1, -1, -1}};
    cp.async.{cache}.shared.global [own], [%0], {size}{fourth};
    cp.async.commit_group;
    cp.async.wait_group 0;
    ld.shared.v4.b32 {{o0, o1, o2, o3}}, [own];"""

    def predict(inputs: Words) -> Words:
        there = inputs[:, :4].copy().view(np.uint8)
        read = {
            "": np.full(len(inputs), size),
            "bytes": inputs[:, 4] % (size + 1),
            "ignored": np.where(inputs[:, 4] % 2, 0, size),
        }
        byte = np.arange(16)
        copied = np.where(byte < read[limit][:, None], there, 0)
        return np.where(byte < size, copied, 0xFF).astype(np.uint8).view(np.uint32)

    return instruction(name, text, 4, predict, ("cp.async",))


def inputs(rng: np.random.Generator) -> Words:
    """Any bits, in 16-byte lines."""
    return rng.integers(0, 2**32, (THREADS, 8), np.uint64).astype(np.uint32)


def _named(opcode: str, shape: str, counts: tuple[int, ...], *rest: str) -> list[str]:
    return [f"{opcode}.sync.aligned.{shape}.x{count}{tail}" for count in counts for tail in rest]


PROBES = (
    Probe(
        "matrices",
        inputs,
        (
            *map(_load, _named("ldmatrix", "m8n8", (1, 2, 4), ".shared.b16", ".trans.shared.b16")),
            *(
                _load(name, BLACKWELL)
                for name in (
                    *_named("ldmatrix", "m8n16", (1, 2, 4), ".shared.b8x16.b4x16_p64", ".shared.b8x16.b6x16_p32"),
                    *_named("ldmatrix", "m16n16", (1, 2), ".trans.shared.b8"),
                    *_named("ldmatrix", "m16n16", (1, 2), ".trans.shared.b8x16.b4x16_p64", ".trans.shared.b8x16.b6x16_p32"),
                )
            ),
            *map(_store, _named("stmatrix", "m8n8", (1, 2, 4), ".shared.b16", ".trans.shared.b16")),
            *(_store(name, BLACKWELL) for name in _named("stmatrix", "m16n8", (1, 2, 4), ".trans.shared.b8")),
            _transpose(),
        ),
        shared_bytes=512,
    ),
    Probe(
        "copies",
        inputs,
        tuple(
            _copy(cache, size, limit)
            for cache, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16))
            for limit in ("", "bytes", "ignored")
        ),
        shared_bytes=512,
    ),
)
