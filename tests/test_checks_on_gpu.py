"""The loop of the scripts that check kernels on a GPU: every check runs, and none that fails is counted as holding."""

from __future__ import annotations

import pytest

from tests.on_gpu import DoesNotHold, hold, named


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)


def wrong() -> str:
    raise DoesNotHold("out 1.5")


def broken() -> str:
    raise RuntimeError("a fault")


def test_a_failure_is_told_and_the_rest_is_still_checked(capsys):
    assert not hold([("a", wrong), ("b", broken), ("c", lambda: "out 0.5"), ("d", lambda: None)], "sm_90a")
    told = capsys.readouterr().out
    assert told.startswith("FAIL  a  out 1.5  0.0 s\nFAIL  b  Traceback")
    assert "RuntimeError: a fault" in told and "ok    c  out 0.5  0.0 s" in told
    assert told.endswith("sm_90a: 2 of 4 hold; not a, b\n")


def test_nothing_that_was_checked_does_not_hold(capsys):
    assert hold([("a", lambda: None)], "sm_90a")
    assert not hold([], "sm_90a")
    assert capsys.readouterr().out.endswith("sm_90a: 0 of 0 hold\n")


def test_a_word_chooses_by_a_part_of_a_name():
    checks = [(name, broken) for name in ("a4q causal", "a4q pages", "triton causal")]
    assert [name for name, _ in named(["pages", "triton"], checks)] == ["a4q pages", "triton causal"]
    assert named([], checks) == checks
