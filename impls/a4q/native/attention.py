"""The plan of `a4q` with native kernels."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from impls.a4q.attention import TiledPlan
from impls.a4q.native.planner import NativeSchedule, NativeTile, schedule
from impls.arch import Arch
from impls.contract import Problem
from impls.cuda.compiler import Kernel, compile_kernel
from impls.triton.arguments import Alignment

KERNELS = Path(__file__).with_name("kernels")


class NativePlan(TiledPlan[NativeSchedule]):
    """By native/kernels/attend.cu."""

    def __init__(self, problem: Problem, arch: Arch, *, tile: NativeTile | None = None, partial: bool = False) -> None:
        """`tile` in place of the planner's."""
        super().__init__(problem, arch, schedule(problem, arch, tile), rounds_q=True, partial=partial)

    def describe(self) -> dict[str, int | str]:
        s = self.schedule
        tile: dict[str, int] = asdict(s.tile)
        return {"kernel": "native", "rows": s.rows, **tile, "splits": s.splits, "keys_of_a_team": s.keys_of_a_team}

    def _attend(self, alignment: Alignment, lines: dict[str, int]) -> Kernel:
        s = self.schedule
        defines = self._defines(alignment, lines) | {
            "Q_ALIGNMENT": alignment.q,
            "OUT_ALIGNMENT": alignment.out,
            "ROW_WARPS": s.tile.row_warps,
            "TEAMS": s.tile.teams,
            "KEYS": s.tile.keys,
            "STAGES": s.tile.stages,
        }
        return compile_kernel(KERNELS / "attend.cu", "a4q_native", self.arch, defines)
