"""Resource limits that an assembler enforces, found by bisection.

Each limit is the largest number that is still taken. 0 means that not even the smallest is (no tensor memory, no clusters);
None means that the assembler takes every number and leaves the limit to the driver. A limit at which it crashed or hung
is left out.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from impls.isa.processes import Processes
from impls.isa.toolchain import Assembler


@dataclass(frozen=True)
class Limit:
    """One limit: the entry that uses `n` of it, and the numbers between which it is looked for."""

    meaning: str
    smallest: int
    largest: int
    declarations: Callable[[int], str] = lambda n: ""
    directives: Callable[[int], str] = lambda n: ""
    statements: Callable[[int], str] = lambda n: ""
    step: Callable[[int], int] = lambda n: n
    """The number that bisection position n stands for, where not every number is allowed."""
    ignored_warning: str = "\0"
    """Where the assembler does not refuse but warns that it ignores the number: a part of that warning."""


LIMITS: Mapping[str, Limit] = {
    "static_shared_bytes": Limit(
        "bytes of shared memory that a block may declare",
        1,
        1 << 20,
        declarations=lambda n: f".shared .align 16 .b8 buffer[{n}];",
        statements=lambda n: "mov.b32 %a, buffer; st.volatile.shared.b32 [%a], %a;",
    ),
    "dynamic_shared_bytes": Limit(
        "bytes of shared memory that a launch may ask for: no PTX states it, so no assembler limits it",
        1,
        1,
        declarations=lambda n: ".extern .shared .align 16 .b8 buffer[];",
        statements=lambda n: "mov.b32 %a, buffer; st.volatile.shared.b32 [%a], %a;",
    ),
    "registers": Limit(
        "32-bit registers of a thread",
        1,
        1 << 16,
        directives=lambda n: f".maxnreg {n}",
        ignored_warning="Too many maxnreg",
    ),
    "threads_per_sm": Limit(
        "threads of one block that fit an SM",
        32,
        1 << 16,
        directives=lambda n: f".reqntid {n}",
        ignored_warning="threads per SM",
    ),
    "tmem_columns": Limit(
        "columns of tensor memory that one allocation may take",
        5,
        20,
        statements=lambda n: f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%a], {n};",
        step=lambda n: 1 << n,
    ),
    "cluster_blocks": Limit(
        "blocks of a cluster",
        1,
        1 << 16,
        directives=lambda n: f".explicitcluster .reqnctapercluster {n}, 1, 1",
    ),
}


def find_limits(target: str, assembler: Assembler, processes: Processes) -> dict[str, int | None]:
    """{limit: the largest number `assembler` takes for `target`}."""
    found = {}
    for name, limit in LIMITS.items():
        with contextlib.suppress(_NoAnswer):
            found[name] = _bisect(limit, target, assembler, processes)
    return found


class _NoAnswer(Exception):
    """The assembler crashed or ran out of time."""


def _bisect(limit: Limit, target: str, assembler: Assembler, processes: Processes) -> int | None:
    def takes(position: int) -> bool:
        return _takes(limit, limit.step(position), target, assembler, processes)

    low, high = limit.smallest, limit.largest
    if not takes(low):
        return 0
    if takes(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if takes(middle):
            low = middle
        else:
            high = middle
    return limit.step(low)


def _takes(limit: Limit, number: int, target: str, assembler: Assembler, processes: Processes) -> bool:
    """Whether an entry that uses `number` is assembled, and not by ignoring the number."""
    text = (
        f".version {assembler.ptx_version}\n.target {target}\n.address_size 64\n{limit.declarations(number)}\n"
        f".visible .entry k(.param .b64 buffer_address) {limit.directives(number)}\n"
        "{\n.reg .b32 %a; .reg .b64 %io;\nld.param.b64 %io, [buffer_address];\nld.volatile.b32 %a, [%io];\n"
        f"{limit.statements(number)}\nst.volatile.b32 [%io], %a;\nret;\n}}\n"
    )
    with tempfile.TemporaryDirectory(prefix="nvfp4bench-isa-") as folder:
        source = Path(folder) / "limit.ptx"
        source.write_text(text)
        ended = processes.run([assembler.path, f"-arch={target}", source, "-o", source.with_suffix(".cubin")])
    if ended.status is None or ended.status < 0:
        raise _NoAnswer
    return ended.status == 0 and limit.ignored_warning not in ended.errors + ended.output
