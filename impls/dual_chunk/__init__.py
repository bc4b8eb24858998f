"""`dual-chunk`: attention over uneven chunks of keys, each by another implementation, merged by LSE in float32.

`dual-chunk:triton` has `triton` inside; `dual-chunk` takes the fastest of ours. `planner` says which queries meet which keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from impls.arch import ARCHES, CPU, Arch
from impls.contract import Implementation, Plan, Problem, Rounding, Rounds, Unsupported
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
        self.summary = f"uneven chunks of keys, each by {inner.name}, merged by LSE in float32"

    def using(self, inner: str) -> Implementation:
        from impls.registry import implementation

        chosen = implementation(inner)
        if isinstance(chosen, DualChunkAttention):
            raise ValueError(f"{chosen.name} is made of chunks itself; name what is to compute them.")
        return DualChunkAttention(f"dual-chunk:{inner}", chosen, self.longest)

    def why_not(self, problem: Problem, arch: Arch) -> str | None:
        inner = self.inner
        if inner.repacks:
            return f"it gives slices of the NVFP4 cache to {inner.name}, which turns the cache into another format first."
        if problem.dtype == "float16" and inner.partial_dtype(problem) == "float16":
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
        from impls.dual_chunk.attention import DualChunkPlan

        return DualChunkPlan(problem, arch, self.chunks(problem, arch), self.inner)

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


class DualChunk(DualChunkAttention):
    """With the fastest of ours inside: `triton`, the only one that has been measured."""

    def __init__(self) -> None:
        from impls.triton import TritonAttention

        super().__init__("dual-chunk", TritonAttention())
        self.summary = f"the fastest of dual-chunk:*, today {self.inner.name}"


class DualChunkTriton(DualChunkAttention):
    def __init__(self) -> None:
        from impls.triton import TritonAttention

        super().__init__("dual-chunk:triton", TritonAttention())
