"""The least time that a kernel can take, by what its counters say of each pipe and what an SM does in a clock.

Every bound assumes that the work is spread evenly over the SMs that have a block, that nothing else holds it up, and the clock
that is given. Only work that the machine code surely keeps is counted (`impls.cuda.emulator.counting.classes`), so that no
measurement at that clock can be shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from impls.cuda.emulator.hardware import LANES

if TYPE_CHECKING:
    from impls.cuda.emulator.counting.counters import Counters


@dataclass(frozen=True)
class Bound:
    """Seconds by pipe."""

    seconds: Mapping[str, float]
    """Pipes that have work and a known rate, longest first, equal ones in the order of the alphabet."""
    unknown: tuple[str, ...]
    """Pipes that have work and no known rate: any of them may be the limit."""

    @property
    def limit(self) -> str | None:
        """The pipe that takes longest; None if no pipe with a known rate has work."""
        return next(iter(self.seconds), None)


def work(counters: Counters) -> dict[str, float]:
    """{rate's name: work} of what surely reaches each pipe.

    "issue", "fma", "alu", "fp16", "fp64", "xu", "lsu": lanes of instructions, of warps of which a lane executes them (the
    others may have been branched over); "tensor ...": multiply-accumulates;
    "shared": bytes of the banks; "dram": bytes that no cache can hold before the kernel starts.
    """
    done: dict[str, float] = {"issue": 0.0}
    for kind, warps in zip(counters.kinds, counters.by_instruction("working").tolist(), strict=True):
        done["issue"] += LANES * kind.issues * warps
        if kind.pipe not in ("none", "issue", "tensor"):
            done[kind.pipe] = done.get(kind.pipe, 0.0) + LANES * kind.work * warps
    done.update(counters.products_by_class())
    done["shared"] = float(counters.by_instruction("shared_least_bytes").sum())
    done["dram"] = float(counters.dram_bytes)
    return {name: amount for name, amount in done.items() if amount}


def bound(
    counters: Counters, per_clock: Mapping[str, float], *, sms: int, clock_hz: float, dram_bytes_per_second: float | None
) -> Bound:
    """The least time on `sms` SMs that run at `clock_hz`, each doing `per_clock` of the pipes that `work` names in a clock.

    A pipe that `per_clock` lacks is unknown. No more SMs work than the launch has blocks.
    """
    busy = min(sms, counters.blocks)
    return bound_of(work(counters), per_clock, sms=busy, clock_hz=clock_hz, dram_bytes_per_second=dram_bytes_per_second)


def bound_of(
    amounts: Mapping[str, float],
    per_clock: Mapping[str, float],
    *,
    sms: int,
    clock_hz: float,
    dram_bytes_per_second: float | None,
) -> Bound:
    """As `bound`, of the `work` of a kernel, all of whose blocks are on `sms` SMs."""
    rates = {name: rate * sms * clock_hz for name, rate in per_clock.items()}
    if dram_bytes_per_second is not None:
        rates["dram"] = dram_bytes_per_second
    seconds = {name: amount / rates[name] for name, amount in amounts.items() if name in rates}
    ordered = sorted(seconds, key=lambda name: (-seconds[name], name))
    return Bound({name: seconds[name] for name in ordered}, tuple(sorted(amounts.keys() - rates.keys())))
