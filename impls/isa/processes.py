"""Short-lived compiler processes: each with a time limit, all of them ended when the work is abandoned."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TIME_LIMIT = 10.0
"""Seconds for a process that handles one program; 0.02 s is usual on an idle core."""
TIME_LIMIT_PER_PROGRAM = 0.1
"""Seconds more for each further program of a module; 0.002 s is usual."""


@dataclass(frozen=True)
class Finished:
    """How a process ended. `status` is None when it was ended at its time limit, negative when a signal ended it."""

    status: int | None
    output: str
    errors: str


class Abandoned(Exception):
    """The work was called off while a process was running."""


class Processes:
    """Runs processes from several threads; `abandon` ends those that are running and refuses new ones."""

    def __init__(self, time_limit: float = TIME_LIMIT) -> None:
        self.time_limit = time_limit
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._abandoned = False

    def run(self, command: Sequence[str | Path], programs: int = 1) -> Finished:
        """Run `command`, which handles so many programs, to its end or its time limit.

        Raises OSError if it cannot be started, Abandoned after `abandon`.
        """
        with self._lock:
            if self._abandoned:
                raise Abandoned
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
            )
            self._running.add(process)
        try:
            output, errors = process.communicate(timeout=self.time_limit + TIME_LIMIT_PER_PROGRAM * (programs - 1))
            status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = _drain(process)
            status = None
        finally:
            with self._lock:
                self._running.discard(process)
        if self._abandoned:
            raise Abandoned
        return Finished(status, output, errors)

    def abandon(self) -> None:
        """End every running process; later calls of `run` raise Abandoned."""
        with self._lock:
            self._abandoned = True
            for process in self._running:
                process.kill()


def _drain(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a killed process wrote. A grandchild that still holds the pipes is not waited for."""
    try:
        return process.communicate(timeout=1.0)
    except subprocess.TimeoutExpired:
        return "", ""
