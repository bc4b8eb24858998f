"""What emulated launches did, as tables and as JSON. Equal executions give equal texts, on any host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from impls.arch import Arch, products
from impls.cuda.emulation.specification import Buffer
from impls.cuda.emulator.counting.bounds import Bound, bound, work
from impls.cuda.emulator.counting.counters import Counters
from impls.cuda.emulator.emulate import Kernel, Report, parsed
from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.ptx.syntax import Instruction
from impls.cuda.emulator.rules import Rule

SCHEMA = 1
HOTTEST = 10
"""Lines that a table shows."""
COLUMNS = {
    "executions": "warp instr.",
    "lanes": "lanes",
    "global_bytes": "global B",
    "sectors": "sectors",
    "global_requests": "requests",
    "wavefronts": "wavefronts",
    "ideal_wavefronts": "ideal",
    "barriers": "barriers",
    "divergent_branches": "diverged",
}
"""{counted: heading}."""


def text(kernels: Sequence[Kernel], report: Report, arch: Arch | None) -> str:
    """A paragraph of tables for each launch, and what the results rest on."""
    parts = [_launch(kernel, counters, arch) for kernel, counters in zip(kernels, report.counters, strict=True)]
    return "\n\n".join([*parts, *filter(None, [_documented(report.rules)])])


def as_json(
    kernels: Sequence[Kernel],
    outcome: Report | EmulationError,
    buffers: Mapping[str, Buffer],
    *,
    arch: Arch | None,
    options: Mapping[str, Any],
) -> str:
    """Everything.

    schema, ptx_sha256, target, options
    holds      whether nothing was found; `fault` {kind, sentence} is what was, and the rest is there only if nothing was
    launches   [{entry, grid, block, shared_bytes, blocks, dram_bytes, totals, classes, mma,
                 source_lines [{source, counted...}], ptx_lines [{line, source, text, counted...}],
                 work {pipe: amount}, clocks {pipe: of one SM}, unknown_pipes}]
    rules      {name: {status, source}} that were executed
    buffers    {name: {dtype, shape, sha256 of what they hold at the end}}
    """
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "ptx_sha256": hashlib.sha256(kernels[0].ptx.encode()).hexdigest(),
        "target": parsed(kernels[0].ptx).target,
        "options": options,
        "holds": isinstance(outcome, Report),
    }
    if isinstance(outcome, Report):
        data["launches"] = [_record(*each, arch) for each in zip(kernels, outcome.counters, strict=True)]
        data["rules"] = {name: {"status": rule.status, "source": rule.source} for name, rule in sorted(outcome.rules.items())}
        data["buffers"] = {
            name: {
                "dtype": each.dtype,
                "shape": list(each.values.shape),
                "sha256": hashlib.sha256(each.values.tobytes()).hexdigest(),
            }
            for name, each in buffers.items()
        }
    else:
        data["fault"] = {"kind": type(outcome).__name__, "sentence": str(outcome)}
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _launch(kernel: Kernel, counters: Counters, arch: Arch | None) -> str:
    x, y, z = kernel.block
    lines = [f"{kernel.entry}: {_number(counters.blocks, 'block')} of {_number(x * y * z, 'thread')}", ""]
    lines += _counted("class", [(name, "", counts) for name, counts in counters.by_class().items()])
    rows = sorted(_by_place(kernel, counters), key=_heat, reverse=True)
    lines += ["", *_counted("hottest lines", rows[:HOTTEST])]
    if len(rows) > HOTTEST:
        lines.append(f"and {_number(len(rows) - HOTTEST, 'other line')}")
    if arch is not None:
        lines += [
            "",
            *(_bounds(counters, arch) if arch.per_clock else [f"no rate of {arch.name} is known, so no bound either"]),
        ]
    if counters.dram_bytes:
        lines += ["", f"DRAM has to deliver {counters.dram_bytes:,} B at least, if no cache holds any of it before."]
    return "\n".join(lines)


def _counted(title: str, rows: Sequence[tuple[str, str, Mapping[str, int]]]) -> list[str]:
    """A table of (name, remark, counts): columns of nothing but zeros are left out."""
    columns = [counted for counted in COLUMNS if any(counts[counted] for _, _, counts in rows)]
    lines = [(title, *(COLUMNS[counted] for counted in columns), "")]
    lines += [(name, *(f"{counts[counted]:,}" for counted in columns), remark) for name, remark, counts in rows]
    return _aligned(lines)


def _bounds(counters: Counters, arch: Arch) -> list[str]:
    """Clocks that each pipe needs at least."""
    sizes = {"one SM": 1, **{f"{each.name} ({each.sms} SMs)": each.sms for each in products(arch) if each.sms}}
    columns: dict[str, Bound] = {
        name: bound(counters, arch.per_clock, sms=sms, clock_hz=1, dram_bytes_per_second=None) for name, sms in sizes.items()
    }
    clocks = columns["one SM"]
    lines = [("clocks at least", *columns, "")]
    for pipe in clocks.seconds:
        lines.append((pipe, *(f"{each.seconds[pipe]:,.1f}" for each in columns.values()), ""))
    unknown = [pipe for pipe in clocks.unknown if pipe != "dram"]
    left = [f"no rate of {arch.name} is known for {', '.join(unknown)}"] if unknown else []
    return [*_aligned(lines), *left]


def _documented(rules: Mapping[str, Rule]) -> str:
    """What nobody has confirmed."""
    found = sorted(name for name, rule in rules.items() if rule.status == "documented only")
    if not found:
        return ""
    width = max(map(len, found))
    listed = [f"  {name.ljust(width)}  {rules[name].source}" for name in found]
    return "\n".join([f"PTX was executed, not machine code. {len(found)} of its rules are only documented:", *listed])


def _by_place(kernel: Kernel, counters: Counters) -> list[tuple[str, str, Mapping[str, int]]]:
    """(place, instruction, counts) of source lines where the PTX names them, else of PTX lines, in the order of the program."""
    body = parsed(kernel.ptx).functions[kernel.entry].body
    places = [_source(each) or f"PTX line {each.line}" for each in body]
    texts: dict[str, list[str]] = {}
    for place, each in zip(places, body, strict=True):
        texts.setdefault(place, []).append(each.text)
    return [
        (place, found[0] if len(found := texts[place]) == 1 else f"{len(found)} instructions", counts)
        for place, counts in counters.by_source_line(places).items()
        if place is not None
    ]


def _heat(row: tuple[str, str, Mapping[str, int]]) -> tuple[int, int]:
    """What a line costs, roughly: instructions first, then how often memory is asked."""
    counts = row[2]
    return counts["executions"], counts["sectors"] + counts["wavefronts"]


def _record(kernel: Kernel, counters: Counters, arch: Arch | None) -> dict[str, Any]:
    body = parsed(kernel.ptx).functions[kernel.entry].body
    by_index = counters.by_source_line(range(len(body)))
    by_source = counters.by_source_line([_source(each) for each in body])
    clocks = bound(counters, arch.per_clock if arch else {}, sms=1, clock_hz=1, dram_bytes_per_second=None)
    return {
        "entry": kernel.entry,
        "grid": kernel.grid,
        "block": kernel.block,
        "shared_bytes": kernel.shared_bytes,
        **counters.record(),
        "source_lines": [{"source": source, **counts} for source, counts in by_source.items()],
        "ptx_lines": [
            {"line": body[index].line, "source": _source(body[index]), "text": body[index].text, **counts}
            for index, counts in by_index.items()
            if index is not None
        ],
        "work": work(counters),
        "clocks": dict(clocks.seconds),
        "unknown_pipes": clocks.unknown,
    }


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _source(instruction: Instruction) -> str | None:
    return f"{instruction.source.file}:{instruction.source.line}" if instruction.source else None


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """First column to the left, numbers to the right, the last as it is."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            [first.ljust(widths[0]), *(word.rjust(width) for word, width in zip(middle, widths[1:-1], strict=True)), last]
        ).rstrip()
        for first, *middle, last in lines
    ]
