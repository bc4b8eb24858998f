"""Run a function in a child process that may hang, crash or exhaust memory: one answer is lost, never the caller.

    with Worker("impls.numerics.measure:examine", env={"TRITON_INTERPRET": "1"}) as worker:
        reply = worker.call({"impl": "triton", "case": "prefill", "on": "cpu"}, timeout=60)

Requests and replies are one line of JSON each, on private copies of the child's stdin and stdout: whatever the function
prints goes to stderr, and what it reads is empty. The child is started at the first call, kept for the next ones, and
replaced after a crash, a timeout or a CUDA error (which leaves a CUDA context unusable). It leads a process group of its
own, so that the compilers it started end with it.

On Linux the child is killed when the thread that started it ends, so call from a thread that lives as long as the worker.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

ROOT = Path(__file__).resolve().parent.parent
Status = Literal["ok", "unsupported", "oom", "timeout", "failed", "crashed"]

LAST_WORDS_BYTES = 4096  # the end of the child's stderr that is searched for its last line
OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)
CUDA_ERROR = re.compile(r"CUDA[ _]error|Triton Error \[CUDA\]", re.IGNORECASE)


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

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def call(self, request: Mapping[str, Any], *, timeout: float) -> Reply:
        """The function's answer to `request`, given `timeout` seconds, the child's start included."""
        deadline = time.monotonic() + timeout
        line = json.dumps(request).encode() + b"\n"
        if not self.running:
            self._start()
        try:
            self._send(line, deadline)
            answer = json.loads(self._receive(deadline))
        except TimeoutError:
            self.close()
            return Reply("timeout", sentence=f"no answer within {timeout:g} s.")
        except (BrokenPipeError, EOFError):
            return self._died(deadline)
        if answer.pop("fatal"):
            self.close()
        return Reply(**answer)

    @property
    def running(self) -> bool:
        """Whether the child of the last call is there, with whatever the function has kept in it."""
        return self._child is not None and self._child.poll() is None

    def close(self) -> None:
        """End the child and what it started, if there is one."""
        if self._child is not None:
            assert self._child.stdin is not None and self._child.stdout is not None
            if self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.stdin.close()
            self._child.stdout.close()
            self._child.wait()
        if self._log is not None:
            self._log.close()
        self._child, self._log = None, None

    def _start(self) -> None:
        self.close()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "impls.worker", self._function, str(os.getpid())],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path, **self._env},
            process_group=0,
        )
        assert self._child.stdin is not None
        os.set_blocking(self._child.stdin.fileno(), False)  # a child that does not read must not hold up its parent

    def _send(self, line: bytes, deadline: float) -> None:
        """Write `line` to the child. Raises TimeoutError, or BrokenPipeError when the child has gone."""
        assert self._child is not None and self._child.stdin is not None
        pipe = self._child.stdin.fileno()
        left = memoryview(line)
        while left:
            if not select.select([], [pipe], [], _seconds_to(deadline))[1]:
                raise TimeoutError
            left = left[os.write(pipe, left) :]

    def _receive(self, deadline: float) -> bytes:
        """One line of the child's answers. Raises TimeoutError, or EOFError when the child has gone."""
        assert self._child is not None and self._child.stdout is not None
        pipe = self._child.stdout.fileno()
        pieces: list[bytes] = []
        while not pieces or not pieces[-1].endswith(b"\n"):
            if not select.select([pipe], [], [], _seconds_to(deadline))[0]:
                raise TimeoutError
            pieces.append(os.read(pipe, 1 << 20))
            if not pieces[-1]:
                raise EOFError
        return b"".join(pieces)

    def _died(self, deadline: float) -> Reply:
        """The reply for a child that closed its pipes, which it does by ending."""
        assert self._child is not None and self._log is not None
        try:
            code = self._child.wait(_seconds_to(deadline))
        except subprocess.TimeoutExpired:
            self.close()
            return Reply("timeout", sentence="the process closed its pipes but did not end in time.")
        self._log.seek(max(self._log.seek(0, os.SEEK_END) - LAST_WORDS_BYTES, 0))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        self.close()
        how = f"died by {_signal_name(-code)}" if code < 0 else f"exited with status {code} before it answered"
        last_words = f": {lines[-1][:300].rstrip('.')}" if lines else ""
        return Reply("crashed", sentence=f"the process {how}{last_words}.")


def _seconds_to(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)  # select refuses more than some centuries


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals between the first and the last have no name
        return f"signal {number}"


def _serve(function: str, parent: int) -> None:
    """The child: answer one line after the other until stdin ends."""
    _die_with(parent)
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    target = getattr(importlib.import_module(module), name)
    for line in requests:
        answers.write(_answer(target, json.loads(line)) + b"\n")
        answers.flush()


def _answer(target: Any, request: dict[str, Any]) -> bytes:
    """One line of JSON: the fields of `Reply`, and whether this process is of no more use."""
    from impls.contract import Unsupported

    try:
        return json.dumps({"status": "ok", "value": target(request), "fatal": False}).encode()
    except Unsupported as reason:
        return json.dumps({"status": "unsupported", "sentence": str(reason), "fatal": False}).encode()
    except Exception as error:  # the boundary that turns any fault of an implementation into a record
        message = str(error).strip()
        first_line = message.splitlines()[0] if message else "no message"
        out_of_memory = isinstance(error, MemoryError) or OUT_OF_MEMORY.search(message)
        reply = {
            "status": "oom" if out_of_memory else "failed",
            "sentence": f"{type(error).__name__}: {first_line}"[:500],
            "fatal": bool(CUDA_ERROR.search(message)),
        }
        return json.dumps(reply).encode()


def _die_with(parent: int) -> None:
    """Ask Linux to kill this process when its parent goes; elsewhere the end of stdin has to do."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # it went before it could be asked for
            sys.exit("the parent has ended")


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
