"""Instructions of the loop over whole steps, from the cubins: python -m tests.a4q.issue_slots [ARCH]. Needs nvdisasm, no GPU.

The loop is told from others by its tensor-core products and its size: with as many, the masked one has more instructions. What
the rare branch of a new largest score skips is not counted.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.inspection import needed_disassembler
from impls.a4q.attention import A4QPlan
from impls.arch import find
from impls.contract import Problem
from impls.cuda.compiler import Kernel
from impls.isa.toolchain import Processes

LABEL = re.compile(r"^(\.L_x_\d+):")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?);")
TARGET = re.compile(r"BRA.*`\((\.L_x_\d+)\)")
PREDICATED = re.compile(r"@!?U?P\d+ BRA")
RARE = 20  # a forward branch over at least so many


def instructions(cubin: bytes) -> tuple[list[str], dict[str, int]]:
    """(instructions, {label: index of the one behind it})."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        text = Processes(60).run([needed_disassembler().path, "--print-code", "--no-dataflow", Path(file.name)]).output
    code: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(code)
        elif instruction := INSTRUCTION.match(line):
            code.append(instruction[1])
    return code, labels


def loop(kernel: Kernel) -> Counter[str]:
    """{opcode: how often} of an ordinary pass through the loop."""
    code, labels = instructions(kernel.cubin)
    jumps = {at: labels[found[1]] for at, one in enumerate(code) if (found := TARGET.search(one)) and found[1] in labels}
    passes = []
    for end, begin in jumps.items():
        if begin < end:
            skipped: set[int] = set()
            for at in range(begin, end):
                to = jumps.get(at, 0)
                copies = any("LDGSTS" in one for one in code[at:to])  # of a later step, in all but the last
                if PREDICATED.match(code[at]) and at + RARE < to <= end and not copies:
                    skipped |= set(range(at + 1, to))
            kept = [code[at] for at in range(begin, end + 1) if at not in skipped]
            passes.append(Counter(re.sub(r"^@\S+ ", "", one).split()[0].split(".")[0] for one in kept))
    with_products = [one for one in passes if one["HMMA"]]
    return min(with_products, key=lambda one: one.total())


def main(arch: str = "sm_90a") -> None:
    print("| head dim | tile | registers | bytes of a step | MMA | issue slots | issue slots a key | most frequent |")
    print("|---|---|---|---|---|---|---|---|")
    for dim in (64, 128, 192, 256, 512):
        plan = A4QPlan(Problem(1, 32, 8, 1, 131072, dim, dim), find(arch), rounds_q=True)
        tile, kernel = plan.schedule.tile, plan.kernels()[0]
        found, keys = loop(kernel), 16 * tile.key_tiles
        warps = tile.warps // plan.schedule.teams
        often = ", ".join(f"{name} {count}" for name, count in found.most_common(6))
        shape = f"{tile.key_tiles}, {tile.warps}, {tile.blocks_per_sm}"
        slots = f"{warps * found['HMMA']} | {warps * found.total()} | {warps * found.total() / keys:.1f}"
        print(f"| {dim} | {shape} | {kernel.facts.registers} | {keys * dim * 9 // 8} | {slots} | {often} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
