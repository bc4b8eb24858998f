"""Whether two runs of one commit on one machine give the same latencies: python scripts/repeatability.py FOLDER OTHER_FOLDER

The folders are those that `nvfp4bench run --results` wrote. Compared are the medians of cells that were measured in both and
take over 20 us in the first. Exit status: 0 if 95 % of them agree within 2 %, 1 if fewer do, 2 if nothing can be compared.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.journal import Journal, JournalError, read_results

SHORTEST = 20e-6
"""Seconds. Launching is much of what is shorter."""
TOLERANCE = 0.02
WANTED_SHARE = 0.95
SHOWN = 10


def ratios(first: Sequence[Journal], second: Sequence[Journal]) -> dict[str, float]:
    """{cell id: median latency in `second` over that in `first`}, of what both measured at the same origin."""
    earlier, later = _medians(first), _medians(second)
    return {key[-1]: later[key] / earlier[key] for key in earlier.keys() & later.keys() if earlier[key] >= SHORTEST}


def _medians(journals: Sequence[Journal]) -> dict[tuple[str, ...], float]:
    """{(machine, commit, source, cell id): seconds}"""
    return {
        (journal.run.machine, journal.run.commit, journal.run.source, cell.id): statistics.median(cell.series["latency"])
        for journal in journals
        for cell in journal.cells
        if cell.status == "ok" and "latency" in cell.series
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="repeatability", description="Whether two runs give the same latencies.")
    parser.add_argument("first", type=Path, help="folder of results")
    parser.add_argument("second", type=Path, help="another one, of the same commit and machine")
    chosen = parser.parse_args(arguments)
    try:
        found = ratios(read_results(chosen.first)[0], read_results(chosen.second)[0])
    except JournalError as error:
        print(f"repeatability: {error}", file=sys.stderr)
        return 2
    if not found:
        why = f"no cell of the same commit, sources and machine takes over {1e6 * SHORTEST:.0f} us in both folders."
        print(f"repeatability: {why}", file=sys.stderr)
        return 2
    off = sorted((abs(ratio - 1), name) for name, ratio in found.items() if abs(ratio - 1) > TOLERANCE)[::-1]
    share = 1 - len(off) / len(found)
    for _, name in off[:SHOWN]:
        print(f"{found[name]:7.3f}  {name}")
    print(
        f"{len(found) - len(off)} of {len(found)} cells agree within {TOLERANCE:.0%}: {share:.1%}, wanted {WANTED_SHARE:.0%}."
    )
    return 0 if share >= WANTED_SHARE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
