"""Budgets are ratios to a yardstick timed in the same test, in CPU seconds of one thread.

So they hold on a slow machine, and on a busy one: where others run as well, a function that takes longer than a time slice
is interrupted in every round and a short yardstick in none, which the wall clock would count against the function.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CLOCK = time.thread_time


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give pytest-benchmark the same clock and keep other tests away; the hook sees every test, but means only those here."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.benchmark(timer=CLOCK))
            item.add_marker(pytest.mark.alone)


@pytest.fixture
def within(benchmark) -> Callable[..., None]:
    """`within(budget, function, yardstick)` fails if `function` takes more than `budget` times as long as `yardstick`.

    Both count at their fastest of several rounds: what else the caches have to hold only ever adds time.
    """

    def check(budget: float, function: Callable[[], object], yardstick: Callable[[], object], *, rounds: int = 7) -> None:
        before = fastest(yardstick, rounds)
        benchmark.pedantic(function, rounds=rounds, warmup_rounds=1)
        unit = min(before, fastest(yardstick, rounds))
        ratio = benchmark.stats.stats.min / unit
        benchmark.extra_info.update(budget=budget, ratio=round(ratio, 2))
        assert ratio <= budget, f"{ratio:.1f} times the yardstick ({1e6 * unit:.1f} us), the budget is {budget}"

    return check


def fastest(function: Callable[[], object], rounds: int) -> float:
    """CPU seconds of the fastest of `rounds` calls after a first one."""
    function()
    seconds = []
    for _ in range(rounds):
        started = CLOCK()
        function()
        seconds.append(CLOCK() - started)
    return min(seconds)
