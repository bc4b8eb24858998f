"""What the scripts that check kernels on a GPU without pytest share: compile ahead, check one after the other, count."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor

import torch

from impls.host import usable_cores

Check = tuple[str, Callable[[], str | None]]
"""(its name, a call that gives what to print, and raises where it does not hold)."""


class DoesNotHold(AssertionError):
    """What was found is not right; the message says all there is to say."""


def named(words: Sequence[str], checks: Iterable[Check]) -> list[Check]:
    """Those whose names contain one of the words; all where there is none."""
    return [(name, one) for name, one in checks if not words or any(word in name for word in words)]


def at_once(jobs: Iterable[Callable[[], object]]) -> None:
    """Compile all, in as many processes as there are cores, and pass over what fails: whoever needs it will say so."""
    start = time.perf_counter()
    with ProcessPoolExecutor(usable_cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.exception()
    print(f"compiled in {time.perf_counter() - start:.0f} s", flush=True)


def hold(checks: Sequence[Check], arch: str) -> bool:
    """Whether there are some and all hold. Prints a line each, then their number."""
    failed = []
    for name, one in checks:
        start = time.perf_counter()
        try:
            said, told = "ok  ", one() or ""
            torch.cuda.synchronize()
        except Exception as error:  # every other one is still to be checked
            said, told = "FAIL", str(error) if isinstance(error, DoesNotHold) else traceback.format_exc()
            failed.append(name)
        print(f"{said}  {name}  {told}  {time.perf_counter() - start:.1f} s", flush=True)
    print(f"{arch}: {len(checks) - len(failed)} of {len(checks)} hold" + (f"; not {', '.join(failed)}" if failed else ""))
    return bool(checks) and not failed
