"""Functions that a `Worker` under test calls in its child: well-behaved ones and every way to misbehave."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from impls.contract import Unsupported


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


def pid(request: dict[str, Any]) -> int:
    return os.getpid()


def behave(request: dict[str, Any]) -> Any:
    """Do what request["do"] names."""
    return globals()[f"_{request['do']}"](request)


def _echo(request: dict[str, Any]) -> dict[str, Any]:
    return {"request": request, "pid": os.getpid()}


def _environment(request: dict[str, Any]) -> str | None:
    return os.environ.get(request["name"])


def _raise(request: dict[str, Any]) -> None:
    kinds: dict[str, type[BaseException]] = {
        "ValueError": ValueError,
        "RuntimeError": RuntimeError,
        "MemoryError": MemoryError,
        "OutOfMemoryError": OutOfMemoryError,
        "Unsupported": Unsupported,
        "AssertionError": AssertionError,
    }
    raise kinds[request["kind"]](request["message"])


def _signal(request: dict[str, Any]) -> None:
    print("about to die", file=sys.stderr, flush=True)
    os.kill(os.getpid(), request["number"])
    time.sleep(60)


def _segfault(request: dict[str, Any]) -> None:
    ctypes.string_at(0)


def _exit(request: dict[str, Any]) -> None:
    sys.exit(request["status"])


def _exit_at_once(request: dict[str, Any]) -> None:
    os._exit(request["status"])


def _hang(request: dict[str, Any]) -> None:
    """Writes the ids of this process and of one it starts, then sleeps."""
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    unfinished = Path(request["file"] + ".part")
    unfinished.write_text(f"{os.getpid()} {grandchild.pid}")
    unfinished.rename(request["file"])
    time.sleep(300)


def _die_with_a_grandchild_left(request: dict[str, Any]) -> None:
    """Ends while a forked copy of it, with all its files open, goes on."""
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)
    os._exit(3)


def _close_everything_and_hang(request: dict[str, Any]) -> None:
    os.closerange(3, 256)
    time.sleep(300)


def _print(request: dict[str, Any]) -> str:
    print("from Python", '{"status": "ok", "value": "forged", "fatal": false}')
    sys.stdout.flush()
    os.write(1, b'{"status": "ok", "value": "forged", "fatal": false}\n')
    subprocess.run(["echo", '{"status": "ok", "value": "forged", "fatal": false}'], check=True)
    return "answer"


def _read(request: dict[str, Any]) -> str:
    return sys.stdin.read() + subprocess.run(["cat"], capture_output=True, text=True, check=True).stdout


def _large(request: dict[str, Any]) -> str:
    return "x" * request["characters"]


def _chatter(request: dict[str, Any]) -> None:
    sys.stderr.write("y" * 10_000_000 + "\nthe last line\n")
    sys.stderr.flush()
    os._exit(1)


def _floats(request: dict[str, Any]) -> dict[str, float]:
    return {"nan": float("nan"), "inf": float("inf"), "minus_inf": -float("inf"), "tenth": 0.1}


def _text(request: dict[str, Any]) -> str:
    return 'line\nbreak \u2028 "quoted" \\ \ud800 é'


def _object(request: dict[str, Any]) -> object:
    return {"an": object()}


def _circular(request: dict[str, Any]) -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle
