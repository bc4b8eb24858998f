"""What an implementation in somebody's file calls itself, asked for in a child: its module may do anything when imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from impls.errors import CommandError
from impls.registry import implementation
from impls.worker import Worker

TIMEOUT = 120.0
"""Seconds that importing it may take, torch and what it compiles included."""


def name_of_file(place: str) -> str:
    """The name of the implementation at path/to/file.py:Class. Raises CommandError if it does not load."""
    with Worker("impls.outside:answer_name", env={"TRITON_INTERPRET": "1"}) as worker:
        reply = worker.call({"impl": place}, timeout=TIMEOUT)
    if reply.status != "ok":
        raise CommandError(f"cannot use {place}: {reply.sentence}")
    return str(reply.value)


def answer_name(request: Mapping[str, Any]) -> str:
    """The child's side of `name_of_file`."""
    return implementation(request["impl"]).name
