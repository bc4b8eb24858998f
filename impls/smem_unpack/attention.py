"""The plan of `smem-unpack`."""

from __future__ import annotations

from pathlib import Path

from impls.arch import Arch
from impls.contract import Problem
from impls.cuda.attention import problem_defines
from impls.cuda.compiler import Kernel, compile_kernel
from impls.cuda.plan import AttendPlan
from impls.smem_unpack.planner import KEYS, Schedule, blocks_per_sm, row_warps_for, schedule
from impls.triton.arguments import Alignment

SOURCE = Path(__file__).parent / "kernels" / "attend.cu"
BLOCK_BYTES = 8
"""Of codes, which are loaded together."""


class SmemUnpackPlan(AttendPlan[Schedule]):
    """Compiles for tensors with packed lines; `bind` compiles again for tensors that are aligned less."""

    def __init__(self, problem: Problem, arch: Arch) -> None:
        super().__init__(problem, arch, schedule(problem, row_warps_for(problem, arch)))

    def describe(self) -> dict[str, int | str]:
        s = self.schedule
        return {
            "rows": 16 * s.row_warps,
            "keys_of_a_tile": KEYS,
            "shared_bytes": s.shared_bytes,
            "splits": s.splits,
            "keys_of_a_split": s.keys_of_a_split,
        }

    def _attend(self, alignment: Alignment, lines: dict[str, int]) -> Kernel:
        p, s = self.problem, self.schedule
        defines: dict[str, int | str] = {
            **problem_defines(p, s),
            "K_TYPE": "Float16",
            **dict.fromkeys((name.upper() for name in lines), 0),  # as if no distance were known
            "K_CODES_ALIGNMENT": min(alignment.k_codes, BLOCK_BYTES),
            "V_CODES_ALIGNMENT": min(alignment.v_codes, BLOCK_BYTES),
            "ROW_WARPS": s.row_warps,
            "SHARED_BYTES": s.shared_bytes,
            "BLOCKS_PER_SM": blocks_per_sm(p, s, self.arch),
        }
        return compile_kernel(SOURCE, "smem_unpack_attend", self.arch, defines)
