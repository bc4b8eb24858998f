"""Which queries attend to which keys in one pass: plain arithmetic, no torch, no triton.

Queries are cut into tiles, and the keys that a tile sees into chunks. A pass is a tile against a chunk, and states a problem of
its own. Under a causal mask most of what a tile sees lies before its first query, so that the chunks there need no mask:

                       keys
              |  chunk  |  chunk  | chunk |            history chunks: as long as the planner allows, not causal
    queries   |         |         |    \\  |            the last one: causal, from where a whole chunk no longer fits before
    of a tile |         |         |     \\ |            the diagonal to the tile's last query
                                                       the first tile: all queries that see one chunk at most, in one pass

With `n` tokens in a sequence, a causal tile that `delay` queries follow is a problem of its own with n - delay tokens, aligned
bottom-right as ever. Where lengths are known on the device alone, so is the place of the diagonal: every chunk then gets two
passes, one for sequences whose diagonal lies behind it, and a causal one, long enough for all queries, for those whose diagonal
begins in it. `Pass.tokens` says how many tokens of its keys a pass sees in a sequence, none being one answer.

A window moves its first key from query to query. No pass that ends before the diagonal can state that edge, so where queries
see windows of their own, one pass takes all keys of all windows; likewise where a window's place is known on the device alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from impls.arch import Arch, products
from impls.contract import Paged, Problem, Unsupported, is_whole
from impls.nvfp4 import BLOCK
from impls.planning import SMS

LONGEST_CHUNK = 65536
"""Keys of a chunk. Every chunk more is a partial result more to write and merge, and a launch more whose last blocks leave
multiprocessors idle: on an H200 a causal prefill of 131072 tokens took 5.4 % (head dim 128) and 2.7 % (512) longer than in one
pass with chunks of 65536 keys, 8.7 % and 5.2 % with half of that. A half of the keys in one sum drifts half as far."""

WORKSPACE = 640 * 2**20
"""Bytes of partial results at most, which limit the queries of a tile: with half of this the prefill above took those 5.4 and
2.7 %, with twice as much 2.2 and 4.5 %."""

TALLEST_BLOCK, STEP = 128, 32
"""Query rows that a block may hold, and keys that it holds at least."""
SHORTEST_BLOCK = 16

MOST_PASSES = 65536

WHOLE_LINES = 256
"""Tokens at whose multiples the scales of V along the tokens, a byte for 16, lie at addresses that the widest loads want."""

NEVER, ALWAYS = -(2**31), 2**31 - 1


@dataclass(frozen=True)
class Pass:
    """The queries of a tile against the keys start <= key < stop."""

    start: int
    stop: int
    causal: bool
    window: int | None = None
    delay: int = 0
    """Queries that follow the tile's, in a causal problem: of n tokens the tile's queries see n - delay."""
    at_least: int = NEVER
    """The pass is for sequences with at_least <= n - delay < below."""
    below: int = ALWAYS

    def tokens(self, n: int) -> int:
        """How many of its keys it takes from a sequence of `n` tokens."""
        seen = n - self.delay
        return min(max(seen - self.start, 0), self.stop - self.start) if self.at_least <= seen < self.below else 0


@dataclass(frozen=True)
class Tile:
    """The queries start <= query < stop, and the passes whose results are merged into theirs."""

    start: int
    stop: int
    passes: tuple[Pass, ...]

    @property
    def queries(self) -> int:
        return self.stop - self.start

    def problem(self, problem: Problem, one: Pass) -> Problem:
        """What one of the passes computes."""
        return replace(problem, q_len=self.queries, kv_len=one.stop - one.start, causal=one.causal, window=one.window)


@dataclass(frozen=True)
class ChunkPlan:
    """All passes of a problem, in order."""

    tiles: tuple[Tile, ...]
    block_rows: int
    """Query rows that a block is taken to hold."""

    @property
    def passes(self) -> int:
        return sum(len(tile.passes) for tile in self.tiles)

    @property
    def merged_queries(self) -> int:
        """Queries of the largest tile with results to merge."""
        return max((tile.queries for tile in self.tiles if len(tile.passes) > 1), default=0)

    @property
    def most_passes(self) -> int:
        """Of a tile."""
        return max(len(tile.passes) for tile in self.tiles)

    @property
    def chunk_lengths(self) -> tuple[int, int]:
        """(shortest, longest)."""
        lengths = [one.stop - one.start for tile in self.tiles for one in tile.passes]
        return min(lengths), max(lengths)

    def lines(self) -> Iterator[str]:
        """A line for each tile: its queries, then the keys of its passes."""
        for tile in self.tiles:
            passes = _abridged([_words(one) for one in tile.passes], "chunks")
            yield f"queries {_range(tile.start, tile.stop)}: keys {', '.join(passes)}"

    def text(self) -> str:
        """The plan in words."""
        return "; ".join(_abridged(list(self.lines()), "tiles"))


def _abridged(words: list[str], what: str) -> list[str]:
    """Of many, the first two and the last two."""
    return words if len(words) <= 6 else [*words[:2], f"{len(words) - 4} {what} more", *words[-2:]]


def _words(one: Pass) -> str:
    words = [_range(one.start, one.stop)]
    if one.causal:
        words.append("causal")
    if one.window is not None:
        words.append(f"window {one.window}")
    if one.at_least > NEVER:
        words.append(f"from {one.at_least} tokens on")
    if one.below < ALWAYS:
        words.append(f"below {one.below} tokens")
    return " ".join(words)


def _range(start: int, stop: int) -> str:
    return f"{start}-{stop - 1}" if stop > start else "none"


@cache
def chunk_plan(problem: Problem, arch: Arch, longest: int | None = None) -> ChunkPlan:
    """The passes of `problem` on `arch`. `longest` limits a chunk's keys, in place of what the planner allows.

    Raises Unsupported with the numbers where no plan fits, ValueError where `longest` is no number of keys.
    """
    if longest is not None and not (is_whole(longest) and longest > 0):
        raise ValueError(f"a chunk has a whole number of keys, at least 1, not {longest!r:.60}.")
    p = problem
    if p.window is not None and p.window >= p.kv_len:
        p = replace(p, window=None)  # it cuts nothing
    unit = _unit(p, arch)
    chunk = -(-(_longest(p, arch) if longest is None else longest) // unit) * unit
    rows = block_rows(p, arch)
    split = _own_windows_from(p)
    queries = _queries(p, arch, chunk, rows)
    passes = -(-split // queries) * -(-p.kv_len // chunk) * (2 if p.ragged and _moves(p) else 1)
    if passes > MOST_PASSES:
        raise Unsupported(
            f"{split} queries in tiles of {queries} against {p.kv_len} tokens in chunks of {chunk} can make {passes} passes, "
            f"and a call has {MOST_PASSES} at most; ask for fewer queries at a time."
        )
    tiles = [] if split == 0 else list(_tiles(replace(p, window=None) if split < p.q_len else p, split, chunk, unit, queries))
    if split < p.q_len:
        tiles.append(_windowed(p, split, unit))
    return ChunkPlan(tuple(tiles), rows)


def block_rows(problem: Problem, arch: Arch) -> int:
    """Query rows that a block of threads can hold in shared memory beside `STEP` keys and values of 16 bits, whatever the
    context. Raises Unsupported if that is less than `SHORTEST_BLOCK`."""
    p = problem
    rows = TALLEST_BLOCK
    while arch.is_gpu and _shared_bytes(p, rows) > arch.shared_per_block:
        rows //= 2
        if rows < SHORTEST_BLOCK:
            raise Unsupported(
                f"{SHORTEST_BLOCK} query rows and {STEP} keys of head dims {p.head_dim} and {p.v_head_dim} take "
                f"{_shared_bytes(p, SHORTEST_BLOCK)} bytes of shared memory, and a block on {arch.name} has "
                f"{arch.shared_per_block}."
            )
    return rows


def _shared_bytes(p: Problem, rows: int) -> int:
    return 2 * (rows * p.head_dim + STEP * max(p.head_dim, p.v_head_dim))


def partial_bytes(problem: Problem) -> int:
    """Bytes of a query's partial results in float32, of all heads and sequences: what is merged so far, with its maximum and
    sum before and after, and what is merged into it, with its LSE."""
    return problem.batch * problem.q_heads * 4 * (2 * problem.v_head_dim + 5)


def _longest(p: Problem, arch: Arch) -> int:
    """Keys of a chunk at most. A CPU, which interprets kernels to show that they are right, has several in small problems."""
    return LONGEST_CHUNK if arch.is_gpu else min(max(48, -(-p.kv_len // 8)), LONGEST_CHUNK)


def _unit(p: Problem, arch: Arch) -> int:
    """Tokens that chunks begin at multiples of: whole pages, whole blocks of V."""
    if isinstance(p.layout, Paged):
        return p.layout.page_size
    if p.v_block_axis == -2:
        return WHOLE_LINES if arch.is_gpu and p.kv_len >= LONGEST_CHUNK else BLOCK
    return 1


def _queries(p: Problem, arch: Arch, chunk: int, rows: int) -> int:
    """Queries of a tile: no more than a chunk's keys, no more than the workspace holds, and whole waves of blocks."""
    heads = p.batch * p.q_heads
    room = WORKSPACE // partial_bytes(p)
    if room == 0:
        raise Unsupported(
            f"partial results of one query of {p.batch} sequences and {p.q_heads} heads take {partial_bytes(p)} bytes, "
            f"and the planner allows {WORKSPACE}."
        )
    most = min(chunk, room)
    sms = next((product.sms for product in products(arch) if product.sms), SMS)
    wave = rows * sms // math.gcd(sms, heads)
    return next((most // size * size for size in (wave, rows) if size <= most), most)


def _own_windows_from(p: Problem) -> int:
    """The first query from which on all queries see a window of their own, that one pass has to take; q_len: none do."""
    if p.window is None or (not p.ragged and not _moves(p)):
        return p.q_len
    if p.ragged:
        return 0
    return min(max(p.window - (p.kv_len - p.q_len), 0), p.q_len)  # the queries before see all keys before them


def _moves(p: Problem) -> bool:
    """Whether queries see different keys."""
    return p.causal and p.q_len > 1


def _windowed(p: Problem, first_query: int, unit: int) -> Tile:
    """The queries from `first_query` on, each with its window, in one pass."""
    assert p.window is not None
    if p.ragged:
        return Tile(0, p.q_len, (Pass(0, p.kv_len, p.causal, p.window),))
    start = max(first_query + p.kv_len - p.q_len - p.window + 1, 0) // unit * unit
    return Tile(first_query, p.q_len, (Pass(start, p.kv_len, p.causal, p.window),))


def _tiles(p: Problem, count: int, chunk: int, unit: int, queries: int) -> Iterator[Tile]:
    """The first `count` queries. The first tile has those that see one chunk at most, or what is left of the others."""
    if _moves(p):
        alone = min(max(chunk - (p.kv_len - p.q_len), 0), count)
    else:
        alone = count if p.kv_len - _first_key(p) // unit * unit <= chunk else 0
    others = -(-(count - alone) // queries)
    start = max(count - others * queries, 0)
    bounds = [*([0] if start else []), *range(start, count, queries), count]
    for first, stop in itertools.pairwise(bounds):
        yield Tile(first, stop, tuple(_passes(p, first, stop, chunk, unit)))


def _passes(p: Problem, first: int, stop: int, chunk: int, unit: int) -> Iterator[Pass]:
    queries = stop - first
    if not _moves(p):
        yield from _uniform(p, chunk, unit)
        return
    delay = p.q_len - stop
    seen = max(p.kv_len - delay, 0)  # keys that the last query sees, at most
    starts = list(range(0, seen, chunk)) or [0]
    if p.ragged:
        yield from _by_length(starts, seen, queries, delay)
        return
    diagonal = max(min(starts[-1], (seen - queries) // unit * unit), 0)
    starts = [*(start for start in starts[:-1] if start < diagonal), diagonal]
    for start, end in zip(starts, [*starts[1:], seen], strict=True):
        yield Pass(start, end, causal=start == diagonal, delay=delay)


def _first_key(p: Problem) -> int:
    """That all queries see, where they see the same keys."""
    return 0 if p.window is None else p.kv_len - p.window


def _uniform(p: Problem, chunk: int, unit: int) -> Iterator[Pass]:
    """Chunks of what all queries see: everything, or the last `window` tokens."""
    first = _first_key(p)
    begin = first // unit * unit
    for start in range(begin, p.kv_len, chunk) if p.kv_len else [0]:
        stop = min(start + chunk, p.kv_len)
        yield Pass(start, stop, causal=False, window=stop - first if start < first else None)


def _by_length(starts: list[int], seen: int, queries: int, delay: int) -> Iterator[Pass]:
    """Two passes for each chunk: for sequences whose diagonal is behind it, and for those whose diagonal begins in it."""
    for start, end in zip(starts, [*starts[1:], seen], strict=True):
        last = end == seen
        if not last and end + queries <= seen:
            yield Pass(start, end, False, delay=delay, at_least=end + queries)
        if start == 0 or start + queries <= seen:
            yield Pass(
                start,
                seen if last else min(end + queries - 1, seen),
                True,
                delay=delay,
                at_least=start + queries if start else NEVER,
                below=ALWAYS if last else end + queries,
            )
