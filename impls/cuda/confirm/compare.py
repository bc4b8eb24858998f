"""Holds what a GPU gave against what the emulator gives: bit for bit, or within the documented error of a function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from impls.cuda.confirm.probe import Instruction, Program, Words
from impls.cuda.emulator.arithmetic import APPROXIMATE

Array = np.ndarray[Any, Any]
SMALLEST = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}
"""Subnormal step of each type."""
FRACTION_BITS = {"f32": 23, "f16": 10, "bf16": 7}


@dataclass(frozen=True)
class Finding:
    """One instruction, held against the emulator on one GPU."""

    instruction: str
    rules: tuple[str, ...]
    threads: int
    """On which it was evaluated."""
    differing: int
    """Of these, how many gave what the emulator does not allow."""
    counterexample: str = ""
    """The first of them in words."""
    largest_error: float | None = None
    """Of an approximate function, where the documentation gives a bound."""
    bound: str = ""
    """That bound in words."""


def findings(program: Program, inputs: Words, observed: Words, expected: Words) -> list[Finding]:
    """What became of each instruction of `program`."""
    found = []
    for instruction, columns in zip(program.instructions, program.columns(), strict=True):
        seen, wanted = observed[:, columns], expected[:, columns]
        largest, bound = None, ""
        if instruction.approximates:
            kind, limit = APPROXIMATE[instruction.approximates.removesuffix("x2")]
            with np.errstate(all="ignore"):
                wrong, largest = _outside(instruction, kind, limit, inputs, seen[:, 0], wanted[:, 0])
            bound = f"{limit:.3g} {kind}"
        else:
            wrong = (seen != wanted).any(axis=1)
        first = int(np.argmax(wrong))
        example = _example(first, inputs[first], seen[first], wanted[first]) if wrong.any() else ""
        found.append(Finding(instruction.name, instruction.rules, len(inputs), int(wrong.sum()), example, largest, bound))
    return found


def by_rule(found: Iterable[Finding]) -> dict[str, str]:
    """{rule: "confirmed", or "contradicted" with the first counterexample}, of all rules that were tested."""
    rules: dict[str, str] = {}
    for finding in found:
        for rule in finding.rules:
            rules.setdefault(rule, "confirmed")
            if finding.differing and rules[rule] == "confirmed":
                rules[rule] = f"contradicted: {finding.instruction}, {finding.counterexample}"
    return rules


def _example(thread: int, inputs: Words, seen: Words, wanted: Words) -> str:
    given, got, said = (" ".join(f"{int(word):08x}" for word in words) for words in (inputs, seen, wanted))
    return f"thread {thread} of inputs {given}: {got} and not {said}"


def _outside(
    instruction: Instruction, kind: str, limit: float, inputs: Words, seen: Words, wanted: Words
) -> tuple[Array, float]:
    """(where the error is beyond `limit`, the largest error). `wanted` is the exact value, rounded to nearest."""
    assert instruction.approximates is not None
    element = instruction.approximates.rpartition(".")[2]
    narrow = element.removesuffix("x2")
    in_range = _has_bound(instruction.approximates, inputs)
    wrong, largest = np.zeros(len(seen), bool), 0.0
    for shift in (0, 16) if element.endswith("x2") else (0,):
        got, exact = _values(seen, narrow, shift), _values(wanted, narrow, shift)
        finite = np.isfinite(got) & np.isfinite(exact)
        step = np.maximum(2.0 ** (np.frexp(exact)[1] - 1 - FRACTION_BITS[narrow]), SMALLEST[narrow])
        error = np.abs(got - exact)
        allowed = np.broadcast_to(limit * _unit(instruction.approximates, kind, inputs, exact, step), error.shape)
        same = (got == exact) | (np.isnan(got) & np.isnan(exact))
        wrong |= in_range & np.where(finite, error > allowed + 0.5 * step + SMALLEST[narrow], ~same)
        counted = in_range & finite & (np.abs(exact) > 2.0**-120)
        units = error / (allowed / limit)
        largest = max(largest, float(units[counted].max(initial=0)))
    return wrong, largest


def _unit(name: str, kind: str, inputs: Words, exact: Array, step: Array) -> Array:
    """What an error is counted in."""
    if kind == "ulp":
        return step
    if kind == "relative":
        relative = np.abs(exact)
        if name.startswith("lg2"):  # next to 1 the error is an absolute one
            x = _values(inputs[:, 0], "f32", 0)
            return np.where((x > 0.5) & (x < 2), 1, relative)
        return relative
    return np.ones_like(exact)


def _has_bound(name: str, inputs: Words) -> Array:
    """Where the documentation gives the function an error at all."""
    if name.startswith(("sin", "cos")):
        x = _values(inputs[:, 0], "f32", 0)
        return ~(np.isfinite(x) & (np.abs(x) > 2 * np.pi))
    if name.startswith("div"):
        y = np.abs(_values(inputs[:, 1], "f32", 0))
        return ~((y > 0) & np.isfinite(y) & ((y < 2.0**-126) | (y > 2.0**126)))
    return np.ones(len(inputs), bool)


def _values(words: Words, kind: str, shift: int) -> Array:
    if kind == "f32":
        return np.ascontiguousarray(words).view(np.float32).astype(np.float64)
    low = (words >> np.uint32(shift)).astype(np.uint16)
    if kind == "f16":
        return low.view(np.float16).astype(np.float64)
    return (low.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
