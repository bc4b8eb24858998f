"""Whatever a function does in its child, the parent gets one reply, in time, and the next call works."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from impls.worker import ROOT, Reply, Worker

BEHAVE = "tests.contract.worker_targets:behave"
PATIENCE = 30.0  # seconds; what should take long is given less


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(BEHAVE) as worker:
        yield worker


def echo(worker: Worker) -> int:
    """A call that must work; the id of the child that answered."""
    reply = worker.call({"do": "echo", "n": 7}, timeout=PATIENCE)
    assert reply.status == "ok"
    assert reply.value["request"] == {"do": "echo", "n": 7}
    return int(reply.value["pid"])


def gone(pid: int) -> bool:
    """Whether process `pid` ends within a few seconds (a zombie has ended)."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def written(file: Path) -> list[int]:
    """The process ids in `file`, once it is there."""
    for _ in range(200):
        if file.exists():
            return [int(word) for word in file.read_text().split()]
        time.sleep(0.05)
    raise AssertionError(f"{file} was not written")


def test_one_child_answers_call_after_call(worker: Worker) -> None:
    pids = {echo(worker) for _ in range(3)}
    assert len(pids) == 1
    assert pids != {os.getpid()}


def test_the_environment_given_is_the_childs() -> None:
    with Worker(BEHAVE, env={"NVFP4BENCH_TEST": "seen"}) as worker:
        assert worker.call({"do": "environment", "name": "NVFP4BENCH_TEST"}, timeout=PATIENCE) == Reply("ok", "seen")
    assert "NVFP4BENCH_TEST" not in os.environ


@pytest.mark.parametrize(
    ("kind", "message", "status", "sentence"),
    [
        ("ValueError", "wrong\nsecond line", "failed", "ValueError: wrong"),
        ("AssertionError", "", "failed", "AssertionError: no message"),
        ("RuntimeError", "m" * 1000, "failed", "RuntimeError: " + "m" * 486),
        ("MemoryError", "", "oom", "MemoryError: no message"),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate", "oom", "OutOfMemoryError: CUDA out of memory. Tried"),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried", "oom", "RuntimeError: DefaultCPUAllocator"),
        ("Unsupported", "not on this GPU.", "unsupported", "not on this GPU."),
    ],
)
def test_an_exception_is_a_reply_and_keeps_the_child(
    worker: Worker, kind: str, message: str, status: str, sentence: str
) -> None:
    before = echo(worker)
    reply = worker.call({"do": "raise", "kind": kind, "message": message}, timeout=PATIENCE)
    assert (reply.status, reply.value) == (status, None)
    assert reply.sentence is not None
    assert reply.sentence.startswith(sentence)
    assert len(reply.sentence) <= 500
    assert echo(worker) == before


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: an illegal memory access was encountered",
        "Triton Error [CUDA]: misaligned address",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
    ],
)
def test_a_cuda_error_replaces_the_child(worker: Worker, message: str) -> None:
    before = echo(worker)
    reply = worker.call({"do": "raise", "kind": "RuntimeError", "message": message}, timeout=PATIENCE)
    assert reply == Reply("failed", sentence=f"RuntimeError: {message}")
    assert echo(worker) != before
    assert gone(before)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"do": "signal", "number": int(signal.SIGKILL)}, "the process died by SIGKILL: about to die."),
        ({"do": "signal", "number": int(signal.SIGABRT)}, "the process died by SIGABRT: about to die."),
        (
            {"do": "signal", "number": int(signal.SIGRTMIN) + 2},
            f"the process died by signal {signal.SIGRTMIN + 2}: about to die.",
        ),
        ({"do": "segfault"}, "the process died by SIGSEGV."),
        ({"do": "exit", "status": 0}, "the process exited with status 0 before it answered."),
        ({"do": "exit", "status": "words"}, "the process exited with status 1 before it answered: words."),
        ({"do": "exit_at_once", "status": 0}, "the process exited with status 0 before it answered."),
        ({"do": "chatter"}, "the process exited with status 1 before it answered: the last line."),
    ],
)
def test_the_end_of_the_child_is_a_reply(worker: Worker, request_: dict[str, Any], sentence: str) -> None:
    before = echo(worker)
    assert worker.call(request_, timeout=PATIENCE) == Reply("crashed", sentence=sentence)
    assert echo(worker) != before


@pytest.mark.parametrize(
    ("function", "last_words"),
    [
        ("no.such.module:behave", "ModuleNotFoundError: No module named 'no'"),
        ("tests.contract.worker_targets:no_such", "module 'tests.contract.worker_targets' has no attribute 'no_such'"),
    ],
)
def test_a_function_that_cannot_be_imported(function: str, last_words: str) -> None:
    with Worker(function) as worker:
        reply = worker.call({}, timeout=PATIENCE)
    assert reply.status == "crashed"
    assert last_words in (reply.sentence or "")


