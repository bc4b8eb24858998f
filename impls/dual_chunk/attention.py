"""The plan and the runner of `dual-chunk`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from impls.arch import Arch
from impls.contract import Cache, Implementation, Launch, Output, Plan, Problem, Runner
from impls.cuda.runner import CompiledRunner
from impls.dual_chunk.merging import Fold, Lengths, State, merging
from impls.dual_chunk.planner import ChunkPlan, Pass, Tile
from impls.dual_chunk.views import part, rows
from impls.host import require_arch
from impls.validation import bind_inputs, inputs_of


class DualChunkPlan(Plan):
    """A plan of `inner` for every pass; those that differ in place alone share one."""

    def __init__(
        self,
        problem: Problem,
        arch: Arch,
        chunks: ChunkPlan,
        inner: Implementation,
        *,
        partial: bool = False,
        chosen_because: str | None = None,
    ) -> None:
        """`partial`: out is what `inner` writes partial results as. `chosen_because`: why `inner`, where that was a choice."""
        self.problem = problem
        self.arch = arch
        self.chunks = chunks
        self.inner = inner
        self.partial = partial
        self.chosen_because = chosen_because
        self.partial_dtype = inner.partial_dtype(problem)
        self.out_dtype = self.partial_dtype if partial else problem.dtype
        self.merging = merging(problem, arch, self.out_dtype, self.partial_dtype)
        self._plans: dict[tuple[Problem, bool], Plan] = {}
        for tile in chunks.tiles:
            for one in tile.passes:
                self.inner_plan(tile, one)
        if arch.is_gpu and chunks.merged_queries:
            self.merging.prepare(min(chunks.most_passes, 4))  # more of them repeat what four do

    @property
    def workspace_bytes(self) -> int:
        """What is merged, and what the inner plans take: once each where passes share it, else once a pass."""
        p = self.problem
        heads_and_queries = p.batch * p.q_heads * self.chunks.merged_queries
        partial = heads_and_queries * (p.v_head_dim * getattr(torch, self.partial_dtype).itemsize + 4)
        state = heads_and_queries * (4 * p.v_head_dim + 16)
        first = 0 if self.partial_dtype == "float32" else heads_and_queries * p.v_head_dim * 2
        lengths = 4 * self.chunks.passes * (p.batch + 5) if p.ragged else 0
        shared = sum(plan.workspace_bytes for plan in self._plans.values() if plan.shares_workspace)
        each = [self.inner_plan(tile, one) for tile in self.chunks.tiles for one in tile.passes]
        alone = sum(plan.workspace_bytes for plan in each if not plan.shares_workspace)
        return state + partial + first + lengths + shared + alone

    def describe(self) -> dict[str, int | str]:
        shortest, longest = self.chunks.chunk_lengths
        tile, one = max(
            ((tile, one) for tile in self.chunks.tiles for one in tile.passes), key=lambda found: found[1].stop - found[1].start
        )
        return {
            "inner": self.inner.name,
            **({"chosen_because": self.chosen_because} if self.chosen_because else {}),
            "merged_by": self.merging.name,
            "passes": self.chunks.passes,
            "shortest_chunk": shortest,
            "longest_chunk": longest,
            "queries_per_tile": max(tile.queries for tile in self.chunks.tiles),
            "rows_per_block": self.chunks.block_rows,
            "chunks": self.chunks.text(),
            **{f"inner_{name}": value for name, value in self.inner_plan(tile, one).describe().items()},
        }

    def inner_plan(self, tile: Tile, one: Pass) -> Plan:
        """The plan of `inner` for a pass."""
        key = tile.problem(self.problem, one), self._whole(tile)
        if key not in self._plans:
            make = self.inner.plan if key[1] else self.inner.plan_partial
            self._plans[key] = make(key[0], self.arch)
        return self._plans[key]

    def bind(
        self,
        q: torch.Tensor,
        cache: Cache,
        *,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        kv_lens: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
    ) -> Runner:
        inputs = inputs_of(q, cache, kv_lens, block_table)
        output = bind_inputs(self.problem, inputs, out, lse, out_dtype=self.out_dtype)
        if self.arch.is_gpu:
            require_arch(q.device, self.arch)
        calls: list[Callable[[], None]] = []
        lengths: Sequence[torch.Tensor | None] = [None] * self.chunks.passes
        if kv_lens is not None:
            given = self._lengths(kv_lens)
            calls.append(self.merging.take_lengths(given))
            lengths = given.lengths.unbind(0)
        for plan in self._plans.values():
            plan.new_workspace()  # another runner of this plan may be called at the same time, on another stream
        room = _Room(self, q.device)
        following = iter(lengths)
        for tile in self.chunks.tiles:
            results = [rows(output, tile)] if len(tile.passes) == 1 else room.results(tile)
            for number, (one, result) in enumerate(zip(tile.passes, results, strict=True)):
                seen = part(self.problem, inputs, tile, one, next(following))
                calls.append(
                    self.inner_plan(tile, one).bind(
                        seen.q,
                        Cache(seen.k4, seen.v4),
                        out=result.out,
                        lse=result.lse,
                        kv_lens=seen.kv_lens,
                        block_table=seen.block_table,
                    )
                )
                if number:
                    first = results[0] if number == 1 else None
                    into = rows(output, tile) if one is tile.passes[-1] else None
                    state, new = room.state(tile, number - 1), room.state(tile, number)
                    calls.append(self.merging.fold(Fold(state, new, first, result, into)))
        if all(isinstance(call, CompiledRunner) for call in calls):
            launches = [launch for call in calls if isinstance(call, CompiledRunner) for launch in call.launches]
            return CompiledRunner(output, launches, self.arch)
        return ChunkedRunner(output, calls)

    def _whole(self, tile: Tile) -> bool:
        """Whether the one pass of `tile` writes the result itself, in q's dtype."""
        return len(tile.passes) == 1 and not self.partial

    def _lengths(self, kv_lens: torch.Tensor) -> Lengths:
        passes = [one for tile in self.chunks.tiles for one in tile.passes]
        rules = [[one.start, one.stop - one.start, one.delay, one.at_least, one.below] for one in passes]
        return Lengths(
            kv_lens,
            torch.tensor(rules, dtype=torch.int32, device=kv_lens.device),
            torch.zeros(len(passes), self.problem.batch, dtype=torch.int32, device=kv_lens.device),
        )


