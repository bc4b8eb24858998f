"""Run a function in a child process that may hang, crash or exhaust memory: one answer is lost, never the caller.

    with Worker("impls.numerics.measure:measure", env={"TRITON_INTERPRET": "1"}) as worker:
        reply = worker.call({"impl": "triton", "case": "causal"}, timeout=60)

Requests and replies are one line of JSON each, on the child's stdin and on a private copy of its stdout; whatever the
function prints goes to stderr. The child is started at the first call, kept for the next ones, and replaced after a
crash, a timeout or a CUDA error (which leaves a CUDA context unusable). It is killed when its parent dies.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

ROOT = Path(__file__).resolve().parent.parent
Status = Literal["ok", "unsupported", "oom", "timeout", "failed", "crashed"]


@dataclass(frozen=True)
class Reply:
    """What came of one call. `value` is there exactly when status is ok, `sentence` exactly when it is not."""

    status: Status
    value: Any = None
    sentence: str | None = None


class Worker:
    """A child process that answers calls of one function, "package.module:function", taking and returning JSON."""

    def __init__(self, function: str, *, env: Mapping[str, str] | None = None) -> None:
        self._function = function
        self._env = dict(env or {})
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._pending = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def call(self, request: Mapping[str, Any], *, timeout: float) -> Reply:
        """The function's answer to `request`, given `timeout` seconds, the child's start included."""
        deadline = time.monotonic() + timeout
        if self._child is None or self._child.poll() is not None:
            self._start()
        child = self._child
        assert child is not None and child.stdin is not None
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            return self._died()
        line = self._read_line(deadline)
        if line is None:
            self.close()
            return Reply("timeout", sentence=f"no answer within {timeout:.0f} s.")
        if not line:
            return self._died()
        answer = json.loads(line)
        if answer.pop("fatal", False):
            self.close()
        return Reply(**answer)

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
        if self._log is not None:
            self._log.close()
        self._child, self._log, self._pending = None, None, b""

    def _start(self) -> None:
        self.close()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._child = subprocess.Popen(
            [sys.executable, "-m", "impls.worker", self._function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path, **self._env},
        )

    def _read_line(self, deadline: float) -> bytes | None:
        """One line of the child's output; b"" when the child has gone, None when time is up."""
        assert self._child is not None and self._child.stdout is not None
        pipe = self._child.stdout.fileno()
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                return None
            piece = os.read(pipe, 1 << 16)
            if not piece:
                return b""
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _died(self) -> Reply:
        assert self._child is not None and self._log is not None
        code = self._child.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        self.close()
        how = f"died by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        last_words = f": {lines[-1][:300]}" if lines else ""
        return Reply("crashed", sentence=f"the process {how}{last_words}.")


def _serve(function: str) -> None:
    """The child: answer one line after the other until stdin ends."""
    _die_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    target = getattr(importlib.import_module(module), name)
    for line in sys.stdin.buffer:
        answers.write(json.dumps(_answer(target, json.loads(line))).encode() + b"\n")
        answers.flush()


def _answer(target: Any, request: dict[str, Any]) -> dict[str, Any]:
    from impls.contract import Unsupported

    try:
        return {"status": "ok", "value": target(request)}
    except Unsupported as reason:
        return {"status": "unsupported", "sentence": str(reason)}
    except Exception as error:  # the boundary that turns any fault of an implementation into a record
        text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
        out_of_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        return {
            "status": "oom" if out_of_memory else "failed",
            "sentence": text[:500],
            "fatal": "CUDA error" in str(error),
        }


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent goes; elsewhere the end of stdin has to do."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    _serve(sys.argv[1])