def test_a_hang_ends_in_time_with_all_that_was_started(worker: Worker, tmp_path: Path) -> None:
    echo(worker)
    begin = time.monotonic()
    reply = worker.call({"do": "hang", "file": str(tmp_path / "pids")}, timeout=1.5)
    assert time.monotonic() - begin < 5
    assert reply == Reply("timeout", sentence="no answer within 1.5 s.")
    child, grandchild = written(tmp_path / "pids")
    assert gone(child)
    assert gone(grandchild)
    assert echo(worker) != child


def test_a_request_that_the_child_does_not_read_ends_in_time(tmp_path: Path) -> None:
    """More than a pipe holds, to a child that is stopped."""
    with Worker(BEHAVE) as worker:
        child = echo(worker)
        os.kill(child, signal.SIGSTOP)
        begin = time.monotonic()
        reply = worker.call({"do": "echo", "text": "x" * 1_000_000}, timeout=1.0)
        assert time.monotonic() - begin < 5
        assert reply.status == "timeout"
        assert gone(child)
        echo(worker)


def test_a_time_longer_than_the_systems_clock_takes_is_no_error(worker: Worker) -> None:
    """select() refuses a timeout of more than some centuries."""
    assert worker.call({"do": "echo"}, timeout=1e300).status == "ok"


def test_a_child_that_ended_while_a_copy_of_it_goes_on_does_not_hold_up(worker: Worker) -> None:
    """The copy keeps the answer pipe open, so there is no end of file: time has to be up."""
    begin = time.monotonic()
    reply = worker.call({"do": "die_with_a_grandchild_left"}, timeout=1.5)
    assert time.monotonic() - begin < 5
    assert reply.status in ("timeout", "crashed")
    echo(worker)


def test_a_child_that_closes_its_pipes_and_hangs(worker: Worker) -> None:
    begin = time.monotonic()
    reply = worker.call({"do": "close_everything_and_hang"}, timeout=1.5)
    assert time.monotonic() - begin < 5
    assert reply == Reply("timeout", sentence="the process closed its pipes but did not end in time.")
    echo(worker)


def test_what_is_printed_is_not_an_answer(worker: Worker) -> None:
    assert worker.call({"do": "print"}, timeout=PATIENCE) == Reply("ok", "answer")
    echo(worker)


def test_what_is_read_is_not_a_request(worker: Worker) -> None:
    assert worker.call({"do": "read"}, timeout=PATIENCE) == Reply("ok", "")
    echo(worker)


def test_large_requests_and_answers(worker: Worker) -> None:
    reply = worker.call({"do": "large", "characters": 50_000_000}, timeout=PATIENCE)
    assert reply.status == "ok"
    assert len(reply.value) == 50_000_000
    text = "é\n" * 500_000
    assert worker.call({"do": "echo", "text": text}, timeout=PATIENCE).value["request"]["text"] == text


def test_nan_inf_and_text_come_through(worker: Worker) -> None:
    value = worker.call({"do": "floats"}, timeout=PATIENCE).value
    assert math.isnan(value.pop("nan"))
    assert value == {"inf": math.inf, "minus_inf": -math.inf, "tenth": 0.1}
    assert worker.call({"do": "text"}, timeout=PATIENCE) == Reply("ok", 'line\nbreak \u2028 "quoted" \\ \ud800 é')


@pytest.mark.parametrize(
    ("do", "sentence"),
    [
        ("object", "TypeError: Object of type object is not JSON serializable"),
        ("circular", "ValueError: Circular reference detected"),
    ],
)
def test_an_answer_that_is_no_json_is_a_failure(worker: Worker, do: str, sentence: str) -> None:
    before = echo(worker)
    assert worker.call({"do": do}, timeout=PATIENCE) == Reply("failed", sentence=sentence)
    assert echo(worker) == before


def test_a_child_that_ended_between_calls_is_replaced(worker: Worker) -> None:
    child = echo(worker)
    os.kill(child, signal.SIGKILL)
    assert gone(child)
    assert echo(worker) != child


def test_closing_ends_the_child_and_a_closed_worker_starts_another() -> None:
    worker = Worker(BEHAVE)
    worker.close()
    child = echo(worker)
    worker.close()
    assert gone(child)
    other = echo(worker)
    worker.close()
    assert other != child


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child that hangs outlives a killed parent")
def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    parent = subprocess.Popen([sys.executable, "-m", "tests.contract.parent_of_a_worker", str(file)], cwd=ROOT)
    try:
        child, grandchild = written(file)
        os.kill(grandchild, signal.SIGKILL)
        parent.kill()
        parent.wait()
        assert gone(child)
    finally:
        parent.kill()
        parent.wait()