class _Room:
    """Memory for partial results, which all tiles use one after the other."""

    def __init__(self, plan: DualChunkPlan, device: torch.device) -> None:
        p = plan.problem
        self._heads = p.batch, p.q_heads
        self._width = p.v_head_dim
        count = p.batch * p.q_heads * plan.chunks.merged_queries
        dtype = getattr(torch, plan.partial_dtype)

        def room(values: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(values, dtype=dtype, device=device)

        self._acc = room(count * self._width)
        self._top, self._total = (room(count), room(count)), (room(count), room(count))
        self._out, self._lse = room(count * self._width, dtype), room(count)
        self._first = self._acc if dtype == torch.float32 else room(count * self._width, dtype)

    def results(self, tile: Tile) -> list[Output]:
        """Where the passes of `tile` write to: the first where the others are merged into."""
        first = Output(self._wide(self._first, tile), self._narrow(self._top[0], tile))
        others = Output(self._wide(self._out, tile), self._narrow(self._lse, tile))
        return [first, *[others] * (len(tile.passes) - 1)]

    def state(self, tile: Tile, merges: int) -> State:
        """What is merged after so many merges."""
        top, total = self._top[merges % 2], self._total[merges % 2]
        return State(self._wide(self._acc, tile), self._narrow(top, tile), self._narrow(total, tile))

    def _wide(self, memory: torch.Tensor, tile: Tile) -> torch.Tensor:
        shape = (*self._heads, tile.queries, self._width)
        return memory[: math.prod(shape)].view(shape)

    def _narrow(self, memory: torch.Tensor, tile: Tile) -> torch.Tensor:
        shape = (*self._heads, tile.queries)
        return memory[: math.prod(shape)].view(shape)


class ChunkedRunner(Runner):
    """Calls one after the other, on torch's current stream."""

    def __init__(self, output: Output, calls: list[Callable[[], None]]) -> None:
        self.output = output
        self._calls = calls

    def __call__(self) -> None:
        for call in self._calls:
            call()

    @property
    def launches(self) -> tuple[Launch, ...]:
        """None: parts of a call are torch's."""
        return ()
