"""`dual-chunk`: attention over uneven chunks of keys, each by another implementation, merged by LSE in float32.

`dual-chunk:triton` has `triton` inside; `dual-chunk` takes the fastest of ours, and its plan says which. `planner` says which
queries meet which keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from impls.a4q import planner as a4q_planner
from impls.arch import ARCHES, CPU, Arch
from impls.contract import EXACT, Implementation, Plan, Problem, Rounding, Rounds, Unsupported
from impls.dual_chunk.planner import ChunkPlan, chunk_plan
from impls.triton import availability

MERGED_KEYS = 4
"""Keys that lengthen a chain as much as a merge into what is there: 6 to 7 units of rounding (two weights' arguments, exp2, a
product, a sum) against 1.75 a key."""


class DualChunkAttention(Implementation):
    """Chunks, each by `inner`."""

    def __init__(self, name: str, inner: Implementation, longest: int | None = None) -> None:
        """`longest` limits a chunk's keys, in place of what the planner allows."""
        self.name = name
        self.inner = inner
        self.longest = longest
        self.lists_launches = inner.lists_launches
        self.summary = f"uneven chunks of keys, each by {inner.name}, merged by LSE in float32"

    def using(self, inner: str) -> Implementation:
        from impls.registry import implementation

        chosen = implementation(inner)
        if isinstance(chosen, (DualChunkAttention, DualChunk)):
            raise ValueError(f"{chosen.name} is made of chunks itself; name what is to compute them.")
        return DualChunkAttention(f"dual-chunk:{inner}", chosen, self.longest)

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        inner = self.inner
        if inner.repacks:
            return f"it gives slices of the NVFP4 cache to {inner.name}, which turns the cache into another format first."
        if self.overflows(problem):
            return f"{inner.name} writes partial results in float16, where one may overflow that hardly counts."
        if arch.is_gpu and (reason := availability.why_not(arch)):
            return reason  # partial results are merged by a Triton kernel
        if reason := inner.why_not(problem, arch):
            return reason
        try:
            parts = self._parts(problem, arch)
        except Unsupported as error:
            return str(error)
        return next(filter(None, (inner.why_not(part, arch) for part in parts)), None)

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        return self.planned(problem, arch)

    def planned(self, problem: Problem, arch: Arch, *, chosen_because: str | None = None) -> Plan:
        """`plan`, which says why `inner` was chosen, if it was."""
        from impls.dual_chunk.attention import DualChunkPlan

        chunks = self.chunks(problem, arch)
        return DualChunkPlan(problem, arch, chunks, self.inner, chosen_because=chosen_because)

    def overflows(self, problem: Problem) -> bool:
        """Whether its partial results may."""
        return problem.dtype == "float16" and self.inner.partial_dtype(problem) == "float16"

    def partial_dtype(self, problem: Problem) -> str:
        return self.inner.partial_dtype(problem)

    def plan_partial(self, problem: Problem, arch: Arch) -> Plan:
        from impls.dual_chunk.attention import DualChunkPlan

        return DualChunkPlan(problem, arch, self.chunks(problem, arch), self.inner, partial=True)

    def rounds(self, problem: Problem) -> Rounds:
        """What the inner one rounds, and the partial results that it writes out."""
        return {**self.inner.rounds(problem), "partial": Rounding(self.inner.partial_dtype(problem))}

    def accumulator_chain(self, problem: Problem) -> int:
        """The longest of any chunk, and what the merges add to it."""
        longest = 1
        for arch in (CPU, *ARCHES.values()):
            try:
                merges = self.chunks(problem, arch).most_passes
                chains = [self.inner.accumulator_chain(part) for part in self._parts(problem, arch)]
            except Unsupported:
                continue
            longest = max(longest, max(chains) + MERGED_KEYS * merges)
        return longest

    def chunks(self, problem: Problem, arch: Arch) -> ChunkPlan:
        """Raises Unsupported where no plan fits."""
        return chunk_plan(problem, arch, self.longest)

    def _parts(self, problem: Problem, arch: Arch) -> list[Problem]:
        """The problems of all passes, each once."""
        return list(dict.fromkeys(_problems(problem, self.chunks(problem, arch))))


def _problems(problem: Problem, chunks: ChunkPlan) -> Iterator[Problem]:
    for tile in chunks.tiles:
        for one in tile.passes:
            yield tile.problem(problem, one)


class DualChunk(Implementation):
    """The fastest of ours (`results/NOTES.md`): `a4q-q16` where it has a kernel for so many query rows, else `triton`. For few
    rows it has one everywhere, for many where there is wgmma; elsewhere it decodes the keys again for every few rows, and some
    problems and machines it refuses. Not `a4q`, whose Q is NVFP4: what a name rounds may depend on the problem, not on the
    machine, and `triton` rounds no queries."""

    name = "dual-chunk"
    summary = "dual-chunk:a4q-q16 where it has a kernel for so many query rows, else dual-chunk:triton"
    lists_launches = True

    def __init__(self) -> None:
        from impls.a4q import A4QQ16
        from impls.triton import TritonAttention

        self.fastest = DualChunkAttention(self.name, A4QQ16())
        self.anywhere = DualChunkAttention(self.name, TritonAttention())

    def using(self, inner: str) -> Implementation:
        return self.anywhere.using(inner)

    def chosen(self, problem: Problem, arch: Arch) -> tuple[DualChunkAttention, str]:
        """(what computes `problem` on `arch`, why)."""
        if reason := self.fastest.why_not(problem, arch):
            return self.anywhere, reason
        name, rows = self.fastest.inner.name, problem.q_len * problem.group
        if not a4q_planner.decodes_once(problem, arch):
            return self.anywhere, f"{name} has no kernel for {rows} query rows on {arch.name}"
        return self.fastest, f"{name} has a kernel for {rows} query rows on {arch.name}"

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        return self.chosen(problem, arch)[0].why_not(problem, arch)

    def plan(self, problem: Problem, arch: Arch) -> Plan:
        chosen, why = self.chosen(problem, arch)
        return chosen.planned(problem, arch, chosen_because=why)

    def rounds(self, problem: Problem) -> Rounds:
        """The coarser rounding of each operand of those that `chosen` may give: all of them enter the bound alone."""
        found: dict[Any, Rounding] = {}
        for one in self._candidates(problem):
            for operand, rounding in one.rounds(problem).items():
                found[operand] = max(found.get(operand, EXACT), rounding, key=lambda r: r.unit_roundoff)
        return found

    def accumulator_chain(self, problem: Problem) -> int:
        return max(one.accumulator_chain(problem) for one in self._candidates(problem))

    def _candidates(self, problem: Problem) -> list[DualChunkAttention]:
        """What `chosen` may give, whatever the architecture."""
        name = self.fastest.inner.name
        able = [arch for arch in ARCHES.values() if not a4q_planner.why_not(name, problem, arch)]
        taken = any(a4q_planner.decodes_once(problem, arch) for arch in able)
        return [self.fastest, self.anywhere] if taken else [self.anywhere]


class DualChunkTriton(DualChunkAttention):
    def __init__(self) -> None:
        from impls.triton import TritonAttention

        super().__init__("dual-chunk:triton", TritonAttention())
