"""Control flow of a function: successors, blocks, where diverged lanes meet again, reads that nothing may have written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from impls.cuda.emulator.ptx.errors import BadPTX
from impls.cuda.emulator.ptx.roles import reads, writes
from impls.cuda.emulator.ptx.syntax import Function, Instruction, Label

_ENDS = frozenset(("ret", "exit"))


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions from `start` to before `end` that run one after the other."""

    start: int
    end: int
    successors: tuple[int, ...]
    """Blocks; their number stands for the function's end."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Instructions are numbered as in the body, whose length stands for the function's end."""

    successors: tuple[tuple[int, ...], ...]
    """Of each instruction, the next one first, where it can come next. A trap has none."""
    blocks: tuple[Block, ...]
    postdominators: tuple[int, ...]
    """Of each instruction the first that all lanes which come by come to again, however they branch: there they reconverge.

    A lane that ends by a predicated `ret` or `exit`, traps, or loops for ever comes nowhere, and no other waits for it.
    """


def flow(function: Function) -> Flow:
    """Raises BadPTX for a branch to what is no place in the function."""
    successors = tuple(_successors(function, at) for at in range(len(function.body)))
    blocks = _blocks(function, successors)
    return Flow(successors, blocks, _postdominators(function, blocks))


def possibly_undefined(function: Function) -> set[tuple[int, str]]:
    """Reads, as instruction and register, that some path reaches without a write.

    Candidates only: a predicated write counts for nothing here, though the read may be as predicated. Raises Unknown for an
    opcode whose operands are not known.
    """
    bits = {name: 1 << number for number, name in enumerate(function.registers)}
    blocks = flow(function).blocks
    written = [_mask(bits, function.body[block.start : block.end]) for block in blocks]
    undefined = [0] * len(blocks)  # registers without a write on some path to the block
    reached = {0: (1 << len(bits)) - 1} if blocks else {}
    while reached:
        number, registers = reached.popitem()
        added = registers & ~undefined[number]
        undefined[number] |= registers
        left = added & ~written[number]
        for after in blocks[number].successors:
            if after < len(blocks) and left & ~undefined[after]:
                reached[after] = reached.get(after, 0) | left
    found: set[tuple[int, str]] = set()
    for block, registers in zip(blocks, undefined, strict=True):
        for at in range(block.start, block.end):
            if not registers:
                break
            instruction = function.body[at]
            found.update((at, name) for name in reads(instruction) if registers & bits[name])
            registers &= ~_mask(bits, (instruction,))
    return found


def _successors(function: Function, at: int) -> tuple[int, ...]:
    instruction, end = function.body[at], len(function.body)
    match instruction.opcode:
        case "bra" | "brx":
            taken = tuple(_targets(function, instruction))
        case "ret" | "exit":
            taken = (end,)
        case "trap":
            taken = ()
        case _:
            return (at + 1,)
    stays = (at + 1,) if instruction.predicate else ()
    return tuple(dict.fromkeys((*stays, *taken)))


def _targets(function: Function, branch: Instruction) -> Iterator[int]:
    last = branch.operands[-1] if branch.operands else None
    names: tuple[str, ...] = ()
    if isinstance(last, Label):
        names = function.branch_targets.get(last.name, ()) if branch.opcode == "brx" else (last.name,)
    if not names or any(name not in function.labels for name in names):
        raise BadPTX(branch.line, f"'{branch}' branches to no place in {function.name}.")
    return (function.labels[name] for name in names)


def _blocks(function: Function, successors: tuple[tuple[int, ...], ...]) -> tuple[Block, ...]:
    end = len(successors)
    starts = {0, end, *function.labels.values()}
    for at, after in enumerate(successors):
        if after != (at + 1,):
            starts.update((at + 1, *after))
    ordered = sorted(starts)
    number = {start: index for index, start in enumerate(ordered)}
    return tuple(
        Block(start, after, tuple(number[target] for target in successors[after - 1])) for start, after in pairwise(ordered)
    )


def _postdominators(function: Function, blocks: tuple[Block, ...]) -> tuple[int, ...]:
    """Dominators of the reversed graph, by Cooper, Harvey and Kennedy's "A Simple, Fast Dominance Algorithm"."""
    end = len(blocks)
    after = [_awaited(function, block, end) for block in blocks]
    rank = _ranks(after, end)
    ordered = sorted(rank, key=rank.__getitem__, reverse=True)[1:]  # without the end
    nearest = {end: end}
    changed = True
    while changed:
        changed = False
        for number in ordered:
            found: int | None = None
            for successor in after[number]:
                if successor in nearest:
                    found = successor if found is None else _meet(found, successor, nearest, rank)
            assert found is not None  # the order visits one of them earlier
            if nearest.get(number) != found:
                nearest[number], changed = found, True
    out = list(range(1, len(function.body) + 1))
    starts = [*(block.start for block in blocks), len(function.body)]
    for number, block in enumerate(blocks):
        out[block.end - 1] = starts[nearest.get(number, end)]
        if number not in rank:
            out[block.start : block.end] = [len(function.body)] * (block.end - block.start)
    return tuple(out)


def _awaited(function: Function, block: Block, end: int) -> tuple[int, ...]:
    """Successors at which others may wait for the lanes."""
    last = function.body[block.end - 1]
    leaves = last.opcode in _ENDS and last.predicate is not None and block.end < len(function.body)
    return tuple(number for number in block.successors if number != end) if leaves else block.successors


def _ranks(after: list[tuple[int, ...]], end: int) -> dict[int, int]:
    """Postorder numbers of a walk against the flow, of what can come to the end."""
    before: list[list[int]] = [[] for _ in range(end + 1)]
    for number, successors in enumerate(after):
        for successor in successors:
            before[successor].append(number)
    rank: dict[int, int] = {}
    seen, path = {end}, [(end, iter(before[end]))]
    while path:
        number, left = path[-1]
        following = next((each for each in left if each not in seen), None)
        if following is None:
            rank[number] = len(rank)
            path.pop()
        else:
            seen.add(following)
            path.append((following, iter(before[following])))
    return rank


def _meet(one: int, other: int, nearest: dict[int, int], rank: dict[int, int]) -> int:
    """The first postdominator that both have."""
    while one != other:
        while rank[one] < rank[other]:
            one = nearest[one]
        while rank[other] < rank[one]:
            other = nearest[other]
    return one


def _mask(bits: dict[str, int], instructions: tuple[Instruction, ...]) -> int:
    """Registers that one of them surely writes."""
    out = 0
    for instruction in instructions:
        if instruction.predicate is None:
            for name in writes(instruction):
                out |= bits[name]
    return out
