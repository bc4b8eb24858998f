"""Processes that answer one kind of question, several at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from impls.worker import Reply, Worker


class Pool:
    """Workers that share a list of requests.

    with Pool("benchmarks.counting:answer", jobs=2, timeout=600) as pool:
        for reply in pool.replies(requests): ...
    """

    def __init__(self, function: str, jobs: int, timeout: float, env: Mapping[str, str] | None = None) -> None:
        """`function` as in `Worker`; `timeout` in seconds, of one request; `env`: environment of the processes."""
        self._timeout = timeout
        self._workers: SimpleQueue[Worker] = SimpleQueue()
        self._everyone = [Worker(function, env=dict(env or {})) for _ in range(jobs)]
        for worker in self._everyone:
            self._workers.put(worker)
        self._threads = ThreadPoolExecutor(jobs)  # for as long as the processes: each ends with the thread that started it

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)  # where it was interrupted, nobody waits for what goes on
        for worker in self._everyone:
            worker.close()

    def replies(self, requests: Sequence[Mapping[str, Any]]) -> Iterator[Reply]:
        """What became of `requests`, in their order, each as soon as it and those before it are known."""
        yield from self._threads.map(self._ask, requests)

    def _ask(self, request: Mapping[str, Any]) -> Reply:
        worker = self._workers.get()
        try:
            return worker.call(dict(request), timeout=self._timeout)
        finally:
            self._workers.put(worker)
