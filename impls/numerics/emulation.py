"""What the gate asks of the emulator, and what it makes of its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from impls.arch import Arch
from impls.contract import Implementation, Launch, Unsupported
from impls.cuda.emulation.launches import run_emulated
from impls.cuda.emulator.errors import EmulationError, NotExecuted, Unknown
from impls.cuda.emulator.machine.schedules import SCHEDULES
from impls.numerics.cases import Case

LONGEST = 65536
"""Tokens of a sequence up to which a case runs under all schedules; beyond, each would take a minute."""


@dataclass(frozen=True)
class Emulation:
    """What came of the launches of one call; of none, where nothing was emulated."""

    schedules: Sequence[str] = ()
    """Orders of warps that they were executed in, and left the same bits."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """{name: status} of what their instructions rest on."""
    fault: str | None = None
    """The sentence of the check that found them at fault; then the memory is as it was."""


def why_not_emulated(chosen: Implementation, case: Case) -> str | None:
    """None if `chosen` is made of kernels that `case` can be emulated with, else one sentence."""
    if not chosen.lists_launches:
        return f"{chosen.name} lists no launches of kernels, so there is no PTX to emulate."
    if chosen.repacks:
        return f"{chosen.name} converts the cache by kernels that are no part of a call, and only those of a call are emulated."
    if case.placement == "far":
        return f"{case.name} reserves gigabytes and touches little of them; the emulator copies all that kernels can reach."
    return None


def schedules(case: Case) -> Sequence[str]:
    """In which orders the warps of `case` are executed."""
    return SCHEDULES[:1] if case.problem.kv_len > LONGEST else SCHEDULES


def emulated(launches: Sequence[Launch], arch: Arch, orders: Sequence[str] = SCHEDULES) -> Emulation:
    """Execute `launches`. Raises Unsupported where there are none or the emulator does not know an instruction of theirs, and
    `NotExecuted` where it could not execute them though it does."""
    if not launches:
        raise Unsupported("parts of a call are no kernels that it lists, so there is not the PTX of all of it to emulate.")
    try:
        report = run_emulated(launches, arch, schedules=orders)
    except Unknown as error:
        what = re.sub(r"^PTX line \d+[^:]*: ", "", error.sentence)  # of other kernels another line, of all one reason
        raise Unsupported(f"the emulator does not execute all that it launches: {what}") from error
    except NotExecuted:
        raise  # no word on the kernel, and none that it may be passed over: the case has failed
    except EmulationError as error:
        return Emulation(orders, fault=error.sentence)
    return Emulation(report.schedules, {name: rule.status for name, rule in sorted(report.rules.items())})
