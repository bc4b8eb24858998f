"""Whether entries share memory, against the set of all their addresses."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
import torch

from impls.memory import may_share, why_not_written

ROOM = torch.zeros(4096, dtype=torch.uint8)


def addresses(tensor: torch.Tensor) -> Counter[int]:
    """How many entries lie at each byte."""
    axes = [
        range(0, size * stride, stride) if stride else [0] * size
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    starts = [tensor.data_ptr() + sum(place) * tensor.element_size() for place in itertools.product(*axes)]
    return Counter(start + byte for start in starts for byte in range(tensor.element_size()))


def anywhere(rng: random.Random) -> torch.Tensor:
    """A view of ROOM with a few entries."""
    room = ROOM.view(rng.choice([torch.uint8, torch.bfloat16, torch.float32]))
    axes = rng.randint(1, 3)
    shape, strides = ([rng.choice(range(least, 6)) for _ in range(axes)] for least in (1, 0))
    return room.as_strided(shape, [stride * rng.choice([1, 1, 4]) for stride in strides], rng.randrange(64))


def nested(rng: random.Random) -> torch.Tensor:
    """Part of the lines of a matrix, transposed or not."""
    room = ROOM.view(rng.choice([torch.uint8, torch.bfloat16, torch.float32]))
    pitch = rng.choice([16, 32]) // room.element_size()
    first = rng.randrange(pitch)
    lines = room[: pitch * 8].view(8, pitch)[rng.randrange(4) :, first : first + rng.randint(1, pitch - first)]
    return lines.T if rng.random() < 0.5 else lines


@pytest.mark.parametrize("make", [anywhere, nested])
def test_nothing_that_shares_memory_passes(make):
    rng = random.Random(0)
    seen = Counter()
    for _ in range(2000):
        one, other = make(rng), make(rng)
        alone, beside = max(addresses(one).values()) == 1, not addresses(one) & addresses(other)
        assert alone or why_not_written(one)
        assert beside or (may_share(one, other) and may_share(other, one))
        if make is nested:
            assert why_not_written(one) is None
            assert may_share(one, other) == (not beside)
        seen.update([(alone, beside)])
    assert {beside for _, beside in seen} == {True, False}
    assert make is nested or {alone for alone, _ in seen} == {True, False}


def test_what_shares_nothing_passes():
    assert why_not_written(torch.zeros(2, 3, 4).permute(2, 0, 1)) is None
    assert why_not_written(torch.zeros(2, 3, 8)[:, ::2, 1:5]) is None
    assert why_not_written(torch.zeros(1, 3).expand(1, 3)) is None
    assert why_not_written(ROOM.as_strided((3, 1, 4), (4, 0, 1))) is None
    lines = torch.zeros(5, 16)
    assert not may_share(lines[:, :7], lines[:, 7:])
    assert not may_share(lines[::2], lines[1::2])
    assert not may_share(lines[:2], lines[2:])
    assert not may_share(torch.zeros(3, device="meta"), torch.zeros(3, device="meta"))
    both = torch.zeros(2, 4, 3, 18, dtype=torch.int16)  # a result and its lse, one behind the other
    assert not may_share(both[..., :16], both[..., 16:].view(torch.float32)[..., 0])


def test_sentences():
    assert why_not_written(torch.zeros(1, 4).expand(3, 4)) == (
        "is an expanded tensor whose entries share memory; pass one with memory for each entry."
    )
    assert why_not_written(ROOM.as_strided((3, 4), (2, 1))) == (
        "has entries that may share memory (shape [3, 4], strides [2, 1]); pass one with memory for each entry."
    )
