"""Instructions of the native kernels' loop, from the cubins: python -m tests.a4q.native.issue_slots [ARCH].

A step of all warps of a block. Needs nvdisasm, no GPU. The mask and the rescaling by a new largest score, which are branched
around, are not counted.
"""

from __future__ import annotations

import sys

from impls.a4q.native.attention import NativePlan
from impls.arch import find
from impls.contract import Problem
from tests.a4q.issue_slots import loop

COLUMNS = (
    *("head dim", "rows", "keys", "registers", "shared bytes", "bytes of a step", "OMMA", "HMMA", "issue slots"),
    *("slots of a warp", "most frequent"),
)


def main(arch: str = "sm_120a") -> None:
    print("|", " | ".join(COLUMNS), "|")
    print("|---" * len(COLUMNS), "|", sep="")
    for dim in (64, 128, 192, 256, 512):
        for q_len, kv_len in ((1, 131072), (8192, 8192)):
            plan = NativePlan(Problem(1, 32, 8, q_len, kv_len, dim, dim), find(arch))
            kernel, s = plan.kernels()[0], plan.schedule
            found, warps = loop(kernel), s.threads // 32
            shared, step = s.shared_bytes + kernel.facts.shared_bytes, s.tile.keys * dim * 9 // 8
            often = ", ".join(f"{name} {count}" for name, count in found.most_common(6))
            counts = (warps * found["OMMA"], warps * found["HMMA"], warps * found.total(), found.total())
            print(
                "|", " | ".join(map(str, (dim, s.rows, s.tile.keys, kernel.facts.registers, shared, step, *counts, often))), "|"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
